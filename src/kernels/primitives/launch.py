"""Launch one primitive on a device and bring the result back."""

from __future__ import annotations

import torch
import triton
from adrbench.kernels.primitives.kernel import atomic_add_kernel, atomic_max_kernel, copy_kernel, dot_kernel


def copy(x: torch.Tensor, dtype: torch.dtype, device: str) -> torch.Tensor:
    """``x`` ``[count]`` cast by a kernel to ``dtype``."""
    source = x.to(device)
    target = torch.empty(x.shape, dtype=dtype, device=device)
    copy_kernel[(1,)](source, target, x.numel(), SIZE=triton.next_power_of_2(x.numel()))
    return target.cpu()


def dot(a: torch.Tensor, b: torch.Tensor, out: torch.dtype, device: str) -> torch.Tensor:
    """``a`` ``[m, k]`` @ ``b`` ``[k, n]``; all three a power of two, at least 16 (k: 32)."""
    c = torch.empty((a.shape[0], b.shape[1]), dtype=out, device=device)
    dot_kernel[(1,)](a.to(device), b.to(device), c, M=a.shape[0], N=b.shape[1], K=a.shape[1])
    return c.cpu()


def atomic(kind: str, x: torch.Tensor, start: float, device: str) -> float:
    """Result of atomically combining all of ``x`` into one cell that holds ``start``. ``kind``: add, max."""
    cell = torch.full((1,), start, dtype=x.dtype, device=device)
    kernel = {"add": atomic_add_kernel, "max": atomic_max_kernel}[kind]
    kernel[(1,)](x.to(device), cell, x.numel(), SIZE=triton.next_power_of_2(x.numel()))
    return float(cell.float().item())
