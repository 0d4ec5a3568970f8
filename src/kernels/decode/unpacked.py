# mypy: ignore-errors
# ruff: noqa: RET505, SIM108
# Triton's language is not Python: annotations there are compile-time values.
"""Decode attention over 4-bit codes that are unpacked to fp16 in registers. Two kernels' arguments, one kernel.

Transposed as in ``kernel.py``: tokens, then dimensions, are the M of the matrix instruction, query heads its N. But
N is 8, for which the compiler takes ``mma``, whose A operand lives in registers: so a tile goes memory, shared
memory, registers, and there becomes fp16 without a conversion:

* A nibble in the low mantissa bits of an fp16 is the number ``u * 2^-24``, exactly (a subnormal), which the
  units multiply like any other. One ``lop3`` masks two nibbles and turns two's complement into 0..15: 5
  instructions for 8 codes. High nibbles come out 16 times larger; queries and outputs pay that back.
* The two nibbles of a register are two bytes apart, so columns come out in the order 0, 2, 1, 3 of every
  four. Queries (keys) and the tile's tokens (values) are read in that order too; sums do not mind.
* Scales per (token, head) multiply S, as in ``kernel.py``. Scales along the summed axis (of values in groups,
  of KIVI's keys) are applied to the codes: one ``fma.f16x2`` for two codes, with operands that the four rows of
  a thread share: one warp to a program, 32 tokens to a tile.
"""

import triton
import triton.language as tl
from adrbench.kernels.decode.nibbles import (
    in_pairs,
    operands_of_planes,
    operands_of_words,
    over_rows,
    unpack,
    unpack_scaled,
)
from adrbench.kernels.store.kernel import halves_of

UNIT: tl.constexpr = tl.constexpr(16777216.0)
"""2^24: on NVIDIA codes are multiples of its inverse."""


@triton.jit
def log2(x, ASM: tl.constexpr):
    """Logarithm in one instruction; Triton's own is a polynomial of fifteen."""
    if ASM == "ptx":
        return tl.inline_asm_elementwise("lg2.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
    else:
        return tl.log2(x)


@triton.jit
def group_of_keys(
    k_ptr, p_k, ks_ptr, p_s, q_low, q_high, sum_low, sum_high, h: tl.constexpr,
    ASM: tl.constexpr, PAGE: tl.constexpr, H: tl.constexpr, s, CHAIN: tl.constexpr,
):  # fmt: skip
    """``s`` [TILE, GP] and scores times 2^-24 of groups h (low nibbles) and H + h (high nibbles), scaled per token.

    CHAIN: each of the four terms is added by itself, as a fused multiplication.
    """
    low, high = unpack(tl.load(k_ptr + p_k + h * 32), ASM)
    scale_low, offset_low = halves_of(tl.load(ks_ptr + p_s + h * PAGE))
    scale_high, offset_high = halves_of(tl.load(ks_ptr + p_s + (H + h) * PAGE))
    offset_low -= 8.0 * scale_low
    offset_high -= 8.0 * scale_high
    if CHAIN:
        s = tl.dot(low, q_low) * scale_low[:, None] + s
        s = offset_low[:, None] * sum_low[None, :] + s
        s = tl.dot(high, q_high) * scale_high[:, None] + s
        return offset_high[:, None] * sum_high[None, :] + s
    else:
        x = tl.dot(low, q_low) * scale_low[:, None] + offset_low[:, None] * sum_low[None, :]
        x += tl.dot(high, q_high) * scale_high[:, None] + offset_high[:, None] * sum_high[None, :]
        return x if h == 0 else s + x


@triton.jit
def scaled(x0, x1, x2, x3, y0, y1, y2, y3, alpha, LAZY: tl.constexpr):
    """Accumulators [rows, GP] times ``alpha`` [GP]; LAZY: only where a maximum has changed, which few tiles do."""
    if LAZY:
        if tl.min(alpha, 0) < 1.0:
            a = alpha[None, :]
            x0, x1, x2, x3, y0, y1, y2, y3 = x0 * a, x1 * a, x2 * a, x3 * a, y0 * a, y1 * a, y2 * a, y3 * a
    else:
        a = alpha[None, :]
        x0, x1, x2, x3, y0, y1, y2, y3 = x0 * a, x1 * a, x2 * a, x3 * a, y0 * a, y1 * a, y2 * a, y3 * a
    return x0, x1, x2, x3, y0, y1, y2, y3


@triton.jit
def group_of_queries(p_q, m_g, first: tl.constexpr, factor, ROW: tl.constexpr, ONE: tl.constexpr):
    """(Q^T of low [32, GP], of high nibbles over 16, their sums over ONE) of 32 dimensions and their partners."""
    low = (tl.load(p_q + first, mask=m_g[None, :], other=0.0).to(tl.float32) * factor).to(tl.float16)
    high = tl.load(p_q + (ROW + first), mask=m_g[None, :], other=0.0).to(tl.float32) * (factor * (1.0 / 16))
    high = high.to(tl.float16)
    sums = tl.sum(low.to(tl.float32), 0) * (1.0 / ONE), tl.sum(high.to(tl.float32), 0) * (16.0 / ONE)
    return low, high, sums[0], sums[1]


@triton.jit
def tile_position(
    table_ptr, tile, length, page_stride, scale_stride, head, ROW: tl.constexpr, PAGE: tl.constexpr, TILE: tl.constexpr,
    SPAN: tl.constexpr, ASM: tl.constexpr,
):  # fmt: skip
    """Of one tile: the first byte of its head's plane of codes and scales for each token, its place in its page, and
    whether it exists, [TILE] each in the order of ``in_pairs`` and (v) in the order of tokens.

    SPAN as in ``kernel.addresses``.
    """
    o_t = tl.arange(0, TILE)
    o_p = in_pairs(o_t, ASM)
    if SPAN == 0:
        TILES: tl.constexpr = (PAGE + TILE - 1) // TILE
        page = tl.load(table_ptr + tile // TILES).to(tl.int64)
        start = tile % TILES * TILE
        k_token = start + o_p
        v_token = start + o_t
        left = length - tile // TILES * PAGE
        if PAGE % TILE != 0:
            left = tl.minimum(left, PAGE)
        m_t = k_token < left
        m_v = v_token < left
        if PAGE % TILE != 0:
            k_token = tl.minimum(k_token // 16, PAGE // 16 - 1) * 16 + o_p % 16
            v_token = tl.minimum(v_token // 16, PAGE // 16 - 1) * 16 + o_t % 16
        base = page * page_stride + head * (PAGE * ROW)
        scales = page * scale_stride
        return base, base, scales, scales, k_token, v_token, m_t, m_v
    else:
        first = tile * TILE // PAGE
        begin = tile * TILE % PAGE
        last = (length - 1) // PAGE
        page0 = tl.load(table_ptr + first)
        k_page = tl.zeros([TILE], tl.int32) + page0
        v_page = k_page
        for j in tl.static_range(1, SPAN):
            page = tl.load(table_ptr + tl.minimum(first + j, last))
            k_page = tl.where(begin + o_p >= j * PAGE, page, k_page)
            v_page = tl.where(begin + o_t >= j * PAGE, page, v_page)
        k_page = k_page.to(tl.int64)
        v_page = v_page.to(tl.int64)
        k_token = (begin + o_p) % PAGE
        v_token = (begin + o_t) % PAGE
        plane = head * (PAGE * ROW)
        m_t = tile * TILE + o_p < length
        m_v = tile * TILE + o_t < length
        k_base = k_page * page_stride + plane
        v_base = v_page * page_stride + plane
        return k_base, v_base, k_page * scale_stride, v_page * scale_stride, k_token, v_token, m_t, m_v


@triton.jit
def value_offsets(
    v_base, v_token, first, ROWS: tl.constexpr, ROW: tl.constexpr, PAGE: tl.constexpr, SPAN: tl.constexpr
):
    """Offsets [ROWS, TILE] of values of dimensions ``first`` and on, transposed in blocks of 32 tokens."""
    o_d = first + tl.arange(0, ROWS)
    start = v_token // 32 * 32
    place = start * ROW + v_token % 32
    if PAGE % 32 == 0:
        p_v = place[None, :] + o_d[:, None] * 32
    else:
        width = tl.minimum(PAGE - start, 32)
        p_v = place[None, :] + o_d[:, None] * width[None, :]
    if SPAN == 0:
        p_v = v_base + p_v
    else:
        p_v = v_base[None, :] + p_v
    return tl.multiple_of(tl.max_contiguous(p_v, (1, 16)), (1, 16))


@triton.jit
def group_of_values(
    v_ptr, vs_ptr, v_base, v_token, m_v, p_s, tile, h: tl.constexpr, SCOPE: tl.constexpr, ASM: tl.constexpr,
    PAGE: tl.constexpr, TILE: tl.constexpr, SPAN: tl.constexpr, ROW: tl.constexpr, H: tl.constexpr,
):  # fmt: skip
    """Values [32, TILE] of the groups h and H + h."""
    b_v = tl.load(v_ptr + value_offsets(v_base, v_token, h * 32, 32, ROW, PAGE, SPAN))
    if SCOPE == "group":
        # A slot that was never written may hold NaN, which a weight of 0 does not undo.
        low = tl.load(vs_ptr + p_s + v_token + h * PAGE, mask=m_v, other=0)
        high = tl.load(vs_ptr + p_s + v_token + (H + h) * PAGE, mask=m_v, other=0)
        scale, zero = operands_of_words(low, high, ASM)
    else:
        place = p_s + h * 2 * PAGE + tile % (PAGE // TILE) * TILE
        scale, zero = operands_of_planes(vs_ptr, place, PAGE, TILE, ASM)
    return unpack_scaled(b_v, over_rows(scale, ASM), over_rows(zero, ASM), ASM, SCOPE == "group")


@triton.jit(do_not_specialize=["table_ptr", "length_ptr", "splits", "table_stride"])
def decode_unpacked_kernel(
    q_ptr, k_ptr, v_ptr,
    ks_ptr,  # "token": fp32; else int32 words
    vs_ptr,
    table_ptr, length_ptr, o_ptr, lse_ptr, softmax_scale, q_stride, table_stride, page_stride, scale_stride, splits,
    KV_HEADS: tl.constexpr, GROUP: tl.constexpr, GP: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr,
    TILE: tl.constexpr, SPAN: tl.constexpr, SCOPE: tl.constexpr,  # "token", "group" or "channel" (keys; values: group)
    WINDOW: tl.constexpr,  # newest tokens that another kernel attends to, after the last whole tile before them
    PARTS: tl.constexpr,  # parts of a row of o_ptr beyond ``splits``
    ASM: tl.constexpr,
    CHAIN: tl.constexpr,  # see group_of_keys
    LAZY: tl.constexpr,  # see scaled
):  # fmt: skip
    """Arguments and outputs as ``kernel.decode_partial_kernel``."""
    sequence, head, split = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    length = tl.load(length_ptr + sequence)
    if WINDOW > 0:
        length = tl.maximum(length - WINDOW, 0) // TILE * TILE
    if SPAN == 0:
        tiles = length // PAGE * ((PAGE + TILE - 1) // TILE) + tl.cdiv(length % PAGE, TILE)
    else:
        tiles = tl.cdiv(length, TILE)
    per_split = tl.cdiv(tiles, splits)
    first = split * per_split
    end = tl.minimum(first + per_split, tiles)

    ROW: tl.constexpr = D // 2
    H: tl.constexpr = D // 64
    ONE: tl.constexpr = UNIT if ASM == "ptx" else 1.0  # what a code of 1 is multiplied by to be whole
    o_g = tl.arange(0, GP)
    o_d = tl.arange(0, ROW)
    m_g = o_g < GROUP
    row = sequence * (KV_HEADS * GROUP) + head * GROUP + o_g
    p_q = q_ptr + sequence * q_stride + (head * GROUP + o_g)[None, :] * D
    # Queries in fp16, their largest number a power of two at most 1: exact, whether they come in bf16 or fp16.
    b_q = tl.load(p_q + tl.arange(0, D)[:, None], mask=m_g[None, :], other=0.0).to(tl.float32)
    top = tl.maximum(tl.max(tl.max(tl.abs(b_q), 0), 0), 1e-20)
    factor = tl.exp2(-tl.ceil(tl.log2(top)))
    q_scale = softmax_scale * 1.4426950408889634 / factor
    if SCOPE == "group":
        p_q += in_pairs(tl.arange(0, 32), ASM)[:, None]
        q0, r0, a0, b0 = group_of_queries(p_q, m_g, 0, factor, ROW, ONE)
        q1, r1, a1, b1 = q0, r0, a0, b0
        q2, r2, a2, b2 = q0, r0, a0, b0
        q3, r3, a3, b3 = q0, r0, a0, b0
        if H > 1:
            q1, r1, a1, b1 = group_of_queries(p_q, m_g, 32, factor, ROW, ONE)
        if H > 2:
            q2, r2, a2, b2 = group_of_queries(p_q, m_g, 64, factor, ROW, ONE)
            q3, r3, a3, b3 = group_of_queries(p_q, m_g, 96, factor, ROW, ONE)
        q_scale *= ONE
    else:
        p_q += in_pairs(o_d, ASM)[:, None]
        HIGH: tl.constexpr = 1.0 / 16 if SCOPE == "token" else 1.0
        q0 = (tl.load(p_q, mask=m_g[None, :], other=0.0).to(tl.float32) * factor).to(tl.float16)
        r0 = tl.load(p_q + ROW, mask=m_g[None, :], other=0.0).to(tl.float32) * (factor * HIGH)
        r0 = r0.to(tl.float16)
        if SCOPE == "token":
            # Codes are 0..15, eight more than they mean.
            start = tl.sum(q0.to(tl.float32), 0) + 16.0 * tl.sum(r0.to(tl.float32), 0)
            start = tl.broadcast_to((start * (-8.0 / ONE))[None, :], (TILE, GP))
            q_scale *= ONE

    VROWS: tl.constexpr = ROW if SCOPE == "token" else 32
    m = tl.full([GP], float("-inf"), tl.float32)
    mass = tl.zeros([TILE, GP], tl.float32)
    codes = tl.zeros([TILE, GP], tl.float32)  # sum of p as the second product has them
    x0 = tl.zeros([VROWS, GP], tl.float32)  # outputs of low nibbles' groups; x: low, y: high
    y0 = tl.zeros([VROWS, GP], tl.float32)
    x1, x2, x3, y1, y2, y3 = x0, x0, x0, y0, y0, y0
    p_table = table_ptr + sequence * table_stride
    for i in range(first, end):
        k_base, v_base, k_scales, v_scales, k_token, v_token, m_t, m_v = tile_position(
            p_table, i, length, page_stride, scale_stride, head, ROW, PAGE, TILE, SPAN, ASM
        )
        KEYS: tl.constexpr = 32 if SCOPE == "group" else ROW
        p_k = k_token[:, None] * ROW + tl.arange(0, KEYS)[None, :]
        p_k = (k_base + p_k) if SPAN == 0 else (k_base[:, None] + p_k)
        p_k = tl.multiple_of(tl.max_contiguous(p_k, (1, 16)), (1, 16))
        if SCOPE == "token":
            low, high = unpack(tl.load(k_ptr + p_k), ASM)
            p_s = k_scales + head * PAGE + k_token
            b_vs = tl.load(vs_ptr + p_s)
            b_ks = tl.load(ks_ptr + p_s)
            s = tl.dot(high, r0, tl.dot(low, q0, start))
            # The value scale enters S as its logarithm, so that p never leaves fp16's range.
            log_vs = log2(b_vs, ASM)
            s = s * (b_ks * q_scale)[:, None] + log_vs[:, None]
            s = tl.where(m_t[:, None], s, float("-inf"))
        elif SCOPE == "group":
            p_s = k_scales + head * (PAGE * 2 * H) + k_token
            s = tl.zeros([TILE, GP], tl.float32)
            s = group_of_keys(k_ptr, p_k, ks_ptr, p_s, q0, r0, a0, b0, 0, ASM, PAGE, H, s, CHAIN)
            if H > 1:
                s = group_of_keys(k_ptr, p_k, ks_ptr, p_s, q1, r1, a1, b1, 1, ASM, PAGE, H, s, CHAIN)
            if H > 2:
                s = group_of_keys(k_ptr, p_k, ks_ptr, p_s, q2, r2, a2, b2, 2, ASM, PAGE, H, s, CHAIN)
                s = group_of_keys(k_ptr, p_k, ks_ptr, p_s, q3, r3, a3, b3, 3, ASM, PAGE, H, s, CHAIN)
            s = tl.where(m_t[:, None], s * q_scale, float("-inf"))
        else:
            number = i % (PAGE // TILE)
            place = k_scales + (head * (PAGE // 32) + number) * D
            scale, zero = operands_of_planes(ks_ptr, place, ROW, ROW, ASM)
            low, high = unpack_scaled(tl.load(k_ptr + p_k), over_rows(scale, ASM), over_rows(zero, ASM), ASM, False)
            s = tl.dot(high, r0, tl.dot(low, q0)) * q_scale
        m_new = tl.maximum(m, tl.max(s, 0))
        alpha = tl.exp2(m - m_new)
        p = tl.exp2(s - m_new[None, :])
        m = m_new
        b_p = p.to(tl.float16)
        x0, x1, x2, x3, y0, y1, y2, y3 = scaled(x0, x1, x2, x3, y0, y1, y2, y3, alpha, LAZY)
        if SCOPE == "token":
            mass = mass * alpha[None, :] + p * tl.where(m_t, tl.exp2(-log_vs), 0.0)[:, None]
            codes = codes * alpha[None, :] + b_p.to(tl.float32)
            p_v = value_offsets(v_base, v_token, 0, ROW, ROW, PAGE, SPAN)
            low, high = unpack(tl.load(v_ptr + p_v), ASM)
            x0 = tl.dot(low, b_p, x0)
            y0 = tl.dot(high, b_p, y0)
        else:
            mass = mass * alpha[None, :] + p
            p_s = v_scales + head * (PAGE * 2 * H)
            low, high = group_of_values(
                v_ptr, vs_ptr, v_base, v_token, m_v, p_s, i, 0, SCOPE, ASM, PAGE, TILE, SPAN, ROW, H
            )
            x0 = tl.dot(low, b_p, x0)
            y0 = tl.dot(high, b_p, y0)
            if H > 1:
                low, high = group_of_values(
                    v_ptr, vs_ptr, v_base, v_token, m_v, p_s, i, 1, SCOPE, ASM, PAGE, TILE, SPAN, ROW, H
                )
                x1 = tl.dot(low, b_p, x1)
                y1 = tl.dot(high, b_p, y1)
            if H > 2:
                low, high = group_of_values(
                    v_ptr, vs_ptr, v_base, v_token, m_v, p_s, i, 2, SCOPE, ASM, PAGE, TILE, SPAN, ROW, H
                )
                x2 = tl.dot(low, b_p, x2)
                y2 = tl.dot(high, b_p, y2)
                low, high = group_of_values(
                    v_ptr, vs_ptr, v_base, v_token, m_v, p_s, i, 3, SCOPE, ASM, PAGE, TILE, SPAN, ROW, H
                )
                x3 = tl.dot(low, b_p, x3)
                y3 = tl.dot(high, b_p, y3)

    total = tl.sum(mass, 0)
    ok = total > 0
    norm = 1.0 / tl.where(ok, total, 1.0)
    part = row * (splits + PARTS) + split
    p_o = o_ptr + (part * D)[None, :] + tl.arange(0, VROWS)[:, None]
    if SCOPE == "token":
        norm *= ONE
        eight = (tl.sum(codes, 0) * (8.0 / ONE))[None, :]
        tl.store(p_o, (x0 - eight) * norm[None, :], mask=m_g[None, :])
        tl.store(p_o + ROW, (y0 * (1.0 / 16) - eight) * norm[None, :], mask=m_g[None, :])
    else:
        tl.store(p_o, x0 * norm[None, :], mask=m_g[None, :])
        tl.store(p_o + ROW, y0 * norm[None, :], mask=m_g[None, :])
        if H > 1:
            tl.store(p_o + 32, x1 * norm[None, :], mask=m_g[None, :])
            tl.store(p_o + (ROW + 32), y1 * norm[None, :], mask=m_g[None, :])
        if H > 2:
            tl.store(p_o + 64, x2 * norm[None, :], mask=m_g[None, :])
            tl.store(p_o + (ROW + 64), y2 * norm[None, :], mask=m_g[None, :])
            tl.store(p_o + 96, x3 * norm[None, :], mask=m_g[None, :])
            tl.store(p_o + (ROW + 96), y3 * norm[None, :], mask=m_g[None, :])
    lse = tl.where(ok, m + tl.log2(tl.where(ok, total, 1.0)), float("-inf"))
    tl.store(lse_ptr + part, lse, mask=m_g)
