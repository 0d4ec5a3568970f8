"""Measured ceilings of a device: memory bandwidth by working-set size, matrix rates, launch time.

Runs in the serving interpreter, because a utilisation only makes sense against what *that* torch
build reaches with *that* many threads: ``python -m adrbench.profile.ceiling --spec JSON --output FILE``.

How a sample is timed is in ``ceiling_device.py``, how the bandwidth is found in ``ceiling_bandwidth.py``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from adrbench.evidence import Evidence, now, write
from adrbench.job import JobError, run, say
from adrbench.profile.ceiling_bandwidth import by_size, ceilings, is_beyond, measure_bandwidth, working_set_sizes
from adrbench.profile.ceiling_device import GIB, KIB, SAMPLE_S, Device, Kernel, summary

ROUNDS = 7
SMALLEST_BYTES = 4 * KIB
# Products and launches are short: this many samples of them for every round.
SAMPLES_PER_ROUND = 3
MATRIX_SIZE = {"cpu": 1024, "cuda": 8192}


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


def matrix_kernels(device: Device, n: int, products: str = "") -> dict[str, Callable[[], Kernel]]:
    """By format, a function that builds an n x n x n product; a format the device lacks raises in it.

    Args:
        products: how the platform's servers are told to multiply on a CPU (``serve.cpu_products``).
    """
    from adrbench.serve import cpu_products  # needs torch, too

    torch = device.torch

    def plain(dtype: Any) -> Callable[[], Kernel]:
        def build() -> Kernel:
            a, b = (torch.ones(n, n, device=device.kind).to(dtype) for _ in range(2))
            if device.kind == "cpu" and cpu_products.lacks(dtype, products):  # as servers multiply there
                return lambda: cpu_products.product(a, b, None)
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


def measure_matrix(device: Device, n: int, samples: int, products: str = "") -> dict[str, dict[str, Any]]:
    """FLOP/s (operations/s for int8) of an n x n x n product by format, or why a format is absent."""
    result: dict[str, dict[str, Any]] = {}
    for name, build in matrix_kernels(device, n, products).items():
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
            measure_matrix(
                device, spec.get("matrix_size", MATRIX_SIZE[device.kind]), more, spec.get("cpu_products", "")
            ),
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
