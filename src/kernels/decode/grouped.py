# mypy: ignore-errors
# ruff: noqa: RET505
# Triton's language is not Python: annotations there are compile-time values.
"""Decode attention over INT4 in groups of 32 dimensions, each with a scale and an offset per token.

As in ``kernel.py`` everything is transposed and no code is converted. What groups change:

* keys: one product per group (32 dimensions are the depth of one 8-bit matrix instruction), weighted by
  the token's scale of that group; the offset meets the sum of the query's dimensions of the group.
* values: a scale differs along tokens *and* groups, so it goes into the probabilities: one code per
  (token, group, query), the groups side by side in the columns that the second code of the query
  has in ``kernel.py``. The product then holds every group of dimensions with every group's
  probabilities; the pairs that belong together are picked at the end. One code is enough here: its error
  is 1/254 of the largest weight, the storage's is 1/30 of the range.
* offsets of values: a sum per (group, query), kept per token of the tile until the end.
"""

import triton
import triton.language as tl
from adrbench.kernels.decode.kernel import (
    ROUND_TO_INTEGER,
    addresses,
    halves,
    high_nibbles,
    loaded_values,
    low_nibbles,
    queries,
    side_by_side,
    tile_count,
)
from adrbench.kernels.store.kernel import halves_of

GROUP_DIMS: tl.constexpr = tl.constexpr(32)


@triton.jit
def columns(x0, x1, x2, x3, ROWS: tl.constexpr, WIDTH: tl.constexpr, H: tl.constexpr):
    """The first H of four [ROWS, WIDTH] tensors side by side: [ROWS, H * WIDTH]."""
    if H == 1:
        return x0
    elif H == 2:
        return side_by_side(x0, x1, ROWS, WIDTH)
    else:
        return side_by_side(side_by_side(x0, x1, ROWS, WIDTH), side_by_side(x2, x3, ROWS, WIDTH), ROWS, 2 * WIDTH)


@triton.jit
def repeated(x, WIDTH: tl.constexpr, H: tl.constexpr):
    """[WIDTH] H times: [H * WIDTH]."""
    return tl.reshape(tl.broadcast_to(x[None, :], (H, WIDTH)), (H * WIDTH,))


@triton.jit
def group_scores(
    k_ptr, p_k, ks_ptr, p_s, m_t, q_low, q_high, sum_low, sum_high, h: tl.constexpr,
    RESIDUAL: tl.constexpr, ASM: tl.constexpr, GP: tl.constexpr, PAGE: tl.constexpr, TILE: tl.constexpr,
    H: tl.constexpr,
):  # fmt: skip
    """Scores [TILE, GP], in units of the query's codes, of groups h (low nibbles) and H + h (high nibbles)."""
    b_k = tl.load(k_ptr + p_k + h * GROUP_DIMS)  # [TILE, 32]
    first, second = halves(tl.dot(low_nibbles(b_k, ASM), q_low), TILE, GP)
    low = (first * RESIDUAL + second).to(tl.float32)
    first, second = halves(tl.dot(high_nibbles(b_k, ASM), q_high), TILE, GP)
    high = (first * RESIDUAL + second).to(tl.float32)
    scale_low, offset_low = halves_of(tl.where(m_t, tl.load(ks_ptr + p_s + h * PAGE), 0))
    scale_high, offset_high = halves_of(tl.where(m_t, tl.load(ks_ptr + p_s + (H + h) * PAGE), 0))
    s = low * scale_low[:, None] + offset_low[:, None] * sum_low[None, :]
    return s + high * scale_high[:, None] + offset_high[:, None] * sum_high[None, :]


@triton.jit
def weights(
    p, p_beta, vs_ptr, p_s, m_t, half: tl.constexpr,
    GP: tl.constexpr, PAGE: tl.constexpr, TILE: tl.constexpr, H: tl.constexpr,
):  # fmt: skip
    """(``p`` times scales, ``p_beta`` times offsets) of the half's groups side by side, each [TILE, H * GP]."""
    c0, z0 = halves_of(tl.where(m_t, tl.load(vs_ptr + p_s + half * H * PAGE), 0))
    c1, z1 = c0, z0
    c2, z2 = c0, z0
    c3, z3 = c0, z0
    if H > 1:
        c1, z1 = halves_of(tl.where(m_t, tl.load(vs_ptr + p_s + (half * H + 1) * PAGE), 0))
    if H > 2:
        c2, z2 = halves_of(tl.where(m_t, tl.load(vs_ptr + p_s + (half * H + 2) * PAGE), 0))
        c3, z3 = halves_of(tl.where(m_t, tl.load(vs_ptr + p_s + (half * H + 3) * PAGE), 0))
    scaled = columns(p * c0[:, None], p * c1[:, None], p * c2[:, None], p * c3[:, None], TILE, GP, H)
    p = p_beta
    return scaled, columns(p * z0[:, None], p * z1[:, None], p * z2[:, None], p * z3[:, None], TILE, GP, H)


@triton.jit
def codes_of(w, ASM: tl.constexpr):
    """(int8 codes of ``w`` [TILE, columns] >= 0, what a column's codes are worth).

    The subtraction leaves the low byte as it is. It is there for ptxas 12.8, which turns a byte store of a
    register that floating point wrote into a conversion of the number (``F2IP.U8.F32``): every code was 255.
    Only in assembly does LLVM not fold it away.
    """
    top = tl.maximum(tl.max(w, 0), 1e-30)
    rounded = w * (127.0 / top)[None, :] + ROUND_TO_INTEGER
    code = rounded.to(tl.int32, bitcast=True)
    if ASM == "ptx":
        code = tl.inline_asm_elementwise(
            "sub.s32 $0, $1, 0x4B400000;", "=r,r", [code], dtype=tl.int32, is_pure=True, pack=1
        )
    return code.to(tl.int8), top * (1.0 / (127.0 * 16.0))


@triton.jit
def grouped_queries(
    p_q, m_g, q_factor, top, first_dim: tl.constexpr,
    RESIDUAL: tl.constexpr, GP: tl.constexpr,
):  # fmt: skip
    """(Q^T codes [32, 2 GP], sums over the 32 dimensions in units of the codes [GP]) of one group."""
    q = tl.load(p_q + first_dim, mask=m_g[:, None], other=0.0).to(tl.float32)
    code, _ = queries(q, top, RESIDUAL, 127.0, tl.int8, GP, GROUP_DIMS)
    return code, tl.sum(q, 1) / q_factor


@triton.jit
def own_groups(acc, offsets, ROW: tl.constexpr, GP: tl.constexpr, H: tl.constexpr):
    """[ROW, H * GP] and [H * GP] -> [ROW, GP]: every dimension with its own group's probabilities and offset."""
    pairs = tl.reshape(acc + offsets[None, :], (ROW, H, GP))
    mine = (tl.arange(0, ROW) // GROUP_DIMS)[:, None] == tl.arange(0, H)[None, :]
    return tl.sum(tl.where(mine[:, :, None], pairs, 0.0), 1)


@triton.jit(do_not_specialize=["table_ptr", "length_ptr", "splits", "table_stride"])
def decode_grouped_kernel(
    q_ptr, k_ptr, v_ptr,
    ks_ptr,  # int32 words [KV heads, D / 32 groups, PAGE] of the first page: fp16 scale, fp16 offset
    vs_ptr,
    table_ptr, length_ptr, o_ptr, lse_ptr, softmax_scale, q_stride, table_stride, page_stride, scale_stride, splits,
    KV_HEADS: tl.constexpr, GROUP: tl.constexpr, GP: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr,
    BLOCK: tl.constexpr, TILE: tl.constexpr, SPAN: tl.constexpr, RESIDUAL: tl.constexpr, ASM: tl.constexpr,
):  # fmt: skip
    """Arguments and outputs as ``kernel.decode_partial_kernel``."""
    sequence, head, split = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    length = tl.load(length_ptr + sequence)
    tiles = tile_count(length, PAGE, TILE, SPAN)
    per_split = tl.cdiv(tiles, splits)
    first = split * per_split
    end = tl.minimum(first + per_split, tiles)

    ROW: tl.constexpr = D // 2
    H: tl.constexpr = D // 64  # groups in each half of a row
    N: tl.constexpr = H * GP
    o_g = tl.arange(0, GP)
    o_d = tl.arange(0, ROW)
    m_g = o_g < GROUP
    row = sequence * (KV_HEADS * GROUP) + head * GROUP + o_g
    p_q = q_ptr + sequence * q_stride + (head * GROUP + o_g)[:, None] * D
    b_q = tl.load(p_q + tl.arange(0, D)[None, :], mask=m_g[:, None], other=0.0).to(tl.float32)
    top = tl.max(tl.abs(b_q), 1)
    unit = tl.maximum(top, 1e-20) * (1.0 / (127.0 * 16.0 * RESIDUAL))
    q_scale = unit * (softmax_scale * 1.4426950408889634)
    p_q += tl.arange(0, GROUP_DIMS)[None, :]
    q0, a0 = grouped_queries(p_q, m_g, unit, top, 0, RESIDUAL, GP)
    r0, b0 = grouped_queries(p_q, m_g, unit, top, ROW, RESIDUAL, GP)
    q1, a1, r1, b1 = q0, a0, r0, b0
    q2, a2, r2, b2 = q0, a0, r0, b0
    q3, a3, r3, b3 = q0, a0, r0, b0
    if H > 1:
        q1, a1 = grouped_queries(p_q, m_g, unit, top, 32, RESIDUAL, GP)
        r1, b1 = grouped_queries(p_q, m_g, unit, top, ROW + 32, RESIDUAL, GP)
    if H > 2:
        q2, a2 = grouped_queries(p_q, m_g, unit, top, 64, RESIDUAL, GP)
        r2, b2 = grouped_queries(p_q, m_g, unit, top, ROW + 64, RESIDUAL, GP)
        q3, a3 = grouped_queries(p_q, m_g, unit, top, 96, RESIDUAL, GP)
        r3, b3 = grouped_queries(p_q, m_g, unit, top, ROW + 96, RESIDUAL, GP)

    m = tl.full([GP], float("-inf"), tl.float32)
    mass = tl.zeros([TILE, GP], tl.float32)
    z0 = tl.zeros([TILE, N], tl.float32)  # p times the values' offsets
    z1 = tl.zeros([TILE, N], tl.float32)
    acc0 = tl.zeros([ROW, N], tl.float32)
    acc1 = tl.zeros([ROW, N], tl.float32)
    p_table = table_ptr + sequence * table_stride
    for i in range(first, end):
        p_k, p_v, p_s, m_t = addresses(
            p_table, i, length, page_stride, scale_stride, head, ROW, GROUP_DIMS, BLOCK, PAGE, TILE, SPAN
        )
        p_s += head * (PAGE * (2 * H - 1))
        s = group_scores(k_ptr, p_k, ks_ptr, p_s, m_t, q0, r0, a0, b0, 0, RESIDUAL, ASM, GP, PAGE, TILE, H)
        if H > 1:
            s += group_scores(k_ptr, p_k, ks_ptr, p_s, m_t, q1, r1, a1, b1, 1, RESIDUAL, ASM, GP, PAGE, TILE, H)
        if H > 2:
            s += group_scores(k_ptr, p_k, ks_ptr, p_s, m_t, q2, r2, a2, b2, 2, RESIDUAL, ASM, GP, PAGE, TILE, H)
            s += group_scores(k_ptr, p_k, ks_ptr, p_s, m_t, q3, r3, a3, b3, 3, RESIDUAL, ASM, GP, PAGE, TILE, H)
        s = tl.where(m_t[:, None], s * q_scale[None, :], float("-inf"))
        m_tile = tl.max(s, 0)
        m_new = tl.maximum(m, m_tile)
        alpha = tl.exp2(m - m_new)
        beta = tl.exp2(m_tile - m_new)
        m = m_new
        p = tl.exp2(s - m_tile[None, :])
        p_beta = p * beta[None, :]
        mass = mass * alpha[None, :] + p_beta

        b_v = loaded_values(v_ptr, p_v, ROW, BLOCK, PAGE, TILE)
        alphas = repeated(alpha, GP, H)
        betas = repeated(beta, GP, H)
        w, offsets = weights(p, p_beta, vs_ptr, p_s, m_t, 0, GP, PAGE, TILE, H)
        z0 = z0 * alphas[None, :] + offsets
        code, worth = codes_of(w, ASM)
        part = tl.dot(low_nibbles(b_v, ASM), code).to(tl.float32)
        acc0 = acc0 * alphas[None, :] + part * (worth * betas)[None, :]
        w, offsets = weights(p, p_beta, vs_ptr, p_s, m_t, 1, GP, PAGE, TILE, H)
        z1 = z1 * alphas[None, :] + offsets
        code, worth = codes_of(w, ASM)
        part = tl.dot(high_nibbles(b_v, ASM), code).to(tl.float32)
        acc1 = acc1 * alphas[None, :] + part * (worth * betas)[None, :]

    total = tl.sum(mass, 0)
    ok = total > 0
    norm = 1.0 / tl.where(ok, total, 1.0)
    p_o = o_ptr + ((row * splits + split) * D)[None, :] + o_d[:, None]
    tl.store(p_o, own_groups(acc0, tl.sum(z0, 0), ROW, GP, H) * norm[None, :], mask=m_g[None, :])
    tl.store(p_o + ROW, own_groups(acc1, tl.sum(z1, 0), ROW, GP, H) * norm[None, :], mask=m_g[None, :])
    lse = tl.where(ok, m + tl.log2(tl.where(ok, total, 1.0)), float("-inf"))
    tl.store(lse_ptr + row * splits + split, lse, mask=m_g)
