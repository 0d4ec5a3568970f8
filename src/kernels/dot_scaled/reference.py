"""Torch reference of the scaled product."""

from __future__ import annotations

import torch


def dot_scaled(a: torch.Tensor, b: torch.Tensor, sa: torch.Tensor, sb: torch.Tensor) -> torch.Tensor:
    """``[M, N]`` fp32 of codes ``a`` ``[M, K]``, ``b`` ``[N, K]`` and their scales ``[M]``, ``[N]``.

    The product is taken in double: exact for 8-bit integers up to K = 2^37, and far more exact than
    an fp32 accumulator for floats.
    """
    product = a.float().double() @ b.float().double().T
    return (product * sa.double()[:, None] * sb.double()[None, :]).float()
