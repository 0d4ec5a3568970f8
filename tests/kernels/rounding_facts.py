"""Run in the serving interpreter: 16-bit rounding against torch's casts, and no 16-bit tensor in a reader. JSON.

``differing``: by format, values that ``rounded`` and a cast read differently. ``sixteen_bit``: by plane, operations of
``read_back`` on fp32 rows whose result is a 16-bit float: what a compiler may leave out.
"""

from __future__ import annotations

import json
from typing import Any

import torch
from adrbench.kernels.formats import schemes
from adrbench.kernels.formats.rounding import rounded
from torch.utils._python_dispatch import TorchDispatchMode

HALVES = {torch.bfloat16: "bfloat16", torch.float16: "float16"}


def values(dtype: torch.dtype) -> torch.Tensor:
    """Every value of a 16-bit format, what lies half-way between neighbours, and the fp32 values beside both."""
    codes = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(dtype).float()
    exact = codes[codes.isfinite()].sort().values
    middle = ((exact[1:].double() + exact[:-1].double()) / 2).float()
    found = torch.cat((exact, middle))
    every = torch.cat((found, found.nextafter(torch.tensor(torch.inf)), found.nextafter(torch.tensor(-torch.inf))))
    special = torch.tensor([torch.nan, torch.inf, -torch.inf, 3.4e38, 1e-42, 0.0])
    every = torch.cat((every, special, torch.randn(100_000)))
    return every.clamp(-65504.0, 65504.0) if dtype == torch.float16 else every


def differing(dtype: torch.dtype) -> int:
    x = values(dtype)
    ours, cast = rounded(x, HALVES[dtype]), x.to(dtype).float()
    return int(((ours != cast) & ~(ours.isnan() & cast.isnan())).sum())


class Outputs(TorchDispatchMode):
    """Collects operations whose result is a 16-bit float."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and result.dtype in HALVES:
            self.found.append(str(func))
        return result


def sixteen_bit(plane: Any) -> list[str]:
    torch.manual_seed(0)
    static, rows = plane.static(plane.calibrate(torch.randn(600, 2, 64))), torch.randn(128, 2, 64)
    with Outputs() as seen:
        plane.read_back(rows, static)
    return seen.found


if __name__ == "__main__":
    torch.set_num_threads(1)
    planes = {f"{name}.{which}": getattr(one, which) for name, one in schemes().items() for which in ("key", "value")}
    casts = {name: sixteen_bit(plane) for name, plane in planes.items()}
    print(json.dumps({"differing": {HALVES[d]: differing(d) for d in HALVES}, "sixteen_bit": casts}))
