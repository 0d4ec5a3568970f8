"""The device whose ceilings are measured, and how one sample of a kernel on it is timed and summarised.

Every sample times a loop long enough for the clock and short against a scheduler's time slice, and
drains the device's queue once. A CPU sample during which this process did not have its core (CPU time
below 90 % of wall time) times the scheduler, not the memory: it is counted as ``preempted`` and left
out of the summary.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from adrbench.profile.spread import median_interval

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
SAMPLE_S = {"cpu": 0.008, "cuda": 0.005}
BUSY = 0.9
FEWEST_SAMPLES = 3
# Largest CPU buffer is at most this share of the memory that is free: the server may share the host.
MEMORY_SHARE = 4
# fp32 elements of one dot product must fit BLAS's 32-bit count.
LARGEST_BYTES = 4 * GIB
Kernel = Callable[[], object]
Sample = tuple[float, bool]
"""Seconds of one call, and whether the process had its core all the time."""


def last_level_cache_bytes(root: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> int:
    """Size of the largest CPU cache as Linux states it, 0 where it does not."""
    units = {"K": KIB, "M": MIB, "G": GIB}
    sizes = [0]
    for file in root.glob("index*/size"):
        text = file.read_text().strip()
        if text[:-1].isdigit() and text[-1] in units:
            sizes.append(int(text[:-1]) * units[text[-1]])
        elif text.isdigit():
            sizes.append(int(text))
    return max(sizes)


def available_bytes(meminfo: Path = Path("/proc/meminfo")) -> int:
    """Host memory that can be taken without swapping; 2 GiB where the host does not say."""
    try:
        line = next(x for x in meminfo.read_text().splitlines() if x.startswith("MemAvailable:"))
        return int(line.split()[1]) * KIB
    except (OSError, StopIteration, ValueError, IndexError):
        return 2 * GIB


def summary(samples: list[Sample], amount: float | None = None) -> dict[str, Any]:
    """Median and spread of ``amount`` per second (of seconds where it is None).

    Samples that were preempted are counted and left out, unless fewer than three others remain.
    """
    kept = [seconds for seconds, undisturbed in samples if undisturbed]
    if len(kept) < FEWEST_SAMPLES:
        kept = [seconds for seconds, _ in samples]
    values = [amount / seconds for seconds in kept] if amount is not None else kept
    return {
        **median_interval(values),
        "smallest": min(values),
        "largest": max(values),
        "preempted": sum(not undisturbed for _, undisturbed in samples),
    }


class Device:
    """One torch device and how to time a kernel on it (CPU, CUDA and ROCm alike)."""

    def __init__(self, torch: Any, kind: str):
        self.torch, self.kind = torch, kind

    def wait(self) -> None:
        """Until everything that was launched has finished."""
        if self.kind != "cpu":
            self.torch.cuda.synchronize()

    def sample(self, kernel: Kernel, repeats: int) -> Sample:
        """Mean seconds of one call over ``repeats`` calls in a row."""
        self.wait()
        start, busy = time.perf_counter(), time.process_time()
        for _ in range(repeats):
            kernel()
        self.wait()
        seconds, busy = time.perf_counter() - start, time.process_time() - busy
        return seconds / repeats, self.kind != "cpu" or busy >= BUSY * seconds

    def repeats(self, kernel: Kernel) -> int:
        """Warm up and choose how many calls make one sample long enough to time."""
        once = min(self.sample(kernel, 1)[0] for _ in range(2))
        return max(1, min(20_000, int(SAMPLE_S[self.kind] / max(once, 1e-7))))

    @property
    def name(self) -> str:
        return "cpu" if self.kind == "cpu" else str(self.torch.cuda.get_device_name())

    @property
    def cache_bytes(self) -> int:
        """Last-level cache, as the host or the driver states it.

        At least 256 MiB where a driver does not report every level: ROCm's does not (an MI300X states 4 MiB and has
        256 MiB behind it), nor does a torch without the property.
        """
        if self.kind == "cpu":
            return last_level_cache_bytes()
        stated = int(getattr(self.torch.cuda.get_device_properties(0), "L2_cache_size", 0))
        return stated if stated and not self.torch.version.hip else max(256 * MIB, stated)

    @property
    def limit_bytes(self) -> int:
        """Largest working set to use."""
        free = available_bytes() if self.kind == "cpu" else self.torch.cuda.mem_get_info()[0]
        return min(LARGEST_BYTES, int(free) // MEMORY_SHARE)
