"""How a decode launch is cut: tile, warps, pipeline stages, and splits of the sequence.

The table holds what measurement chose (docs/kernels.md says how); nothing is tuned at run time, so
that a captured graph and a compiled artefact are the same on every start.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache

import torch

MAX_SPLITS = 128


@dataclass(frozen=True)
class LaunchConfig:
    """``tile`` tokens per step, ``warps`` per program, ``stages`` of loads in flight, ``splits`` per sequence.

    ``stages`` is at least 2: with loads that are not pipelined, Triton 3.6 compiles 8-bit rows of 128
    bytes and more to wrong results on sm_90 (docs/kernels.md).
    """

    tile: int
    warps: int
    stages: int
    splits: int

    def __post_init__(self) -> None:
        if self.stages < 2:
            raise ValueError(f"stages is {self.stages}; use at least 2")


@dataclass(frozen=True)
class Target:
    """What the launch depends on: ``kind`` ``cuda``, ``hip`` or ``interpreter``, and its compute units."""

    kind: str
    units: int


@cache
def current_target() -> Target:
    """The device that a launch would run on now."""
    if os.environ.get("TRITON_INTERPRET") == "1" or not torch.cuda.is_available():
        return Target("interpreter", 1)
    kind = "hip" if torch.version.hip else "cuda"
    return Target(kind, torch.cuda.get_device_properties(0).multi_processor_count)


def split_count(programs: int, longest: int, tile: int, target: Target, waves: int) -> int:
    """Splits per sequence, a power of two: enough that ``programs`` (sequences x KV heads) times splits
    fill the device ``waves`` times over, and no split is shorter than two tiles."""
    wanted = waves * target.units / max(1, programs)
    useful = max(1, longest // (2 * tile))
    splits = 1
    while splits * 2 <= MAX_SPLITS and splits < wanted and splits * 2 <= useful:
        splits *= 2
    return splits


def choose(bits: int, head_dim: int, programs: int, longest: int, target: Target) -> LaunchConfig:
    """The launch of one case. ``bits`` per stored value, ``longest`` the longest sequence expected."""
    if target.kind == "interpreter":
        return LaunchConfig(64, 4, 2, split_count(programs, longest, 64, target, 4))
    stages = 2 if target.kind == "hip" else 3
    tile = 128 if bits == 4 else 64
    return LaunchConfig(tile, 4, stages, split_count(programs, longest, tile, target, 16))
