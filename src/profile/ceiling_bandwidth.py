"""Memory bandwidth by working-set size, and the ceiling that follows from the sizes beyond the cache.

Samples of all sizes are taken in rounds, so that a slow minute of a shared host widens the spread
instead of moving one size. The ceiling is the median over the sizes that are well beyond the last-level
cache; ``low`` and ``high`` enclose it at 95 % (:func:`adrbench.profile.spread.median_interval`),
``smallest`` and ``largest`` are the extremes of the samples kept.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from adrbench.profile.ceiling_device import GIB, KIB, MIB, Device, Kernel, Sample, summary

# Sizes beyond the cache make the ceiling: this many samples of them in every round.
SAMPLES_BEYOND_CACHE = 6
# A large working set is walked in slices, so that one sample stays short: a slice comes back only after
# the whole set was walked, so its lines have left the cache by then.
SLICE_BYTES = {"cpu": 32 * MIB, "cuda": GIB}
KINDS = ("read", "copy", "write")


def working_set_sizes(cache_bytes: int, limit_bytes: int) -> list[int]:
    """Sizes in powers of 4 from 16 KiB, and then twice and four times the last-level cache (1 and 2 GiB at least).

    The last two measure memory, the others show the cache levels.
    """
    beyond = [min(limit_bytes, max(factor * GIB // 2, factor * cache_bytes)) for factor in (2, 4)]
    below = []
    size = 16 * KIB
    while size < beyond[0] // 2:
        below.append(size)
        size *= 4
    return sorted({*below, *(size // (64 * KIB) * (64 * KIB) for size in beyond)})


def memory_kernels(device: Device, buffer: Any, size: int) -> tuple[int, dict[str, dict[str, Kernel]]]:
    """Kernels by kind over a working set of ``size`` bytes, and the bytes that one call moves.

    A call works on the next slice of the set, which is the whole set while it is small.

    A read is a reduction, of which the quicker of two is taken: on CPU a BLAS dot product outruns the
    generic sum, on an accelerator it can be the other way round. A copy reads one half and writes the
    other. Writes count what is stored, not the lines a CPU fetches before it overwrites them.
    """
    moved = min(size, SLICE_BYTES[device.kind])
    elements = moved // 8 * 2
    whole = [buffer[i * elements : (i + 1) * elements] for i in range(size // moved)]
    halves = [(part[: elements // 2], part[elements // 2 :]) for part in whole]

    def walk(kernel: Callable[[Any], object], parts: list[Any]) -> Kernel:
        turn = itertools.cycle(parts)
        return lambda: kernel(next(turn))

    return elements * 4, {
        "read": {
            "dot": walk(lambda part: device.torch.dot(part, part), whole),
            "sum": walk(lambda part: part.sum(), whole),
        },
        "copy": {"copy_": walk(lambda pair: pair[1].copy_(pair[0]), halves)},
        "write": {"fill_": walk(lambda part: part.fill_(1.0), whole)},
    }


@dataclass(frozen=True)
class Probe:
    """One kernel over one working set, and its samples."""

    size: int
    kind: str
    name: str
    kernel: Kernel
    moved: int
    repeats: int
    samples: list[Sample] = field(default_factory=list)


def choose(device: Device, kernels: dict[str, Kernel]) -> tuple[str, int]:
    """The quickest of ``kernels``, warmed up, and the calls that make a sample of it."""
    counts = {name: device.repeats(kernel) for name, kernel in kernels.items()}
    if len(kernels) == 1:
        return next(iter(counts.items()))
    best = min(kernels, key=lambda name: min(device.sample(kernels[name], counts[name])[0] for _ in range(3)))
    return best, counts[best]


def measure_bandwidth(device: Device, sizes: list[int], rounds: int) -> list[Probe]:
    """Samples of every kind over every working set."""
    buffer = device.torch.ones(max(sizes) // 4, dtype=device.torch.float32, device=device.kind)
    probes = []
    for size in sizes:
        moved, by_kind = memory_kernels(device, buffer, size)
        for kind, kernels in by_kind.items():
            name, count = choose(device, kernels)
            probes.append(Probe(size, kind, name, kernels[name], moved, count))
    for _ in range(rounds):
        for probe in probes:
            for _ in range(SAMPLES_BEYOND_CACHE if is_beyond(probe.size, device.cache_bytes) else 1):
                probe.samples.append(device.sample(probe.kernel, probe.repeats))
    return probes


def is_beyond(size: int, cache_bytes: int) -> bool:
    """Whether a working set is large enough to measure memory rather than cache."""
    return size >= 2 * cache_bytes and size >= GIB // 2


def by_size(probes: list[Probe]) -> list[dict[str, Any]]:
    """Table of bandwidth: [{"bytes", "read": summary, "read_kernel", "copy": ..., "write": ...}]."""
    rows: dict[int, dict[str, Any]] = {}
    for probe in probes:
        row = rows.setdefault(probe.size, {"bytes": probe.size})
        row[probe.kind] = summary(probe.samples, probe.moved)
        row[f"{probe.kind}_kernel"] = probe.name
    return [rows[size] for size in sorted(rows)]


def ceilings(probes: list[Probe], cache_bytes: int) -> dict[str, dict[str, Any]]:
    """Ceiling of each kind: all samples of the sizes beyond the cache, or of the largest size if none is."""
    largest = max(probe.size for probe in probes)
    result = {}
    for kind in KINDS:
        mine = [probe for probe in probes if probe.kind == kind]
        beyond = [p for p in mine if is_beyond(p.size, cache_bytes)] or [p for p in mine if p.size == largest]
        samples = [(seconds / p.moved, undisturbed) for p in beyond for seconds, undisturbed in p.samples]
        result[kind] = summary(samples, 1.0)
    return result
