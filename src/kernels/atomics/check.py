"""The cases of the atomics. Inputs are small integers with power-of-two scales, so that sums are
exact in every format and in any order: the tolerance is zero."""

from __future__ import annotations

from collections.abc import Callable

import torch
from adrbench.kernels.atomics import launch, reference
from adrbench.kernels.case import Case


def _largest(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a.cpu().double() - b.double()).abs().max().item())


def _scaled_sum(dtype: torch.dtype) -> Callable[[str], float]:
    def run(device: str) -> float:
        x = torch.randint(-3, 4, (45, 64))
        powers = torch.randint(0, 2, (45,))
        x, scale = (x.to(dtype), torch.exp2(powers.float()).to(dtype))
        return _largest(launch.scaled_sum(x.to(device), scale.to(device), dtype), reference.scaled_sum(x, scale))

    return run


def _head_scale(maximum: float) -> Callable[[str], float]:
    def run(device: str) -> float:
        x = torch.randn(45, 3, 64)
        x[44, 2, 63] = -9.0
        expected = reference.head_scale(x, maximum)
        return _largest(launch.head_scale(x.to(device), maximum), expected) / float(expected.max().item())

    return run


def _integer_maximum(device: str) -> float:
    x = torch.randint(-1000, 1000, (45, 64), dtype=torch.int32)
    return _largest(launch.integer_maximum(x.to(device)), reference.integer_maximum(x))


def cases() -> list[Case]:
    sums = (("fp32", torch.float32), ("fp16", torch.float16), ("bf16", torch.bfloat16), ("int32", torch.int32))
    found = [
        Case("atomics", name, "scaled sum by atomic_add", _scaled_sum(dtype), needs=(f"{name}:atomic add",))
        for name, dtype in sums
    ]
    for name, maximum in (("int8", 127.0), ("fp8_e4m3fn", 448.0)):
        case = f"per-head scale of {name} by atomic_max"
        # The maximum is exact; a device divides by the format's maximum to within a unit in the last place.
        found.append(Case("atomics", "fp32", case, _head_scale(maximum), 1.2e-7, ("fp32:atomic max",)))
    needs = ("int32:atomic max",)
    found.append(Case("atomics", "int32", "column maximum by atomic_max", _integer_maximum, needs=needs))
    return found
