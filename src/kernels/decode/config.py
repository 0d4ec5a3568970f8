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

FORMS = {"": ("pieces",), "unpacked": ("chain", "lazy")}


@dataclass(frozen=True)
class LaunchConfig:
    """``tile`` tokens per step, ``warps`` per program, ``stages`` of loads in flight, ``splits`` per sequence.

    ``kernel``: ``unpacked`` for 4-bit codes that become fp16 in registers; empty for the scheme's own. ``registers``: a
    limit for each thread on NVIDIA, so that more programs fit a unit; 0: the compiler's choice. ``forms``: variants of
    a kernel that no table has yet: ``pieces`` (``decode/pieces.py``), ``chain`` and ``lazy`` (``decode/unpacked.py``).

    ``stages`` is at least 2 for products of 8-bit codes: with loads that are not pipelined, Triton 3.6 compiles
    8-bit rows of 128 bytes and more to wrong results on sm_90 (docs/kernels.md).
    """

    tile: int
    warps: int
    stages: int
    splits: int
    kernel: str = ""
    registers: int = 0
    forms: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        known = FORMS.get(self.kernel, ())
        if unknown := [form for form in self.forms if form not in known]:
            raise ValueError(
                f"form {unknown[0]!r} is unknown for kernel {self.kernel!r}; allowed are {', '.join(known)}"
            )
        if self.kernel not in ("", "unpacked"):
            raise ValueError(f"kernel is {self.kernel!r}; use '' or 'unpacked'")
        if self.stages < (1 if self.kernel else 2):
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


def split_count(programs: int, longest: int, units: int, resident: int) -> int:
    """Splits per sequence, a power of two.

    ``programs`` is sequences times KV heads, ``resident`` the programs that one unit holds at once.
    First every unit gets a program, in splits of at least 256 tokens; then, while splits stay at
    1,024 tokens or more, two rounds of resident programs: fewer leave units idle at the end, more
    cost partial results.
    """
    splits = 1
    while splits < MAX_SPLITS and 2 * splits * programs <= units and longest // (2 * splits) >= 256:
        splits *= 2
    while splits < MAX_SPLITS and 2 * splits * programs <= 2 * resident * units and longest // (2 * splits) >= 1024:
        splits *= 2
    return splits


@dataclass(frozen=True)
class Cut:
    """A launch of the unpacking kernel that measured faster than the scheme's own; ``resident``: programs a unit."""

    tile: int
    warps: int
    stages: int
    resident: int


UNPACKED = {
    ("token", 128, 64): Cut(64, 2, 4, 8),
    ("token", 256, 64): Cut(32, 1, 4, 6),
    ("token", 256, 784): Cut(32, 1, 4, 6),
    ("group", 128, 64): Cut(32, 1, 6, 12),
    ("group", 256, 64): Cut(32, 1, 6, 6),
}
"""By scope of scales, head dimension and page: 4-bit codes on an H200 (docs/evidence/h200/decode_variants.json)."""


def choose(
    bits: int, head_dim: int, programs: int, longest: int, target: Target, scope: str, page: int
) -> LaunchConfig:
    """The launch of one case. ``bits`` per stored value, ``longest`` the longest sequence expected, ``scope`` as
    ``store.launch.scope_of``."""
    cut = UNPACKED.get((scope, head_dim, page))
    if target.kind == "cuda" and bits == 4 and cut:
        splits = split_count(programs, longest, target.units, cut.resident)
        return LaunchConfig(cut.tile, cut.warps, cut.stages, splits, "unpacked")
    row_bytes = bits * head_dim // 8
    resident = max(1, 512 // max(128, row_bytes))
    splits = split_count(programs, longest, target.units, resident)
    if target.kind == "cuda":
        return LaunchConfig(128 if bits == 4 else 64, 4, 6, splits)
    return LaunchConfig(64, 4, 2, splits)  # hip: from the compiled resources, not measured


def choose_windowed(head_dim: int, programs: int, longest: int, target: Target) -> LaunchConfig:
    """The launch of a scheme with a 16-bit window: one group of tokens at a time."""
    splits = split_count(programs, longest, target.units, 6 if head_dim > 128 else 12)
    if target.kind == "hip":  # from the compiled resources, not measured
        return LaunchConfig(32, 2 if head_dim > 128 else 1, 1, splits, "unpacked")
    return LaunchConfig(32, 1, 6, splits, "unpacked")
