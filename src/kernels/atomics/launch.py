"""Launchers of the atomic kernels."""

from __future__ import annotations

import torch
import triton
from adrbench.kernels.atomics.kernel import absolute_maximum_kernel, integer_maximum_kernel, scaled_sum_kernel

TILE_ROWS = 8


def scaled_sum(x: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Sum over rows of ``x * scale`` into ``[D]`` of ``dtype``, one atomic_add per tile and column."""
    if x.ndim != 2 or scale.shape != x.shape[:1]:
        raise ValueError(f"x {tuple(x.shape)} and scale {tuple(scale.shape)} are not [rows, D] and [rows]")
    out = torch.zeros(x.shape[1], dtype=dtype, device=x.device)
    grid = (triton.cdiv(x.shape[0], TILE_ROWS),)
    scaled_sum_kernel[grid](x, scale, out, x.shape[0], D=x.shape[1], TILE=TILE_ROWS)
    return out


def head_scale(x: torch.Tensor, maximum: float) -> torch.Tensor:
    """Static per-head scales ``[heads]`` of ``x`` ``[rows, heads, D]`` for a format's ``maximum``."""
    if x.ndim != 3 or not x.is_contiguous():
        raise ValueError(f"x must be contiguous [rows, heads, D], got {tuple(x.shape)}")
    rows, heads, dim = x.shape
    out = torch.zeros(heads, dtype=torch.float32, device=x.device)
    absolute_maximum_kernel[(triton.cdiv(rows, TILE_ROWS), heads)](x, out, rows, heads, D=dim, TILE=TILE_ROWS)
    return out / maximum


def integer_maximum(x: torch.Tensor) -> torch.Tensor:
    """Largest magnitude per column of int32 ``x`` ``[rows, D]``."""
    out = torch.zeros(x.shape[1], dtype=torch.int32, device=x.device)
    integer_maximum_kernel[(triton.cdiv(x.shape[0], TILE_ROWS),)](x, out, x.shape[0], D=x.shape[1], TILE=TILE_ROWS)
    return out
