"""Inputs whose right answers are known without arithmetic of our own, and the torch answers."""

from __future__ import annotations

import torch
from adrbench.kernels.formats.values import ValueFormat


def cast_probe(values: ValueFormat) -> torch.Tensor:
    """fp32 inputs that tell roundings apart: every value of the format, midpoints between neighbours
    (ties), and points just off the ties. 16-bit formats: a random sample with random low bits.

    Saturation is not asked of a cast: kernels clamp first.
    """
    if values.bits > 8:
        x = torch.randn(509) * torch.exp2(torch.randint(-12, 12, (509,)).float())
        return torch.cat((x, x.to(values.torch_dtype).float()))
    grid = torch.tensor(sorted(set(values.finite_values().values())))
    middle = (grid[1:] + grid[:-1]) / 2
    return torch.cat((grid, middle, middle * (1 + 2**-12), middle * (1 - 2**-12)))


def codes_of(values: ValueFormat) -> tuple[torch.Tensor, torch.Tensor]:
    """(every finite code as the format's dtype, its value by the format's definition as fp32)."""
    table = values.finite_values()
    codes = torch.tensor(list(table), dtype=torch.uint8).view(values.torch_dtype)
    return codes, torch.tensor(list(table.values()))


def small_integers(shape: tuple[int, ...], values: ValueFormat) -> torch.Tensor:
    """Random integers in -3..3: exact in every format, and so are their sums of products."""
    return torch.randint(-3, 4, shape).float().to(values.torch_dtype)
