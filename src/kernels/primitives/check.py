"""The primitive cases. Error: how many results differ; nothing is tolerated."""

from __future__ import annotations

from collections.abc import Callable

import torch
from adrbench.kernels.case import Case
from adrbench.kernels.formats.values import VALUES, ValueFormat
from adrbench.kernels.primitives import launch, reference


def _differ(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a.float() != b.float()).sum().item())


def _cast(values: ValueFormat) -> Callable[[str], float]:
    def run(device: str) -> float:
        x = reference.cast_probe(values)
        return _differ(launch.copy(x, values.torch_dtype, device), x.to(values.torch_dtype))

    return run


def _load(values: ValueFormat) -> Callable[[str], float]:
    def run(device: str) -> float:
        codes, expected = reference.codes_of(values)
        return _differ(launch.copy(codes, torch.float32, device), expected)

    return run


def _dot(values: ValueFormat) -> Callable[[str], float]:
    def run(device: str) -> float:
        a = reference.small_integers((16, 64), values)
        b = reference.small_integers((64, 32), values)
        out = torch.float32 if values.is_float else torch.int32
        return _differ(launch.dot(a, b, out, device), a.float() @ b.float())

    return run


def _atomic(kind: str, dtype: torch.dtype) -> Callable[[str], float]:
    def run(device: str) -> float:
        x = torch.randint(-4, 9, (61,)).to(dtype)
        x[17] = 9
        expected = 5.0 + float(x.float().sum().item()) if kind == "add" else 9.0
        return abs(launch.atomic(kind, x, 5.0, device) - expected)

    return run


def cases() -> list[Case]:
    found = []
    eight_bit_floats = [v for v in VALUES.values() if v.bits == 8 and v.is_float]
    for values in [VALUES["fp16"], VALUES["bf16"], *eight_bit_floats]:
        found.append(Case("primitive", values.name, "cast from fp32", _cast(values)))
    for values in [*eight_bit_floats, VALUES["int8"]]:
        found.append(Case("primitive", values.name, "load", _load(values)))
    for values in [VALUES["fp16"], VALUES["bf16"], *eight_bit_floats, VALUES["int8"]]:
        found.append(Case("primitive", values.name, "dot", _dot(values)))
    for kind, dtype, name in (
        ("add", torch.float32, "fp32"),
        ("add", torch.float16, "fp16"),
        ("add", torch.bfloat16, "bf16"),
        ("add", torch.int32, "int32"),
        ("max", torch.float32, "fp32"),
        ("max", torch.int32, "int32"),
    ):
        found.append(Case("primitive", name, f"atomic {kind}", _atomic(kind, dtype)))
    return found
