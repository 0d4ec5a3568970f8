# mypy: ignore-errors
# Triton's language is not Python: annotations there are compile-time values.
"""Triton kernel that replaces what leaves a 16-bit window: one launch a layer, for keys and values.

Grid: (request, KV head, plane). A program whose request completes nothing in this step reads three numbers and ends:
the work is what a step completes, not what it could. Loops run over what the lengths say, so a captured graph is
right for any lengths that it is replayed with.

A program reads and writes the same rows, 32 x D at a time. Every number is loaded by the thread that stores it, before
anything that depends on it is stored; no other program touches them.
"""

import triton
import triton.language as tl

ROUND_TO_INTEGER: tl.constexpr = tl.constexpr(12582912.0)
"""1.5 * 2 ** 23: fp32 numbers of that size are whole, so adding and taking it away rounds to one, ties to even."""

LARGEST: tl.constexpr = tl.constexpr(65504.0)
SMALLEST: tl.constexpr = tl.constexpr(2.0**-24)
ROWS: tl.constexpr = tl.constexpr(32)


@triton.jit
def window_end(length, SINK: tl.constexpr, RESIDUAL: tl.constexpr, STEP: tl.constexpr):
    """``Plane.quantised_end``."""
    body = tl.maximum(length - RESIDUAL - SINK, 0)
    return tl.minimum(length, SINK + body // STEP * STEP)


@triton.jit
def read_back(x, AXIS: tl.constexpr, STEPS: tl.constexpr, SPAN_FLOOR: tl.constexpr):
    """``Plane.read_back`` of fp32 groups along ``AXIS``: integers 0 to ``STEPS`` with scale and zero point in fp16.

    A code of at most 8 bits times fp16's 11 is exact in fp32: it does not matter whether the compiler fuses product
    and sum.
    """
    low = tl.min(x, AXIS, keep_dims=True)
    span = tl.max(x, AXIS, keep_dims=True) - low
    # NaN in a group that holds a number that is none, and where the span is none.
    damage = tl.sum(x * 0.0, AXIS, keep_dims=True) + span * 0.0
    scale = tl.div_rn(tl.maximum(span, SPAN_FLOOR), tl.full(span.shape, STEPS, tl.float32))
    scale = tl.minimum(tl.maximum(scale, SMALLEST), LARGEST) + damage
    scale = scale.to(tl.float16).to(tl.float32)
    zero = tl.clamp(low, -LARGEST, LARGEST).to(tl.float16).to(tl.float32)
    inverse = tl.div_rn(tl.full(scale.shape, 1.0, tl.float32), scale)
    code = (tl.clamp((x - zero) * inverse, 0.0, STEPS) + ROUND_TO_INTEGER) - ROUND_TO_INTEGER
    return code * scale + zero


@triton.jit
def as_stored(x, dtype: tl.constexpr):
    """fp32 ``x`` in the cache's dtype, to nearest, ties to even; bf16 as integers, as the interpreter cuts it off."""
    if dtype == tl.bfloat16:
        bits = x.to(tl.int32, bitcast=True)
        near = (bits + 32767 + ((bits >> 16) & 1)) & -65536
        x = tl.where(x == x, near.to(tl.float32, bitcast=True), x)
    return x.to(dtype)


@triton.jit
def replace_plane(
    plane_ptr, table_ptr, old, new, columns, block, head, block_stride, token_stride, head_stride,
    D: tl.constexpr, SINK: tl.constexpr, RESIDUAL: tl.constexpr, STEP: tl.constexpr,
    GROUP: tl.constexpr, BY_CHANNEL: tl.constexpr, STEPS: tl.constexpr, SPAN_FLOOR: tl.constexpr,
):  # fmt: skip
    """Replace the tokens of one request and head that leave the plane's window from length ``old`` to ``new``."""
    # A group of a channel is a tile; groups of a row need no particular tile.
    TILE: tl.constexpr = GROUP if BY_CHANNEL else ROWS
    start = tl.maximum(window_end(old, SINK, RESIDUAL, STEP), SINK)
    end = window_end(new, SINK, RESIDUAL, STEP)
    o_d = tl.arange(0, D)
    for first in range(start, end, TILE):
        t = first + tl.arange(0, TILE)
        m_t = t < end
        page = tl.load(table_ptr + tl.minimum(t // block, columns - 1), mask=m_t, other=0).to(tl.int64)
        row = page * block_stride + t % block * token_stride + head * head_stride
        place = row[:, None] + o_d[None, :]
        x = tl.load(plane_ptr + place, mask=m_t[:, None], other=0.0).to(tl.float32)
        if BY_CHANNEL:
            read = read_back(x, 0, STEPS, SPAN_FLOOR)
        else:
            groups = tl.reshape(x, (TILE, D // GROUP, GROUP))
            read = tl.reshape(read_back(groups, 2, STEPS, SPAN_FLOOR), (TILE, D))
        tl.store(plane_ptr + place, as_stored(read, plane_ptr.dtype.element_ty), mask=m_t[:, None])


@triton.jit(do_not_specialize=["table_stride", "columns", "block"])
def replace_windows_kernel(
    key_ptr,  # a plane [blocks, block, KV heads, D] of the backend's cache, contiguous along D
    value_ptr,
    table_ptr,  # [requests, columns]: blocks of each request
    start_ptr,  # [requests + 1]: first new row of each request
    length_ptr,  # [requests]: tokens with the new ones
    table_stride, columns, block,
    key_block_stride, key_token_stride, key_head_stride,
    value_block_stride, value_token_stride, value_head_stride,
    D: tl.constexpr, SPAN_FLOOR: tl.constexpr,
    K_SINK: tl.constexpr, K_RESIDUAL: tl.constexpr, K_STEP: tl.constexpr, K_GROUP: tl.constexpr,
    K_BY_CHANNEL: tl.constexpr, K_STEPS: tl.constexpr,
    V_SINK: tl.constexpr, V_RESIDUAL: tl.constexpr, V_STEP: tl.constexpr, V_GROUP: tl.constexpr,
    V_BY_CHANNEL: tl.constexpr, V_STEPS: tl.constexpr,
):  # fmt: skip
    request = tl.program_id(0)
    head = tl.program_id(1)
    new = tl.load(length_ptr + request)
    old = new - (tl.load(start_ptr + request + 1) - tl.load(start_ptr + request))
    row_ptr = table_ptr + request.to(tl.int64) * table_stride
    if tl.program_id(2) == 0:
        replace_plane(
            key_ptr, row_ptr, old, new, columns, block, head, key_block_stride, key_token_stride, key_head_stride, D,
            K_SINK, K_RESIDUAL, K_STEP, K_GROUP, K_BY_CHANNEL, K_STEPS, SPAN_FLOOR,
        )  # fmt: skip
    else:
        replace_plane(
            value_ptr, row_ptr, old, new, columns, block, head, value_block_stride, value_token_stride,
            value_head_stride, D, V_SINK, V_RESIDUAL, V_STEP, V_GROUP, V_BY_CHANNEL, V_STEPS, SPAN_FLOOR,
        )  # fmt: skip
