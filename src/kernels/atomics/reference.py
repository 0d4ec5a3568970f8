"""Torch references of the atomic kernels."""

from __future__ import annotations

import torch


def scaled_sum(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """``[D]`` fp32: sum over rows of ``x`` ``[rows, D]`` times ``scale`` ``[rows]``."""
    return (x.double() * scale.double()[:, None]).sum(0).float()


def head_scale(x: torch.Tensor, maximum: float) -> torch.Tensor:
    """``[heads]``: static per-head scale of ``x`` ``[rows, heads, D]``."""
    return x.float().abs().amax((0, 2)) / maximum


def integer_maximum(x: torch.Tensor) -> torch.Tensor:
    """``[D]``: largest magnitude per column of int32 ``x`` ``[rows, D]``."""
    return x.abs().amax(0)
