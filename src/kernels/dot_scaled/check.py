"""The cases of the scaled product. Error: ||out - ref|| / ||ref||."""

from __future__ import annotations

from collections.abc import Callable

import torch
from adrbench.kernels.case import Case
from adrbench.kernels.dot_scaled import launch, reference
from adrbench.kernels.formats.values import VALUES, ValueFormat

SHAPES = ((16, 32, 64), (5, 123, 123))


def _run(values: ValueFormat, shape: tuple[int, int, int]) -> Callable[[str], float]:
    def run(device: str) -> float:
        m, n, k = shape
        x, y = torch.randn(m, k), torch.randn(n, k) * torch.rand(n, 1)
        if values.bits == 8:
            sa, sb = x.abs().amax(1) / values.maximum, y.abs().amax(1) / values.maximum
        else:
            sa, sb = torch.rand(m) + 0.5, torch.rand(n) + 0.5
        a, b = values.encode(x / sa[:, None]), values.encode(y / sb[:, None])
        expected = reference.dot_scaled(a, b, sa, sb)
        out = launch.dot_scaled(a.to(device), b.to(device), sa.to(device), sb.to(device)).cpu()
        return float(((out - expected).norm() / expected.norm()).item())

    return run


def cases() -> list[Case]:
    # Rounding of the fp32 accumulator and scales only; fp8 tensor cores keep fewer bits in the sum.
    tolerances = {"fp16": 2e-6, "bf16": 2e-6, "int8": 3e-7}
    found = []
    for name in ("fp16", "bf16", "int8", "fp8_e4m3fn", "fp8_e4m3fnuz", "fp8_e5m2"):
        needs = (f"{name}:dot",) if VALUES[name].bits == 16 else (f"{name}:load", f"{name}:dot")
        for shape in SHAPES:
            case = f"scaled product, M {shape[0]}, N {shape[1]}, K {shape[2]}"
            run = _run(VALUES[name], shape)
            found.append(Case("dot_scaled", name, case, run, tolerance=tolerances.get(name, 1e-4), needs=needs))
    return found
