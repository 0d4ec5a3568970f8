# mypy: ignore-errors
# Triton's language is not Python: annotations there are compile-time values.
"""Kernels that combine programs' results atomically. Grid: (row tiles,)."""

import triton
import triton.language as tl


@triton.jit
def scaled_sum_kernel(x_ptr, scale_ptr, out_ptr, rows, D: tl.constexpr, TILE: tl.constexpr):
    """out [D] += sum over this tile's rows of x [rows, D] * scale [rows]."""
    o_r = tl.program_id(0) * TILE + tl.arange(0, TILE)
    o_d = tl.arange(0, D)
    m_r = o_r < rows
    x = tl.load(x_ptr + o_r[:, None] * D + o_d[None, :], mask=m_r[:, None], other=0)
    scale = tl.load(scale_ptr + o_r, mask=m_r, other=0)
    part = tl.sum(x.to(scale.dtype) * scale[:, None], 0)
    tl.atomic_add(out_ptr + o_d, part.to(out_ptr.dtype.element_ty))


@triton.jit
def absolute_maximum_kernel(x_ptr, out_ptr, rows, heads, D: tl.constexpr, TILE: tl.constexpr):
    """out [heads] = max(out, |x| over this tile's rows) of x [rows, heads, D]; grid (row tiles, heads).

    A second kernel turns the maxima into scales: inside this one no program knows when all others
    have contributed.
    """
    head = tl.program_id(1)
    o_r = tl.program_id(0) * TILE + tl.arange(0, TILE)
    o_d = tl.arange(0, D)
    p_x = (o_r[:, None] * heads + head) * D + o_d[None, :]
    x = tl.load(x_ptr + p_x, mask=(o_r < rows)[:, None], other=0.0).to(tl.float32)
    tl.atomic_max(out_ptr + head, tl.max(tl.max(tl.abs(x), 1), 0))


@triton.jit
def integer_maximum_kernel(x_ptr, out_ptr, rows, D: tl.constexpr, TILE: tl.constexpr):
    """out [D] = max(out, |x| over this tile's rows) of int32 x [rows, D]."""
    o_r = tl.program_id(0) * TILE + tl.arange(0, TILE)
    o_d = tl.arange(0, D)
    x = tl.load(x_ptr + o_r[:, None] * D + o_d[None, :], mask=(o_r < rows)[:, None], other=0)
    tl.atomic_max(out_ptr + o_d, tl.max(tl.abs(x), 0))
