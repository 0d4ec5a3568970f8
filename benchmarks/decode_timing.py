"""Timing on a GPU: captured graphs over rotated buffers, and the memory ceilings of the same run."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import triton
import triton.language as tl


@dataclass(frozen=True)
class Timing:
    """Microseconds per call: median, and the quartiles around it, over ``samples`` graph replays."""

    median_us: float
    low_us: float
    high_us: float
    samples: int


def time_calls(calls: Sequence[Callable[[], object]], budget_s: float = 0.12, least: int = 9) -> Timing:
    """Time ``calls`` (one per buffer set) as one captured graph, replayed for about ``budget_s``.

    Buffer sets are rotated inside the graph, so that together they exceed the last-level cache.
    """
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for call in calls:
            call()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()

    def replay() -> float:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) * 1e3 / len(calls)

    first = [replay() for _ in range(3)][-1]
    count = max(least, min(200, int(budget_s * 1e6 / max(1.0, first * len(calls)))))
    samples = sorted(replay() for _ in range(count))
    quarter = len(samples) // 4
    return Timing(statistics.median(samples), samples[quarter], samples[-1 - quarter], count)


@triton.jit
def read_kernel(x_ptr, out_ptr, count, TILE: tl.constexpr, STEPS: tl.constexpr):
    """Sum of everything, so that nothing can be skipped; one partial sum per program."""
    acc = tl.zeros([TILE], tl.float32)
    base = tl.program_id(0).to(tl.int64) * (TILE * STEPS)
    for step in range(STEPS):
        o = base + step * TILE + tl.arange(0, TILE)
        acc += tl.load(x_ptr + o, mask=o < count, other=0.0)
    tl.store(out_ptr + tl.program_id(0), tl.sum(acc, 0))


@triton.jit
def copy_kernel(x_ptr, y_ptr, count, TILE: tl.constexpr, STEPS: tl.constexpr):
    """y = x."""
    base = tl.program_id(0).to(tl.int64) * (TILE * STEPS)
    for step in range(STEPS):
        o = base + step * TILE + tl.arange(0, TILE)
        tl.store(y_ptr + o, tl.load(x_ptr + o, mask=o < count), mask=o < count)


CUTS = ((2048, 8, 4), (4096, 8, 8), (4096, 16, 8), (8192, 8, 8), (4096, 4, 4), (2048, 1, 4))
"""(elements per step, steps per program, warps) tried for a ceiling."""


def ceilings(size_bytes: int = 4 << 30) -> dict[str, float]:
    """``copy_bytes_per_s`` (read plus written) and ``read_bytes_per_s`` of this device, best of a few cuts."""
    x = torch.randn(size_bytes // 4, device="cuda")
    y = torch.empty_like(x)
    found = {"copy_bytes_per_s": 0.0, "read_bytes_per_s": 0.0}
    for tile, steps, warps in CUTS:
        grid = (triton.cdiv(x.numel(), tile * steps),)
        cut = {"TILE": tile, "STEPS": steps, "num_warps": warps, "num_stages": 4}
        out = torch.empty(grid[0], device="cuda")
        read = time_calls([lambda g=grid, o=out, c=cut: read_kernel[g](x, o, x.numel(), **c)], least=15)  # type: ignore[misc]
        copy = time_calls([lambda g=grid, c=cut: copy_kernel[g](x, y, x.numel(), **c)], least=15)  # type: ignore[misc]
        found["read_bytes_per_s"] = max(found["read_bytes_per_s"], size_bytes / read.median_us * 1e6)
        found["copy_bytes_per_s"] = max(found["copy_bytes_per_s"], 2 * size_bytes / copy.median_us * 1e6)
    return found


def last_level_cache_bytes() -> int:
    """Size of the device's L2."""
    return int(torch.cuda.get_device_properties(0).L2_cache_size)
