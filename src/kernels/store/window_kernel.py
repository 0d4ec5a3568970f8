# mypy: ignore-errors
# Triton's language is not Python: annotations there are compile-time values.
"""Triton kernels that store new tokens of windowed schemes (KIVI): codes of what leaves the window, then the window.

Grid of both: (sequence, KV head, block of 32 tokens). Two launches, because a program that writes a row of the ring
would overwrite what another still has to encode.
"""

import triton
import triton.language as tl
from adrbench.kernels.store.kernel import ROUND_TO_INTEGER, pack

LARGEST: tl.constexpr = tl.constexpr(65504.0)


@triton.jit
def pair_place(position, high: tl.constexpr):
    """``formats.layout.pair_order``."""
    return position // 4 * 8 + high * 4 + position % 2 * 2 + position % 4 // 2


@triton.jit
def ring_block(
    row_ptr, sequence, head, first, row_stride, ring_stride, FIRST_UNIT: tl.constexpr, UNITS: tl.constexpr,
    WINDOW: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """Where the 16-bit rows [32, D] of tokens ``first`` (a multiple of 32) and on lie; ``formats.layout.Newest``."""
    unit = FIRST_UNIT + head * (WINDOW // 32) + first % WINDOW // 32
    page = tl.load(row_ptr + sequence * row_stride + unit // UNITS).to(tl.int64)
    return page * ring_stride + unit % UNITS * (32 * D)


@triton.jit
def new_tokens(start_ptr, length_ptr, slot_ptr, sequence, SLOTS: tl.constexpr):
    """(first row, tokens before, tokens with the new ones) of a sequence; none are new where its slot is -1 (SLOTS)."""
    first_row = tl.load(start_ptr + sequence)
    length = tl.load(length_ptr + sequence)
    new = tl.load(start_ptr + sequence + 1) - first_row
    start = length - new
    if SLOTS:
        slot = tl.load(slot_ptr + first_row, mask=new > 0, other=-1)
        length = tl.where(slot < 0, start, length)
    return first_row, start, length


@triton.jit
def old_or_new(ring_ptr, x_ptr, p_ring, p_new, m_old, m_new, first: tl.constexpr, ROW: tl.constexpr):
    """fp32 [32, ROW] of dimensions ``first`` and on: from the ring where ``m_old``, from the batch where ``m_new``."""
    o_d = first + tl.arange(0, ROW)
    old = tl.load(ring_ptr + p_ring[:, None] + o_d[None, :], mask=m_old[:, None], other=0.0)
    new = tl.load(x_ptr + p_new[:, None] + o_d[None, :], mask=m_new[:, None], other=0.0)
    return tl.where(m_old[:, None], old.to(tl.float32), new.to(tl.float32))


@triton.jit
def scale_and_zero(low, high, damage, SPAN_FLOOR: tl.constexpr):
    """fp16 (scale, zero) of groups from their smallest and largest numbers; ``damage`` is 0, or NaN in a group that
    holds a number that is none."""
    span = tl.maximum(high - low, SPAN_FLOOR)
    scale = tl.maximum(tl.div_rn(span, tl.full(span.shape, 15.0, tl.float32)), 1.0 / 16777216)
    scale = (tl.minimum(scale, LARGEST) + damage).to(tl.float16)
    return scale, tl.clamp(low, -LARGEST, LARGEST).to(tl.float16)


@triton.jit
def codes_of(x, scale, zero):
    """Codes -8..7 of ``x`` with ``scale`` and ``zero`` broadcast against it."""
    scale = scale.to(tl.float32)
    inverse = tl.div_rn(tl.full(scale.shape, 1.0, tl.float32), scale)
    code = tl.clamp((x - zero.to(tl.float32)) * inverse, 0.0, 15.0) + ROUND_TO_INTEGER
    return (code.to(tl.int32, bitcast=True) - 8).to(tl.int8)


@triton.jit
def keys_encoded(x, scale_ptr, p_scale, half: tl.constexpr, ROW: tl.constexpr, SPAN_FLOOR: tl.constexpr):
    """Codes of keys [32, ROW], one group a column; their scales are stored at ``p_scale``."""
    scale, zero = scale_and_zero(tl.min(x, 0), tl.max(x, 0), tl.sum(x * 0.0, 0), SPAN_FLOOR)
    place = p_scale + pair_place(tl.arange(0, ROW), half)
    tl.store(scale_ptr + place, scale)
    tl.store(scale_ptr + place + 2 * ROW, zero)
    return codes_of(x, scale[None, :], zero[None, :])


@triton.jit
def values_encoded(
    x, scale_ptr, p_scale, m_t, half: tl.constexpr, ROW: tl.constexpr, PAGE: tl.constexpr, SPAN_FLOOR: tl.constexpr
):
    """Codes of values [32, ROW], one group for 32 of a row; ``p_scale`` [32]: place of the first group's scales."""
    H: tl.constexpr = ROW // 32
    x = tl.reshape(x, (32, H, 32))
    scale, zero = scale_and_zero(tl.min(x, 2), tl.max(x, 2), tl.sum(x * 0.0, 2), SPAN_FLOOR)
    place = p_scale[:, None] + 4 * half + (tl.arange(0, H) * (4 * PAGE))[None, :]
    tl.store(scale_ptr + place, scale, mask=m_t[:, None])
    tl.store(scale_ptr + place + 2 * PAGE, zero, mask=m_t[:, None])
    return tl.reshape(codes_of(x, scale[:, :, None], zero[:, :, None]), (32, ROW))


@triton.jit(
    do_not_specialize=[
        "row_ptr", "table_ptr", "start_ptr", "length_ptr", "slot_ptr", "table_stride", "key_blocks", "row_stride"
    ]
)  # fmt: skip
def store_left_kernel(
    key_ptr,  # [tokens, KV heads, D] new rows, those of a sequence in order
    value_ptr,
    rk_ptr,  # newest tokens before them, see ``formats.layout.Newest``
    rv_ptr,
    row_ptr,  # [sequences, pages of the ring] int32
    table_ptr,  # [sequences, pages] int32
    start_ptr,  # [sequences + 1] int32: first new row of each sequence
    length_ptr,  # [sequences] int32: tokens with the new ones
    slot_ptr,  # SLOTS: [tokens] int64, -1 for rows that are none
    k_ptr, v_ptr,
    ks_ptr,  # fp16 numbers in the order of ``pair_place``
    vs_ptr,
    key_stride, value_stride, table_stride,
    page_stride,
    scale_stride,  # fp16 numbers from one page to the next
    key_blocks,  # of the third axis of the grid; the others are values
    row_stride, ring_stride,
    D: tl.constexpr, PAGE: tl.constexpr, WINDOW: tl.constexpr, STEP: tl.constexpr, SPAN_FLOOR: tl.constexpr,
    UNITS: tl.constexpr, FIRST_VALUE: tl.constexpr, SLOTS: tl.constexpr,
):  # fmt: skip
    """Encode keys of the STEPs that the new tokens complete, and values that they push out of the window."""
    sequence, head, block = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    first_row, start, length = new_tokens(start_ptr, length_ptr, slot_ptr, sequence, SLOTS)
    ROW: tl.constexpr = D // 2
    o_t = tl.arange(0, 32)
    o_d = tl.arange(0, ROW)
    if block < key_blocks:
        first = start // STEP * STEP + block * 32
        if first < length // STEP * STEP:
            t = first + o_t
            p_new = (first_row + t - start).to(tl.int64) * key_stride + head * D
            p_ring = ring_block(row_ptr, sequence, head, first, row_stride, ring_stride, 0, UNITS, WINDOW, D) + o_t * D
            m_old = t < start
            page = tl.load(table_ptr + sequence * table_stride + first // PAGE).to(tl.int64)
            p_scale = page * scale_stride + (head * (PAGE // 32) + first % PAGE // 32) * (2 * D)
            x = old_or_new(rk_ptr, key_ptr, p_ring, p_new, m_old, t >= start, 0, ROW)
            low = keys_encoded(x, ks_ptr, p_scale, 0, ROW, SPAN_FLOOR)
            x = old_or_new(rk_ptr, key_ptr, p_ring, p_new, m_old, t >= start, ROW, ROW)
            code = pack(low, keys_encoded(x, ks_ptr, p_scale, 1, ROW, SPAN_FLOOR))
            p_code = page * page_stride + (head * PAGE + first % PAGE + o_t) * ROW
            tl.store(k_ptr + p_code[:, None] + o_d[None, :], code)
    else:
        oldest = tl.maximum(start - WINDOW, 0)
        end = tl.maximum(length - WINDOW, 0)
        first = (oldest // 32 + block - key_blocks) * 32
        if first < end:
            t = first + o_t
            m_t = (t >= oldest) & (t < end)
            p_new = (first_row + t - start).to(tl.int64) * value_stride + head * D
            p_ring = ring_block(
                row_ptr, sequence, head, first, row_stride, ring_stride, FIRST_VALUE, UNITS, WINDOW, D
            ) + o_t * D  # fmt: skip
            page = tl.load(table_ptr + sequence * table_stride + first // PAGE).to(tl.int64)
            p_scale = page * scale_stride + head * (D // 32 * 2 * PAGE) + pair_place(first % PAGE + o_t, 0)
            m_old = m_t & (t < start)
            m_new = m_t & (t >= start)
            x = old_or_new(rv_ptr, value_ptr, p_ring, p_new, m_old, m_new, 0, ROW)
            low = values_encoded(x, vs_ptr, p_scale, m_t, 0, ROW, PAGE, SPAN_FLOOR)
            x = old_or_new(rv_ptr, value_ptr, p_ring, p_new, m_old, m_new, ROW, ROW)
            code = tl.trans(pack(low, values_encoded(x, vs_ptr, p_scale, m_t, 1, ROW, PAGE, SPAN_FLOOR)))
            p_code = page * page_stride + (head * PAGE + first % PAGE) * ROW + o_d[:, None] * 32 + o_t[None, :]
            if tl.min(m_t.to(tl.int32), 0) == 1:
                tl.store(v_ptr + p_code, code)
            else:
                tl.store(v_ptr + p_code, code, mask=m_t[None, :])


@triton.jit(do_not_specialize=["row_ptr", "start_ptr", "length_ptr", "slot_ptr", "row_stride"])
def store_newest_kernel(
    key_ptr, value_ptr, rk_ptr, rv_ptr, row_ptr, start_ptr, length_ptr, slot_ptr, key_stride, value_stride, row_stride,
    ring_stride,
    D: tl.constexpr, WINDOW: tl.constexpr, UNITS: tl.constexpr, FIRST_VALUE: tl.constexpr, SLOTS: tl.constexpr,
):  # fmt: skip
    """Write the newest of the new rows to the ring: of the last WINDOW tokens, those that are new."""
    sequence, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    first_row, start, length = new_tokens(start_ptr, length_ptr, slot_ptr, sequence, SLOTS)
    oldest = tl.maximum(start, length - WINDOW)
    first = (oldest // 32 + tl.program_id(2)) * 32
    if first < length:
        o_t = tl.arange(0, 32)
        o_d = tl.arange(0, D)
        t = first + o_t
        m_t = ((t >= oldest) & (t < length))[:, None]
        row = (first_row + t - start).to(tl.int64)
        place = (o_t * D)[:, None] + o_d[None, :]
        key = tl.load(key_ptr + (row * key_stride + head * D)[:, None] + o_d[None, :], mask=m_t, other=0.0)
        value = tl.load(value_ptr + (row * value_stride + head * D)[:, None] + o_d[None, :], mask=m_t, other=0.0)
        p_key = ring_block(row_ptr, sequence, head, first, row_stride, ring_stride, 0, UNITS, WINDOW, D)
        p_value = ring_block(row_ptr, sequence, head, first, row_stride, ring_stride, FIRST_VALUE, UNITS, WINDOW, D)
        tl.store(rk_ptr + p_key + place, key.to(rk_ptr.dtype.element_ty), mask=m_t)
        tl.store(rv_ptr + p_value + place, value.to(rv_ptr.dtype.element_ty), mask=m_t)
