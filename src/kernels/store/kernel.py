# mypy: ignore-errors
# ruff: noqa: RET505
# Triton's language is not Python: annotations there are compile-time values.
"""Triton kernels of store. Grid: (token tiles, KV heads)."""

import triton
import triton.language as tl
from adrbench.kernels.store.runs import is_run, unmasked_rows

ROUND_TO_INTEGER: tl.constexpr = tl.constexpr(12582912.0)
"""1.5 * 2^23: adding it to |x| < 2^22 rounds x to the nearest integer, ties to even, in the low mantissa bits."""


@triton.jit
def encode(x, inverse, MAXIMUM: tl.constexpr, CODE: tl.constexpr):
    """Codes of fp32 ``x`` times ``inverse``: saturate, round to nearest even. ``CODE``: a Triton dtype."""
    scaled = tl.clamp(x * inverse, -MAXIMUM, MAXIMUM)
    if tl.int8 == CODE:
        return (scaled + ROUND_TO_INTEGER).to(tl.int32, bitcast=True).to(tl.int8)
    else:
        return scaled.to(CODE)


@triton.jit
def pack(low, high):
    """Two int8 codes in -8..7 in one byte, two's complement."""
    return (low & 15) | (high << 4)


@triton.jit
def halves_of(word):
    """(scale, offset) in fp32 of 32-bit words with two fp16 numbers."""
    low = word.to(tl.int16).to(tl.float16, bitcast=True)
    return low.to(tl.float32), (word >> 16).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)


@triton.jit
def value_rows(token, row, ROW: tl.constexpr, PAGE: tl.constexpr, BLOCK: tl.constexpr):
    """Offsets [rows, tokens] of transposed values in a head's plane; ``formats.layout`` describes them."""
    start = token // BLOCK * BLOCK
    if PAGE % BLOCK == 0:
        return (start * ROW + token % BLOCK)[None, :] + row[:, None] * BLOCK
    else:
        width = tl.minimum(PAGE - start, BLOCK)
        return (start * ROW + token % BLOCK)[None, :] + row[:, None] * width[None, :]


@triton.jit
def grouped_codes(
    x, scale_ptr, p_scale, m_t, first: tl.constexpr, PAGE: tl.constexpr, FLOOR: tl.constexpr,
):  # fmt: skip
    """Codes -8..7 of fp32 ``x`` [TILE, 32 * groups] by groups of 32; their words are stored from group ``first``."""
    TILE: tl.constexpr = x.shape[0]
    H: tl.constexpr = x.shape[1] // 32
    x = tl.reshape(x, (TILE, H, 32))
    low = tl.min(x, 2)
    scale = (tl.maximum(tl.max(x, 2) - low, FLOOR) * (1.0 / 15)).to(tl.float16)
    offset = (low + 8.0 * scale.to(tl.float32)).to(tl.float16)
    word = scale.to(tl.int16, bitcast=True).to(tl.int32) & 0xFFFF
    word |= offset.to(tl.int16, bitcast=True).to(tl.int32) << 16
    tl.store(scale_ptr + p_scale[:, None] + (first + tl.arange(0, H))[None, :] * PAGE, word, mask=m_t[:, None])
    inverse = tl.div_rn(tl.full([TILE, H], 1.0, tl.float32), scale.to(tl.float32))
    code = (x - offset.to(tl.float32)[:, :, None]) * inverse[:, :, None]
    code = (tl.clamp(code, -8.0, 7.0) + ROUND_TO_INTEGER).to(tl.int32, bitcast=True).to(tl.int8)
    return tl.reshape(code, (TILE, H * 32))


@triton.jit
def rows_at(x_ptr, p_in, m_in, D: tl.constexpr, PACKED: tl.constexpr):
    """Rows [TILE, row] in 16 bit at ``p_in`` [TILE] where ``m_in``, and, packed, their second halves."""
    ROW: tl.constexpr = D // 2 if PACKED else D
    p_x = x_ptr + p_in[:, None] + tl.arange(0, ROW)[None, :]
    x = tl.load(p_x, mask=m_in[:, None], other=0.0)
    if PACKED:
        return x, tl.load(p_x + ROW, mask=m_in[:, None], other=0.0)
    else:
        return x, x


@triton.jit
def quantise(
    x, x_high, scale_ptr, p_scale, m_t, head,
    D: tl.constexpr, MAXIMUM: tl.constexpr, FLOOR: tl.constexpr, SCOPE: tl.constexpr, PACKED: tl.constexpr,
    CODE: tl.constexpr, PAGE: tl.constexpr,
):  # fmt: skip
    """Codes [TILE, row] of the rows of ``rows_at``; scales of per-token schemes are stored at ``p_scale``.

    Rows were loaded without waiting for their slots, as ``m_t`` does.
    """
    x = x.to(tl.float32)
    if PACKED:
        x_high = x_high.to(tl.float32)
    if SCOPE == "group":
        p_group = p_scale + head * (PAGE * (D // 32 - 1))  # from one plane a head to one for each group
        code = grouped_codes(x, scale_ptr, p_group, m_t, 0, PAGE, FLOOR)
        return pack(code, grouped_codes(x_high, scale_ptr, p_group, m_t, D // 64, PAGE, FLOOR))
    else:
        if SCOPE == "token":
            top = tl.max(tl.abs(x), 1)
            if PACKED:
                top = tl.maximum(top, tl.max(tl.abs(x_high), 1))
            scale = tl.maximum(top, FLOOR) * (1.0 / MAXIMUM)
            tl.store(scale_ptr + p_scale, scale, mask=m_t)
            inverse = tl.div_rn(1.0, scale)[:, None]
        elif SCOPE == "static":
            inverse = tl.div_rn(1.0, tl.load(scale_ptr + head))
        if SCOPE == "none":
            return x.to(CODE)
        else:
            code = encode(x, inverse, MAXIMUM, CODE)
            if PACKED:
                code = pack(code, encode(x_high, inverse, MAXIMUM, CODE))
            return code


@triton.jit(do_not_specialize=["slot_ptr", "tokens"])
def store_scattered_kernel(
    key_ptr,  # [tokens, heads, D]
    value_ptr,  # [tokens, heads, D]
    slot_ptr,  # [tokens] int64, negative: skip
    k_ptr,  # key codes, first page
    v_ptr,  # value codes, first page
    ks_ptr,  # fp32; per token: scale plane of the first page; static: [heads]
    vs_ptr,
    tokens,
    key_stride,  # elements from one token to the next in key_ptr
    value_stride,  # and in value_ptr: a projection's output may hold both, or only one, among other rows
    page_stride,  # elements of k_ptr and v_ptr from one page to the next
    scale_stride,  # elements of ks_ptr from one page to the next
    D: tl.constexpr,
    PAGE: tl.constexpr,
    TILE: tl.constexpr,
    MAXIMUM: tl.constexpr,
    FLOOR: tl.constexpr,
    SCOPE: tl.constexpr,  # "none", "static", "token"
    PACKED: tl.constexpr,  # two 4-bit codes per byte
    BLOCK: tl.constexpr,  # tokens per transposed block of values; 0: not transposed
):
    """Every token by itself: decode steps, and formats whose values are not transposed."""
    ROW: tl.constexpr = D // 2 if PACKED else D
    head = tl.program_id(1)
    o_t = tl.program_id(0) * TILE + tl.arange(0, TILE)
    o_d = tl.arange(0, ROW)
    m_in = o_t < tokens
    slot = tl.load(slot_ptr + o_t, mask=m_in, other=-1).to(tl.int32)
    m_t = slot >= 0
    page = (slot // PAGE).to(tl.int64)
    token = slot % PAGE
    p_key = o_t.to(tl.int64) * key_stride + head * D
    p_value = o_t.to(tl.int64) * value_stride + head * D
    p_scale = page * scale_stride + head * PAGE + token
    p_head = page * page_stride + head * (PAGE * ROW)
    p_row = (p_head + token * ROW)[:, None] + o_d[None, :]
    CODE: tl.constexpr = k_ptr.dtype.element_ty
    x, x_high = rows_at(key_ptr, p_key, m_in, D, PACKED)
    b_k = quantise(x, x_high, ks_ptr, p_scale, m_t, head, D, MAXIMUM, FLOOR, SCOPE, PACKED, CODE, PAGE)
    x, x_high = rows_at(value_ptr, p_value, m_in, D, PACKED)
    b_v = quantise(x, x_high, vs_ptr, p_scale, m_t, head, D, MAXIMUM, FLOOR, SCOPE, PACKED, CODE, PAGE)
    tl.store(k_ptr + p_row, b_k, mask=m_t[:, None])
    if BLOCK:
        p_v = p_head[:, None] + tl.trans(value_rows(token, o_d, ROW, PAGE, BLOCK))
        tl.store(v_ptr + p_v, b_v, mask=m_t[:, None])
    else:
        tl.store(v_ptr + p_row, b_v, mask=m_t[:, None])


@triton.jit
def store_block(
    x, x_high, anchor, anchor_slot, reach, start, head,
    key_ptr, value_ptr, slot_ptr, k_ptr, v_ptr, ks_ptr, vs_ptr, tokens, key_stride, value_stride, page_stride,
    scale_stride,
    D: tl.constexpr, PAGE: tl.constexpr, MAXIMUM: tl.constexpr, FLOOR: tl.constexpr,
    SCOPE: tl.constexpr, PACKED: tl.constexpr, BLOCK: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Store the block of the cache that holds token ``start + anchor`` at ``anchor_slot``, with all tokens
    that lie in it as one run and at most ``reach`` tokens outside of the program's own.

    EARLY: ``x`` and ``x_high`` are the rows from ``start`` on, taken where the block begins there.
    """
    ROW: tl.constexpr = D // 2 if PACKED else D
    CODE: tl.constexpr = k_ptr.dtype.element_ty
    o_i = tl.arange(0, BLOCK)
    o_d = tl.arange(0, ROW)
    in_block = (anchor_slot % PAGE) % BLOCK
    block_start = anchor_slot % PAGE - in_block  # in its page
    width = tl.minimum(PAGE - block_start, BLOCK)
    o_t = start + anchor - in_block + o_i
    m_in = (o_t >= 0) & (o_t < tokens)
    here = tl.load(slot_ptr + o_t, mask=m_in, other=-1).to(tl.int32)
    m_t = (here == anchor_slot - in_block + o_i) & (o_i < tl.where(anchor_slot < 0, 0, width))
    m_t &= (o_t >= start - reach) & (o_t < start + BLOCK + reach)

    page = (anchor_slot // PAGE).to(tl.int64)
    p_scale = page * scale_stride + head * PAGE + block_start + o_i
    p_block = page * page_stride + (head * PAGE + block_start) * ROW
    if tl.program_id(2) == 0:
        if EARLY:
            if anchor != in_block:
                x, x_high = rows_at(key_ptr, o_t.to(tl.int64) * key_stride + head * D, m_in, D, PACKED)
        else:
            x, x_high = rows_at(key_ptr, o_t.to(tl.int64) * key_stride + head * D, m_in, D, PACKED)
        b_k = quantise(x, x_high, ks_ptr, p_scale, m_t, head, D, MAXIMUM, FLOOR, SCOPE, PACKED, CODE, PAGE)
        tl.store(k_ptr + p_block + (o_i[:, None] * ROW + o_d[None, :]), b_k, mask=m_t[:, None])
    else:
        if EARLY:
            if anchor != in_block:
                x, x_high = rows_at(value_ptr, o_t.to(tl.int64) * value_stride + head * D, m_in, D, PACKED)
        else:
            x, x_high = rows_at(value_ptr, o_t.to(tl.int64) * value_stride + head * D, m_in, D, PACKED)
        b_v = quantise(x, x_high, vs_ptr, p_scale, m_t, head, D, MAXIMUM, FLOOR, SCOPE, PACKED, CODE, PAGE)
        b_v = tl.trans(b_v)
        if tl.min(m_t.to(tl.int32), 0) == 1:
            tl.store(v_ptr + p_block + (o_d[:, None] * BLOCK + o_i[None, :]), b_v)
        else:
            tl.store(v_ptr + p_block + (o_d[:, None] * width + o_i[None, :]), b_v, mask=m_t[None, :])


@triton.jit
def tokens_left(slot_ptr, slot, first_slot, start, tokens, PAGE: tl.constexpr, BLOCK: tl.constexpr):
    """Which of a program's tokens [BLOCK] lie in blocks that hold no program's first token, 1 or 0."""
    o_i = tl.arange(0, BLOCK)
    offset = (slot % PAGE) % BLOCK
    owner = (start + o_i - offset + BLOCK - 1) // BLOCK * BLOCK  # first token of a program, if in the block
    distance = owner - (start + o_i)
    m_owner = (slot >= 0) & (owner < tokens) & (owner >= 0)
    m_owner &= (offset + distance < BLOCK) & (slot % PAGE + distance < PAGE)
    at_owner = tl.load(slot_ptr + owner, mask=m_owner, other=-2).to(tl.int32)
    left = ((slot >= 0) & (at_owner != slot + distance) & (o_i > 0)).to(tl.int32)
    first_block = first_slot % PAGE - (first_slot % PAGE) % BLOCK
    in_first = (slot // PAGE == first_slot // PAGE) & (slot % PAGE - offset == first_block)
    expected = o_i + tl.where(first_slot < 0, 1 << 30, first_slot)  # a skipped token has no block
    return tl.where(in_first & (slot == expected), 0, left)


@triton.jit
def store_any(
    slot, first_slot, start, head,
    key_ptr, value_ptr, slot_ptr, k_ptr, v_ptr, ks_ptr, vs_ptr, tokens, key_stride, value_stride, page_stride,
    scale_stride,
    D: tl.constexpr, PAGE: tl.constexpr, MAXIMUM: tl.constexpr, FLOOR: tl.constexpr,
    SCOPE: tl.constexpr, PACKED: tl.constexpr, BLOCK: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Store one head of a program's tokens, wherever their blocks begin."""
    o_i = tl.arange(0, BLOCK)
    m_own = start + o_i < tokens
    x = tl.zeros([BLOCK, D // 2 if PACKED else D], key_ptr.dtype.element_ty)
    x_high = x
    if EARLY:
        # Most blocks begin with their program: their rows need not wait for the slots that say so.
        o_t = (start + o_i).to(tl.int64)
        if tl.program_id(2) == 0:
            x, x_high = rows_at(key_ptr, o_t * key_stride + head * D, m_own, D, PACKED)
        else:
            x, x_high = rows_at(value_ptr, o_t * value_stride + head * D, m_own, D, PACKED)
        left = tokens_left(slot_ptr, slot, first_slot, start, tokens, PAGE, BLOCK)
    store_block(
        x, x_high, 0, first_slot, BLOCK, start, head, key_ptr, value_ptr, slot_ptr, k_ptr, v_ptr, ks_ptr, vs_ptr,
        tokens, key_stride, value_stride, page_stride, scale_stride, D, PAGE, MAXIMUM, FLOOR, SCOPE, PACKED, BLOCK,
        EARLY,
    )  # fmt: skip
    if not EARLY:
        left = tokens_left(slot_ptr, slot, first_slot, start, tokens, PAGE, BLOCK)
    offset = (slot % PAGE) % BLOCK
    while tl.max(left, 0) > 0:
        anchor = tl.min(tl.where(left > 0, o_i, BLOCK), 0)
        anchor_slot = tl.sum(tl.where(o_i == anchor, slot, 0), 0)
        store_block(
            x, x_high, anchor, anchor_slot, 0, start, head, key_ptr, value_ptr, slot_ptr, k_ptr, v_ptr, ks_ptr, vs_ptr,
            tokens, key_stride, value_stride, page_stride, scale_stride, D, PAGE, MAXIMUM, FLOOR, SCOPE, PACKED,
            BLOCK, False,
        )  # fmt: skip
        block_start = anchor_slot % PAGE - (anchor_slot % PAGE) % BLOCK
        same_block = (slot // PAGE == anchor_slot // PAGE) & (slot % PAGE - offset == block_start)
        left = tl.where(same_block & (slot - anchor_slot == o_i - anchor), 0, left)


@triton.jit
def store_run(
    x_ptr, c_ptr, s_ptr, first_slot, start, first_head, x_stride, page_stride, scale_stride,
    D: tl.constexpr, PAGE: tl.constexpr, MAXIMUM: tl.constexpr, FLOOR: tl.constexpr, SCOPE: tl.constexpr,
    PACKED: tl.constexpr, BLOCK: tl.constexpr, HEADS: tl.constexpr, TRANSPOSED: tl.constexpr,
):  # fmt: skip
    """Store HEADS heads of keys, or of values (TRANSPOSED), of a run of BLOCK tokens; see ``runs``."""
    ROW: tl.constexpr = D // 2 if PACKED else D
    CODE: tl.constexpr = c_ptr.dtype.element_ty
    o_i = tl.arange(0, BLOCK)
    o_d = tl.arange(0, ROW)
    page = (first_slot // PAGE).to(tl.int64)
    begin = first_slot % PAGE
    rows = (start + o_i).to(tl.int64) * x_stride
    m_t = o_i >= 0
    STAGES: tl.constexpr = 2 if HEADS > 1 else 1
    for head in tl.range(first_head, first_head + HEADS, num_stages=STAGES):
        x, x_high = unmasked_rows(x_ptr, rows + head * D, D, PACKED)
        p_scale = page * scale_stride + head * PAGE + begin + o_i
        code = quantise(x, x_high, s_ptr, p_scale, m_t, head, D, MAXIMUM, FLOOR, SCOPE, PACKED, CODE, PAGE)
        p_block = page * page_stride + (head * PAGE + begin) * ROW
        if TRANSPOSED:
            tl.store(c_ptr + p_block + (o_d[:, None] * BLOCK + o_i[None, :]), tl.trans(code))
        else:
            tl.store(c_ptr + p_block + (o_i[:, None] * ROW + o_d[None, :]), code)


@triton.jit(do_not_specialize=["slot_ptr", "tokens"])
def store_blocks_kernel(
    key_ptr, value_ptr, slot_ptr, k_ptr, v_ptr, ks_ptr, vs_ptr, tokens, key_stride, value_stride, page_stride,
    scale_stride,
    D: tl.constexpr, PAGE: tl.constexpr, MAXIMUM: tl.constexpr, FLOOR: tl.constexpr,
    SCOPE: tl.constexpr, PACKED: tl.constexpr, BLOCK: tl.constexpr,
    EARLY: tl.constexpr,  # load rows before it is known where their block begins
    HEADS: tl.constexpr,  # heads of a program, see ``runs``; 0: one, and no block is taken for a run
):  # fmt: skip
    """Whole blocks of transposed values, for prompts; the same arguments as ``store_scattered_kernel``.
    Grid: (token blocks, KV heads over HEADS, 2: keys and values).

    A program owns BLOCK tokens. It stores the block of the cache that holds its first token, with all
    tokens of the batch that lie in it, wherever in the batch the block begins: so a prompt's blocks
    are each written once, in one piece. Then it stores, block by block, those of its tokens whose
    block holds no program's first token. The rows of the first block wait for one slot only, not for
    the search among the others: a prompt has nothing else.
    """
    start = tl.program_id(0) * BLOCK
    o_i = tl.arange(0, BLOCK)
    m_own = start + o_i < tokens
    slot = tl.load(slot_ptr + start + o_i, mask=m_own, other=-1).to(tl.int32)
    first_slot = tl.load(slot_ptr + start).to(tl.int32)
    if HEADS == 0:
        store_any(
            slot, first_slot, start, tl.program_id(1), key_ptr, value_ptr, slot_ptr, k_ptr, v_ptr, ks_ptr, vs_ptr,
            tokens, key_stride, value_stride, page_stride, scale_stride, D, PAGE, MAXIMUM, FLOOR, SCOPE, PACKED, BLOCK,
            EARLY,
        )  # fmt: skip
    else:
        first_head = tl.program_id(1) * HEADS
        if is_run(slot, first_slot, PAGE, BLOCK):
            if tl.program_id(2) == 0:
                store_run(
                    key_ptr, k_ptr, ks_ptr, first_slot, start, first_head, key_stride, page_stride, scale_stride,
                    D, PAGE, MAXIMUM, FLOOR, SCOPE, PACKED, BLOCK, HEADS, False,
                )  # fmt: skip
            else:
                store_run(
                    value_ptr, v_ptr, vs_ptr, first_slot, start, first_head, value_stride, page_stride, scale_stride,
                    D, PAGE, MAXIMUM, FLOOR, SCOPE, PACKED, BLOCK, HEADS, True,
                )  # fmt: skip
        else:
            for head in range(first_head, first_head + HEADS):
                store_any(
                    slot, first_slot, start, head, key_ptr, value_ptr, slot_ptr, k_ptr, v_ptr, ks_ptr, vs_ptr, tokens,
                    key_stride, value_stride, page_stride, scale_stride, D, PAGE, MAXIMUM, FLOOR, SCOPE, PACKED, BLOCK,
                    EARLY,
                )  # fmt: skip
