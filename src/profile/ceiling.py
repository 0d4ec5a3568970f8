"""Measured ceilings of a device: memory bandwidth by working-set size, matrix rates, launch time.

Runs in the serving interpreter, because a utilisation only makes sense against what *that* torch
build reaches with *that* many threads: ``python -m adrbench.profile.ceiling --spec JSON --output FILE``.

Every sample times a loop long enough for the clock and short against a scheduler's time slice, and
drains the device's queue once. Samples of all sizes are taken in rounds, so that a slow minute of a
shared host widens the spread instead of moving one size. A CPU sample during which this process did
not have its core (CPU time below 90 % of wall time) times the scheduler, not the memory: it is counted
as ``preempted`` and left out of the summary.

The bandwidth ceiling is the median over the sizes that are well beyond the last-level cache; ``low``
and ``high`` enclose it at 95 % (:func:`adrbench.profile.spread.median_interval`), ``smallest`` and
``largest`` are the extremes of the samples kept.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from adrbench.evidence import Evidence, now, write
from adrbench.job import JobError, run, say
from adrbench.profile.spread import median_interval

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
SAMPLE_S = {"cpu": 0.008, "cuda": 0.005}
ROUNDS = 7
SMALLEST_BYTES = 4 * KIB
# Sizes beyond the cache make the ceiling: this many samples of them in every round.
SAMPLES_BEYOND_CACHE = 6
# Products and launches are short: this many samples of them for every round.
SAMPLES_PER_ROUND = 3
MATRIX_SIZE = {"cpu": 1024, "cuda": 8192}
# A large working set is walked in slices, so that one sample stays short: a slice comes back only after
# the whole set was walked, so its lines have left the cache by then.
SLICE_BYTES = {"cpu": 32 * MIB, "cuda": GIB}
BUSY = 0.9
FEWEST_SAMPLES = 3
# Largest CPU buffer is at most this share of the memory that is free: the server may share the host.
MEMORY_SHARE = 4
# fp32 elements of one dot product must fit BLAS's 32-bit count.
LARGEST_BYTES = 4 * GIB
KINDS = ("read", "copy", "write")

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
        """Last-level cache; on an accelerator at least 256 MiB, because the driver does not report
        every level (an MI300X states 4 MiB and has 256 MiB behind it)."""
        if self.kind == "cpu":
            return last_level_cache_bytes()
        return max(256 * MIB, int(getattr(self.torch.cuda.get_device_properties(0), "L2_cache_size", 0)))

    @property
    def limit_bytes(self) -> int:
        """Largest working set to use."""
        free = available_bytes() if self.kind == "cpu" else self.torch.cuda.mem_get_info()[0]
        return min(LARGEST_BYTES, int(free) // MEMORY_SHARE)


def device_kind(spec: dict[str, Any]) -> str:
    """torch's name of the device: as ``device`` says, else by ``vendor``; every accelerator here is cuda to torch."""
    return str(spec.get("device") or ("cpu" if spec.get("vendor", "cpu") == "cpu" else "cuda"))


def check_spec(spec: dict[str, Any]) -> None:
    """Refuse a specification that cannot be measured, before torch is imported.

    Raises:
        JobError: ``bad-spec`` naming the key and what is allowed.
    """
    if device_kind(spec) not in SAMPLE_S:
        raise JobError("bad-spec", f"spec: device is {spec['device']!r}, allowed: cpu, cuda (cuda includes ROCm)")
    for key in ("threads", "rounds", "matrix_size"):
        value = spec.get(key, 1)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise JobError("bad-spec", f"spec: {key} is {value!r}, expected a positive integer")
    sizes = spec.get("sizes_bytes", [SMALLEST_BYTES])
    if not isinstance(sizes, list) or any(not isinstance(size, int) or size < SMALLEST_BYTES for size in sizes):
        raise JobError("bad-spec", f"spec: sizes_bytes is {sizes!r}, expected integers of at least {SMALLEST_BYTES}")
    datasheet = spec.get("datasheet_bytes_per_s", 1)
    if not isinstance(datasheet, (int, float)) or isinstance(datasheet, bool) or datasheet <= 0:
        raise JobError("bad-spec", f"spec: datasheet_bytes_per_s is {datasheet!r}, expected a positive number")
    for name, rate in spec.get("datasheet_matrix_per_s", {}).items():
        if not isinstance(rate, (int, float)) or isinstance(rate, bool) or rate <= 0:
            raise JobError("bad-spec", f"spec: datasheet_matrix_per_s.{name} is {rate!r}, expected a positive number")


def open_device(spec: dict[str, Any]) -> Device:
    """The device that the specification names, with as many threads as it asks for.

    Raises:
        JobError: ``no-device`` when torch cannot reach it.
    """
    import torch  # type: ignore[import-not-found, unused-ignore]  # only the serving interpreter has it

    kind = device_kind(spec)
    if kind == "cuda" and not torch.cuda.is_available():
        raise JobError("no-device", f"device cuda: torch {torch.__version__} sees no accelerator in {sys.executable}")
    if "threads" in spec:
        torch.set_num_threads(spec["threads"])
    torch.set_grad_enabled(False)
    return Device(torch, kind)


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


def matrix_kernels(device: Device, n: int) -> dict[str, Callable[[], Kernel]]:
    """By format, a function that builds an n x n x n product; a format the device lacks raises in it."""
    torch = device.torch

    def plain(dtype: Any) -> Callable[[], Kernel]:
        def build() -> Kernel:
            a, b = (torch.ones(n, n, device=device.kind).to(dtype) for _ in range(2))
            return lambda: torch.nn.functional.linear(a, b)

        return build

    def int8() -> Kernel:
        a, b = (torch.ones(n, n, device=device.kind, dtype=torch.int8) for _ in range(2))
        return lambda: torch._int_mm(a, b.t())

    def fp8() -> Kernel:
        fnuz = "gfx94" in getattr(torch.cuda.get_device_properties(0), "gcnArchName", "")
        dtype = torch.float8_e4m3fnuz if fnuz else torch.float8_e4m3fn
        a, b = (torch.ones(n, n, device=device.kind).to(dtype) for _ in range(2))
        one = torch.ones((), device=device.kind)
        return lambda: torch._scaled_mm(a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)

    kernels = {"bfloat16": plain(torch.bfloat16), "float32": plain(torch.float32), "float16": plain(torch.float16)}
    # Software emulation of 8-bit products on a CPU says nothing about a ceiling and takes long.
    return kernels if device.kind == "cpu" else {**kernels, "int8": int8, "float8_e4m3": fp8}


def measure_matrix(device: Device, n: int, samples: int) -> dict[str, dict[str, Any]]:
    """FLOP/s (operations/s for int8) of an n x n x n product by format, or why a format is absent."""
    result: dict[str, dict[str, Any]] = {}
    for name, build in matrix_kernels(device, n).items():
        try:
            kernel = build()
            count = device.repeats(kernel)
            result[name] = summary([device.sample(kernel, count) for _ in range(samples)], 2.0 * n**3)
        except (RuntimeError, NotImplementedError, AttributeError) as error:
            result[name] = {"unsupported": str(error).splitlines()[0][:200]}
    return result


def measure_launch(device: Device, samples: int) -> dict[str, Any]:
    """Seconds per operation on one element in a row of 1000: dispatch on CPU, launch rate on a device."""
    one = device.torch.ones(1, device=device.kind)

    def kernel() -> object:
        return one.add_(1.0)

    device.sample(kernel, 1000)
    return summary([device.sample(kernel, 1000) for _ in range(samples)])


def beside_datasheet(read: dict[str, Any], datasheet: float | None) -> dict[str, float]:
    """The datasheet's bandwidth and the fraction of it that a read reached; empty without one."""
    if datasheet is None:
        return {}
    return {"datasheet_bytes_per_s": float(datasheet), "fraction_of_datasheet": read["median"] / datasheet}


def matrix_beside_datasheet(rates: dict[str, dict[str, Any]], datasheet: dict[str, float]) -> dict[str, dict[str, Any]]:
    """Matrix rates with the datasheet's dense rate and the fraction of it that was reached, where it states one."""
    return {
        name: row
        | {"datasheet_per_s": float(datasheet[name]), "fraction_of_datasheet": row["median"] / datasheet[name]}
        if name in datasheet and "median" in row
        else row
        for name, row in rates.items()
    }


def measure(device: Device, spec: dict[str, Any]) -> dict[str, Any]:
    """Everything that this job measures, in the form of the evidence's ``measured``."""
    cache = device.cache_bytes
    sizes = spec.get("sizes_bytes") or working_set_sizes(cache, device.limit_bytes)
    rounds = spec.get("rounds", ROUNDS)
    more = rounds * SAMPLES_PER_ROUND
    say(f"bandwidth on {device.name}: {len(sizes)} working sets up to {max(sizes) / GIB:.2f} GiB, {rounds} rounds")
    probes = measure_bandwidth(device, sizes, rounds)
    top = ceilings(probes, cache)
    say("matrix rate and launch time")
    return {
        **{f"{kind}_bytes_per_s": value for kind, value in top.items()},
        "by_size": by_size(probes),
        "last_level_cache_bytes": cache,
        "beyond_cache": is_beyond(max(sizes), cache),
        "matmul_flop_per_s": matrix_beside_datasheet(
            measure_matrix(device, spec.get("matrix_size", MATRIX_SIZE[device.kind]), more),
            spec.get("datasheet_matrix_per_s", {}),
        ),
        "launch_s": measure_launch(device, more),
        **beside_datasheet(top["read"], spec.get("datasheet_bytes_per_s")),
    }


def work(spec: dict[str, Any], output: Path) -> None:
    """Measure the ceilings of one platform and write them as evidence."""
    started = now()
    check_spec(spec)
    device = open_device(spec)
    measured = measure(device, spec)
    notes = []
    if not measured["beyond_cache"]:
        notes.append("no working set is beyond the last-level cache: the ceilings are not those of memory")
    evidence = Evidence(
        stage="profile",
        platform=str(spec.get("platform", "unknown")),
        tier="ceiling",
        asked=spec,
        resolved={
            "device": device.name,
            "torch": device.torch.__version__,
            "threads": device.torch.get_num_threads(),
            "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        },
        measured=measured,
        notes=notes,
        started_at=started,
        finished_at=now(),
    )
    write(output, evidence)
    read = measured["read_bytes_per_s"]
    say(f"read ceiling {read['median'] / 1e9:.1f} GB/s [{read['low'] / 1e9:.1f}, {read['high'] / 1e9:.1f}]")


if __name__ == "__main__":
    run("profile", work)
