"""Launcher of the scaled product."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from adrbench.kernels.dot_scaled.kernel import dot_scaled_kernel

TILE_M, TILE_N, TILE_K = 16, 32, 64


def dot_scaled(a: torch.Tensor, b: torch.Tensor, sa: torch.Tensor, sb: torch.Tensor) -> torch.Tensor:
    """See ``reference.dot_scaled``; int8 operands accumulate in int32, floats in fp32.

    Raises:
        ValueError: shapes that do not fit, or operands of two types.
    """
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1] or a.dtype != b.dtype:
        raise ValueError(f"a {a.dtype} {tuple(a.shape)} and b {b.dtype} {tuple(b.shape)} are not [M, K] and [N, K]")
    if sa.shape != a.shape[:1] or sb.shape != b.shape[:1]:
        raise ValueError(f"scales {tuple(sa.shape)}, {tuple(sb.shape)} are not [M] and [N]")
    m, k, n = a.shape[0], a.shape[1], b.shape[0]
    c = torch.empty((m, n), dtype=torch.float32, device=a.device)
    dot_scaled_kernel[(triton.cdiv(m, TILE_M), triton.cdiv(n, TILE_N))](
        a.contiguous(),
        b.contiguous(),
        sa,
        sb,
        c,
        m,
        n,
        k,
        TILE_M=TILE_M,
        TILE_N=TILE_N,
        TILE_K=TILE_K,
        ACCUMULATOR=tl.int32 if a.dtype == torch.int8 else tl.float32,
    )
    return c
