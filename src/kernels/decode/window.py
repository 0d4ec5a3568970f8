# mypy: ignore-errors
# Triton's language is not Python: annotations there are compile-time values.
"""Decode attention over the newest tokens of a windowed scheme, which lie in 16 bit. Grid: (sequence, KV head, part).

A part is 32 tokens, so that the few programs of a batch each wait for memory once. The parts, WINDOW / 32 + 1, begin
with the last whole group of 32 before the window. Keys are in codes up to the last multiple of 128, values outside
of the newest 128; the rest is in the ring, at its token's number modulo 128.
"""

import triton
import triton.language as tl
from adrbench.kernels.store.window_kernel import ring_block


@triton.jit
def scale_of(scale_ptr, position, half_row: tl.constexpr):
    """fp16 scales of low (``half_row`` 0) or high nibbles at ``position``; ``formats.layout.pair_order``."""
    p = position // 4 * 8 + half_row * 4 + position % 2 * 2 + position % 4 // 2
    word = tl.load(scale_ptr + p // 2)
    return (word >> (p % 2 * 16)).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)


@triton.jit
def keys_of(
    k_ptr, ks_ptr, ring_ptr, p_code, p_scale, p_ring, m_code, m_ring, half: tl.constexpr, ROW: tl.constexpr,
    DTYPE: tl.constexpr,
):  # fmt: skip
    """Keys [32, ROW] of one half of the dimensions, from codes where ``m_code`` [32], else from the ring."""
    o_d = tl.arange(0, ROW)
    offset = p_code + (tl.arange(0, 32) * ROW)[:, None] + o_d[None, :]
    offset = tl.multiple_of(tl.max_contiguous(offset, (1, 16)), (1, 16))
    code = tl.load(k_ptr + offset, mask=m_code[:, None], other=0).to(tl.int32)
    code = ((code >> (4 * half)) & 15) ^ 8
    scale = scale_of(ks_ptr + p_scale, o_d, half)
    zero = scale_of(ks_ptr + p_scale + ROW, o_d, half)
    x = (code.to(tl.float32) * scale[None, :] + zero[None, :]).to(DTYPE)
    ring = tl.load(ring_ptr + p_ring[:, None] + (half * ROW + o_d)[None, :], mask=m_ring[:, None], other=0.0)
    return tl.where(m_code[:, None], x, ring)


@triton.jit
def values_of(
    v_ptr, vs_ptr, ring_ptr, p_code, p_scale, p_ring, token, m_code, m_ring, half: tl.constexpr, ROW: tl.constexpr,
    PAGE: tl.constexpr, DTYPE: tl.constexpr,
):  # fmt: skip
    """Values [ROW, 32] of one half of the dimensions. ``p_code``: first byte of the block, ``token``: place in page."""
    o_d = tl.arange(0, ROW)
    o_t = tl.arange(0, 32)
    offset = tl.multiple_of(tl.max_contiguous(p_code + o_d[:, None] * 32 + o_t[None, :], (1, 16)), (1, 16))
    code = tl.load(v_ptr + offset, mask=m_code[None, :], other=0).to(tl.int32)
    code = ((code >> (4 * half)) & 15) ^ 8
    p = token // 4 * 8 + half * 4 + token % 2 * 2 + token % 4 // 2
    p_word = vs_ptr + p_scale + (o_d // 32 * (2 * PAGE))[:, None] + (p // 2)[None, :]
    shift = (p % 2 * 16)[None, :]
    scale = (tl.load(p_word, mask=m_code[None, :], other=0) >> shift).to(tl.int16).to(tl.float16, bitcast=True)
    zero = (tl.load(p_word + PAGE, mask=m_code[None, :], other=0) >> shift).to(tl.int16).to(tl.float16, bitcast=True)
    x = (code.to(tl.float32) * scale.to(tl.float32) + zero.to(tl.float32)).to(DTYPE)
    ring = tl.load(ring_ptr + p_ring[None, :] + (half * ROW + o_d)[:, None], mask=m_ring[None, :], other=0.0)
    return tl.where(m_code[None, :], x, ring)


@triton.jit(do_not_specialize=["table_ptr", "length_ptr", "row_ptr", "splits", "table_stride", "row_stride"])
def decode_window_kernel(
    q_ptr, k_ptr, v_ptr, ks_ptr, vs_ptr, table_ptr, length_ptr,
    rk_ptr,  # 16 bit: newest tokens, see ``formats.layout.Newest``
    rv_ptr,
    row_ptr,  # [sequences, pages of the ring] int32
    o_ptr, lse_ptr, softmax_scale, q_stride, table_stride, page_stride, scale_stride, splits, row_stride, ring_stride,
    KV_HEADS: tl.constexpr, GROUP: tl.constexpr, GP: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr,
    WINDOW: tl.constexpr, STEP: tl.constexpr,  # keys leave the window STEP at a time
    PARTS: tl.constexpr,
    UNITS: tl.constexpr, FIRST_VALUE: tl.constexpr,
):  # fmt: skip
    """Writes the parts of a row after its ``splits``; other arguments as ``kernel.decode_partial_kernel``."""
    sequence, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    length = tl.load(length_ptr + sequence)
    DTYPE: tl.constexpr = rk_ptr.dtype.element_ty
    ROW: tl.constexpr = D // 2
    o_g = tl.arange(0, GP)
    o_d = tl.arange(0, ROW)
    o_t = tl.arange(0, 32)
    m_g = o_g < GROUP
    row = sequence * (KV_HEADS * GROUP) + head * GROUP + o_g
    p_q = q_ptr + sequence * q_stride + (head * GROUP + o_g)[None, :] * D + o_d[:, None]
    q0 = tl.load(p_q, mask=m_g[None, :], other=0.0).to(DTYPE)
    q1 = tl.load(p_q + ROW, mask=m_g[None, :], other=0.0).to(DTYPE)
    keys_end = length // STEP * STEP
    values_end = tl.maximum(length - WINDOW, 0)

    first = (values_end // 32 + tl.program_id(2)) * 32
    t = first + o_t
    m_t = t < length
    page = tl.load(table_ptr + sequence * table_stride + first // PAGE, mask=first < length, other=0).to(tl.int64)
    place = first % PAGE
    codes = page * page_stride + head * (PAGE * ROW) + place * ROW
    p_ring = ring_block(row_ptr, sequence, head, first, row_stride, ring_stride, 0, UNITS, WINDOW, D) + o_t * D
    p_scale = page * scale_stride + (head * (PAGE // 32) + place // 32) * D
    m_code = m_t & (t < keys_end)
    m_ring = m_t & (t >= keys_end)
    k0 = keys_of(k_ptr, ks_ptr, rk_ptr, codes, p_scale, p_ring, m_code, m_ring, 0, ROW, DTYPE)
    k1 = keys_of(k_ptr, ks_ptr, rk_ptr, codes, p_scale, p_ring, m_code, m_ring, 1, ROW, DTYPE)
    p_scale = page * scale_stride + head * (PAGE * (D // 32))
    m_code = m_t & (t < values_end)
    m_ring = m_t & (t >= values_end)
    p_ring = (
        ring_block(row_ptr, sequence, head, first, row_stride, ring_stride, FIRST_VALUE, UNITS, WINDOW, D) + o_t * D
    )
    v0 = values_of(v_ptr, vs_ptr, rv_ptr, codes, p_scale, p_ring, place + o_t, m_code, m_ring, 0, ROW, PAGE, DTYPE)
    v1 = values_of(v_ptr, vs_ptr, rv_ptr, codes, p_scale, p_ring, place + o_t, m_code, m_ring, 1, ROW, PAGE, DTYPE)
    s = tl.dot(k1, q1, tl.dot(k0, q0)) * (softmax_scale * 1.4426950408889634)
    s = tl.where(m_t[:, None], s, float("-inf"))
    m = tl.maximum(tl.max(s, 0), -1e30)  # no token: every p is 0
    p = tl.exp2(s - m[None, :])
    total = tl.sum(p, 0)
    norm = (1.0 / tl.where(total > 0, total, 1.0))[None, :]
    part = row * (splits + PARTS) + splits + tl.program_id(2)
    p_o = o_ptr + (part * D)[None, :] + o_d[:, None]
    tl.store(p_o, tl.dot(v0, p.to(DTYPE)) * norm, mask=m_g[None, :])
    tl.store(p_o + ROW, tl.dot(v1, p.to(DTYPE)) * norm, mask=m_g[None, :])
    lse = tl.where(total > 0, m + tl.log2(tl.where(total > 0, total, 1.0)), float("-inf"))
    tl.store(lse_ptr + part, lse, mask=m_g)
