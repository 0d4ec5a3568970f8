# mypy: ignore-errors
# Triton's language is not Python: annotations there are compile-time values.
"""Triton kernels of store and load. Grid: (token tiles, KV heads)."""

import triton
import triton.language as tl

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
def value_rows(token, row, ROW: tl.constexpr, PAGE: tl.constexpr, BLOCK: tl.constexpr):
    """Offsets [rows, tokens] of transposed values in a head's plane; ``formats.layout`` describes them."""
    start = token // BLOCK * BLOCK
    if PAGE % BLOCK == 0:
        return (start * ROW + token % BLOCK)[None, :] + row[:, None] * BLOCK
    else:
        width = tl.minimum(PAGE - start, BLOCK)
        return (start * ROW + token % BLOCK)[None, :] + row[:, None] * width[None, :]


@triton.jit
def store_plane(
    x_ptr, code_ptr, scale_ptr, p_in, m_t, whole, page, token, head, page_stride, scale_stride,
    D: tl.constexpr, PAGE: tl.constexpr, MAXIMUM: tl.constexpr, FLOOR: tl.constexpr,
    SCOPE: tl.constexpr, PACKED: tl.constexpr, BLOCK: tl.constexpr, RUNS: tl.constexpr,
):  # fmt: skip
    """Quantise one tile of rows of keys or values and write codes and scales.

    ``whole``: the tile is one transposed block of the cache, in order.
    """
    ROW: tl.constexpr = D // 2 if PACKED else D
    o_d = tl.arange(0, ROW)
    p_x = x_ptr + p_in[:, None] + o_d[None, :]
    x = tl.load(p_x, mask=m_t[:, None], other=0.0).to(tl.float32)  # [TILE, ROW]
    if PACKED:
        x_high = tl.load(p_x + ROW, mask=m_t[:, None], other=0.0).to(tl.float32)
    if SCOPE == "token":
        top = tl.max(tl.abs(x), 1)
        if PACKED:
            top = tl.maximum(top, tl.max(tl.abs(x_high), 1))
        scale = tl.maximum(top, FLOOR) * (1.0 / MAXIMUM)
        tl.store(scale_ptr + page * scale_stride + head * PAGE + token, scale, mask=m_t)
        inverse = tl.div_rn(1.0, scale)[:, None]
    elif SCOPE == "static":
        inverse = tl.div_rn(1.0, tl.load(scale_ptr + head))
    if SCOPE == "none":
        code = x.to(code_ptr.dtype.element_ty)
    else:
        code = encode(x, inverse, MAXIMUM, code_ptr.dtype.element_ty)
    if PACKED:
        code = pack(code, encode(x_high, inverse, MAXIMUM, code_ptr.dtype.element_ty))
    p_head = page * page_stride + head * (PAGE * ROW)
    if BLOCK:
        p_v = code_ptr + p_head[None, :] + value_rows(token, o_d, ROW, PAGE, BLOCK)
        if RUNS:
            if whole:
                p_first = tl.min(p_head + token * ROW, 0)
                o_b = tl.arange(0, BLOCK)
                tl.store(code_ptr + p_first + (o_d[:, None] * BLOCK + o_b[None, :]), tl.trans(code))
            else:
                tl.store(p_v, tl.trans(code), mask=m_t[None, :])
        else:
            tl.store(p_v, tl.trans(code), mask=m_t[None, :])
    else:
        tl.store(code_ptr + (p_head + token * ROW)[:, None] + o_d[None, :], code, mask=m_t[:, None])


@triton.jit
def store_rows(
    key_ptr, value_ptr, k_ptr, v_ptr, ks_ptr, vs_ptr, o_t, slot, m_t, whole, head,
    input_stride, page_stride, scale_stride,
    D: tl.constexpr, PAGE: tl.constexpr, MAXIMUM: tl.constexpr, FLOOR: tl.constexpr,
    SCOPE: tl.constexpr, PACKED: tl.constexpr, BLOCK: tl.constexpr, RUNS: tl.constexpr,
):  # fmt: skip
    """Store keys and values of the tokens ``o_t`` where ``m_t``."""
    page = (slot // PAGE).to(tl.int64)
    token = slot % PAGE
    p_in = o_t.to(tl.int64) * input_stride + head * D
    store_plane(
        key_ptr, k_ptr, ks_ptr, p_in, m_t, whole, page, token, head, page_stride, scale_stride,
        D, PAGE, MAXIMUM, FLOOR, SCOPE, PACKED, 0, RUNS,
    )  # fmt: skip
    store_plane(
        value_ptr, v_ptr, vs_ptr, p_in, m_t, whole, page, token, head, page_stride, scale_stride,
        D, PAGE, MAXIMUM, FLOOR, SCOPE, PACKED, BLOCK, RUNS,
    )  # fmt: skip


@triton.jit
def claimed_block(slot_ptr, tokens, slot, o_t, PAGE: tl.constexpr, BLOCK: tl.constexpr):
    """Whether each token's block is stored whole, by the program that owns a multiple of BLOCK in it.

    A token at offset ``o`` of its block has the block's first token ``o`` before it and the last one
    31 - o after it, if they are in this batch at all.
    """
    offset = (slot % PAGE) % BLOCK
    first = o_t - offset
    owner = (first + BLOCK - 1) // BLOCK * BLOCK
    inside = (slot >= 0) & (first >= 0) & (first + BLOCK <= tokens) & (slot % PAGE - offset + BLOCK <= PAGE)
    same = tl.load(slot_ptr + first, mask=inside, other=-2) == slot - offset
    same &= tl.load(slot_ptr + first + BLOCK - 1, mask=inside, other=-2) == slot - offset + BLOCK - 1
    return same & (tl.load(slot_ptr + owner, mask=inside, other=-2) == slot - offset + owner - first)


@triton.jit
def store_kernel(
    key_ptr,  # [tokens, heads, D]
    value_ptr,  # [tokens, heads, D]
    slot_ptr,  # [tokens] int64, negative: skip
    k_ptr,  # key codes, first page
    v_ptr,  # value codes, first page
    ks_ptr,  # fp32; per token: scale plane of the first page; static: [heads]
    vs_ptr,
    tokens,
    input_stride,  # elements from one token to the next in key_ptr and value_ptr
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
    RUNS: tl.constexpr,  # look for whole blocks, as prompts have them; needs TILE == BLOCK
):
    """With RUNS a program stores the block that holds its first token, wherever the block starts in
    the batch, if the batch holds all of it; and those of its own tokens whose block no program stores."""
    head = tl.program_id(1)
    start = tl.program_id(0) * TILE
    o_i = tl.arange(0, TILE)
    slot = tl.load(slot_ptr + start + o_i, mask=start + o_i < tokens, other=-1).to(tl.int32)
    if RUNS:
        owned = tl.load(slot_ptr + start).to(tl.int32)
        offset = tl.where(owned >= 0, (owned % PAGE) % BLOCK, 0)
        for part in range(2):
            # First the block that holds this program's first token, then what is left of its tokens.
            o_t = start + o_i - tl.where(part == 0, offset, 0)
            here = tl.load(slot_ptr + o_t, mask=(o_t >= 0) & (o_t < tokens), other=-1).to(tl.int32)
            claimed = claimed_block(slot_ptr, tokens, here, o_t, PAGE, BLOCK)
            in_order = tl.min((here == owned - offset + o_i).to(tl.int32), 0) == 1
            mine = tl.max((claimed & (o_t == start)).to(tl.int32), 0) == 1
            m_t = (here >= 0) & tl.where(part == 0, mine, claimed == 0)
            if tl.max(m_t.to(tl.int32), 0) == 1:
                store_rows(
                    key_ptr, value_ptr, k_ptr, v_ptr, ks_ptr, vs_ptr, o_t, here, m_t, in_order & (part == 0), head,
                    input_stride, page_stride, scale_stride, D, PAGE, MAXIMUM, FLOOR, SCOPE, PACKED, BLOCK, RUNS,
                )  # fmt: skip
    else:
        store_rows(
            key_ptr, value_ptr, k_ptr, v_ptr, ks_ptr, vs_ptr, start + o_i, slot, slot >= 0, False, head,
            input_stride, page_stride, scale_stride, D, PAGE, MAXIMUM, FLOOR, SCOPE, PACKED, BLOCK, False,
        )  # fmt: skip


@triton.jit
def load_plane(
    out_ptr, code_ptr, scale_ptr, p_out, m_t, page, token, head, page_stride, scale_stride,
    D: tl.constexpr, PAGE: tl.constexpr, SCOPE: tl.constexpr, PACKED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Read one tile of rows of keys or values back and scale them."""
    ROW: tl.constexpr = D // 2 if PACKED else D
    o_d = tl.arange(0, ROW)
    p_head = page * page_stride + head * (PAGE * ROW)
    if BLOCK:
        p_v = p_head[None, :] + value_rows(token, o_d, ROW, PAGE, BLOCK)
        code = tl.trans(tl.load(code_ptr + p_v, mask=m_t[None, :], other=0.0))
    else:
        code = tl.load(code_ptr + (p_head + token * ROW)[:, None] + o_d[None, :], mask=m_t[:, None], other=0.0)
    scale = 1.0
    if SCOPE == "token":
        scale = tl.load(scale_ptr + page * scale_stride + head * PAGE + token, mask=m_t, other=0.0)[:, None]
    elif SCOPE == "static":
        scale = tl.load(scale_ptr + head)
    p_x = out_ptr + p_out[:, None] + o_d[None, :]
    x = (((code << 4) >> 4) if PACKED else code).to(tl.float32) * scale
    tl.store(p_x, x.to(out_ptr.dtype.element_ty), mask=m_t[:, None])
    if PACKED:
        x = (code >> 4).to(tl.float32) * scale
        tl.store(p_x + ROW, x.to(out_ptr.dtype.element_ty), mask=m_t[:, None])


@triton.jit
def load_kernel(
    key_ptr,  # out [tokens, heads, D]
    value_ptr,  # out [tokens, heads, D]
    slot_ptr,  # [tokens] int64, non-negative
    k_ptr,
    v_ptr,
    ks_ptr,
    vs_ptr,
    tokens,
    output_stride,
    page_stride,
    scale_stride,
    D: tl.constexpr,
    PAGE: tl.constexpr,
    TILE: tl.constexpr,
    SCOPE: tl.constexpr,
    PACKED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    head = tl.program_id(1)
    o_t = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    m_t = o_t < tokens
    slot = tl.load(slot_ptr + o_t, mask=m_t, other=0)
    page = slot // PAGE
    token = slot % PAGE
    p_out = o_t * output_stride + head * D
    load_plane(
        key_ptr, k_ptr, ks_ptr, p_out, m_t, page, token, head, page_stride, scale_stride, D, PAGE, SCOPE, PACKED, 0
    )
    load_plane(
        value_ptr, v_ptr, vs_ptr, p_out, m_t, page, token, head, page_stride, scale_stride,
        D, PAGE, SCOPE, PACKED, BLOCK,
    )  # fmt: skip
