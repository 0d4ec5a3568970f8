# mypy: ignore-errors
# ruff: noqa: RET505, SIM108, SIM300
# Triton's language is not Python: annotations there are compile-time values.
"""Split-KV paged decode attention. Grids: partial (sequence, KV head, split), combine (sequence, head).

Everything is transposed, so that the long axis fills the matrix units and nothing 8-bit is ever
converted: scores S^T [tokens, queries] = K [tokens, D] Q^T [D, queries], and output
O^T [D, queries] = V^T [D, tokens] P^T [tokens, queries]. Tokens (then dimensions) are the M of the
instruction and go from memory through shared memory into it untouched; the few query heads of a KV
head are its N, whose smallest size is 8. 8-bit operands need an 8-bit partner, so each query (and
each probability) is written as two codes, ``high + low / RESIDUAL``, in columns that N has to spare:
that makes quantising them cost no accuracy. Scales never touch the codes: the key scale multiplies
S; the value scale is added to S as its logarithm, so that one maximum serves softmax and
requantisation of P.
"""

import triton
import triton.language as tl
from adrbench.kernels.decode.pieces import piece_addresses, piece_counts, whole_addresses

ROUND_TO_INTEGER: tl.constexpr = tl.constexpr(12582912.0)
"""1.5 * 2^23: adding it rounds |x| < 2^22 to the nearest integer and leaves it in the low mantissa bits."""


@triton.jit
def two_codes(x, RESIDUAL: tl.constexpr, CODE: tl.constexpr):
    """(high, low) codes with x = high + low / RESIDUAL, for fp32 ``x`` within the format's range.

    Below a float format's normal range ``high`` itself is rounded, by less than 2^-17 of the maximum.
    """
    if CODE == tl.int8:
        rounded = x + ROUND_TO_INTEGER
        rest = (x - (rounded - ROUND_TO_INTEGER)) * RESIDUAL + ROUND_TO_INTEGER
        return rounded.to(tl.int32, bitcast=True).to(tl.int8), rest.to(tl.int32, bitcast=True).to(tl.int8)
    else:
        # Rounded in the bits of fp32, because converting the code back is what ptxas 12.8 gets wrong
        # (it reads a register that it never wrote once two conversions share one).
        DROP: tl.constexpr = 21 if tl.float8e5 == CODE else 20
        bits = x.to(tl.int32, bitcast=True) + (1 << (DROP - 1))
        rounded = ((bits >> DROP) << DROP).to(tl.float32, bitcast=True)
        return rounded.to(CODE), ((x - rounded) * RESIDUAL).to(CODE)


@triton.jit
def side_by_side(high, low, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """[ROWS, COLUMNS] twice -> [ROWS, 2 * COLUMNS]: all high columns, then all low ones."""
    return tl.reshape(tl.permute(tl.join(high, low), (0, 2, 1)), (ROWS, 2 * COLUMNS))


@triton.jit
def halves(x, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """[ROWS, 2 * COLUMNS] -> its left and its right half. Both lie in the same thread's registers."""
    return tl.split(tl.permute(tl.reshape(x, (ROWS, 2, COLUMNS)), (0, 2, 1)))


@triton.jit
def low_nibbles(x, ASM: tl.constexpr):
    """16 times the signed low nibble of each byte. Left-aligned, a nibble needs no sign extension.

    The NVIDIA backend would unpack every byte; four bytes at once is 2 instructions. AMD's does so itself.
    """
    if ASM == "ptx":
        return tl.inline_asm_elementwise(
            "{ .reg .b32 u; shl.b32 u, $1, 4; and.b32 $0, u, 0xF0F0F0F0; }",
            "=r,r", [x], dtype=tl.int8, is_pure=True, pack=4,
        )  # fmt: skip
    else:
        return x << 4


@triton.jit
def high_nibbles(x, ASM: tl.constexpr):
    """16 times the signed high nibble of each byte."""
    if ASM == "ptx":
        return tl.inline_asm_elementwise(
            "and.b32 $0, $1, 0xF0F0F0F0;", "=r,r", [x], dtype=tl.int8, is_pure=True, pack=4
        )
    else:
        return x & -16


@triton.jit
def queries(
    q, top, RESIDUAL: tl.constexpr, MAXIMUM: tl.constexpr, CODE: tl.constexpr, GP: tl.constexpr, ROW: tl.constexpr
):
    """(Q^T [ROW, 2 GP] as codes, [GP] what each query was divided by), of fp32 ``q`` [GP, ROW] with |q| <= ``top``."""
    factor = tl.maximum(top, 1e-20) * (1.0 / MAXIMUM)
    high, low = two_codes(tl.trans(q * (1.0 / factor)[:, None]), RESIDUAL, CODE)
    return side_by_side(high, low, ROW, GP), factor


@triton.jit
def tile_count(length, PAGE: tl.constexpr, TILE: tl.constexpr, SPAN: tl.constexpr):
    """Tiles of a sequence; see ``addresses``."""
    if SPAN == 0:
        return length // PAGE * ((PAGE + TILE - 1) // TILE) + tl.cdiv(length % PAGE, TILE)
    else:
        return tl.cdiv(length, TILE)


@triton.jit
def addresses(
    table_ptr, tile, length, page_stride, scale_stride, head,
    ROW: tl.constexpr, KEYS: tl.constexpr, BLOCK: tl.constexpr, PAGE: tl.constexpr, TILE: tl.constexpr,
    SPAN: tl.constexpr,
):  # fmt: skip
    """Offsets of one tile: the first KEYS bytes or values of each key [TILE, KEYS], values [ROW, TILE]
    (16 bit: like keys), scales [TILE]; and which of its tokens exist [TILE].

    SPAN 0: tiles start afresh in every page, so one page number serves a tile; the last tile of a page
    may be short. Otherwise tiles run through the sequence and lie in at most SPAN pages, whose numbers
    are loaded one by one: a gather of page numbers per token costs more than the keys. Tokens that do
    not exist get the address of one that does, in whole runs of 16, as the hints promise the compiler.

    On pages of 16 a value row is half a memory sector, and neighbouring threads must hold neighbouring
    rows: offsets of values are [pages, ROW, 16] there, one thread to a row.
    """
    o_t = tl.arange(0, TILE)
    o_d = tl.arange(0, ROW)
    if SPAN == 0:
        TILES: tl.constexpr = (PAGE + TILE - 1) // TILE
        page = tl.load(table_ptr + tile // TILES)
        token = tile % TILES * TILE + o_t
        m_t = tile // TILES * PAGE + token < length
        if PAGE % TILE != 0:
            m_t &= token < PAGE
            token = tl.minimum(token // 16, PAGE // 16 - 1) * 16 + o_t % 16
    else:
        first = tile * TILE // PAGE
        position = tile * TILE % PAGE + o_t
        m_t = tile * TILE + o_t < length
        page = tl.zeros([TILE], tl.int32) + tl.load(table_ptr + first)
        token = position
        for j in tl.static_range(1, SPAN):
            beyond = position >= j * PAGE
            page = tl.where(beyond, tl.load(table_ptr + tl.minimum(first + j, (length - 1) // PAGE)), page)
            token = tl.where(beyond, position - j * PAGE, token)
    base = page.to(tl.int64) * page_stride + head * (PAGE * ROW)
    p_k = token[:, None] * ROW + tl.arange(0, KEYS)[None, :]
    if BLOCK:
        start_of_block = token // BLOCK * BLOCK
        p_token = start_of_block * ROW + token % BLOCK
        if PAGE % BLOCK == 0:
            p_v = p_token[None, :] + o_d[:, None] * BLOCK
        else:
            width = tl.minimum(PAGE - start_of_block, BLOCK)  # the page ends in half a block
            p_v = p_token[None, :] + o_d[:, None] * width[None, :]
    else:
        p_v = p_k
    if SPAN == 0:
        p_k = base + p_k
        p_v = base + p_v
    else:
        p_k = base[:, None] + p_k
        p_v = (base[None, :] if BLOCK else base[:, None]) + p_v
    p_k = tl.multiple_of(tl.max_contiguous(p_k, (1, 16)), (1, 16))
    if PAGE == 16 and BLOCK > 0:
        chunk = tl.arange(0, TILE // 16)
        pages = tl.load(table_ptr + tl.minimum(tile * (TILE // 16) + chunk, (length - 1) // PAGE)).to(tl.int64)
        p_v = (pages * page_stride + head * (PAGE * ROW))[:, None, None] + (o_d * 16)[None, :, None]
        p_v = p_v + tl.arange(0, 16)[None, None, :]
        p_v = tl.multiple_of(tl.max_contiguous(p_v, (1, 1, 16)), (1, 1, 16))
    else:
        p_v = tl.multiple_of(tl.max_contiguous(p_v, (1, 16)), (1, 16))
    return p_k, p_v, page.to(tl.int64) * scale_stride + head * PAGE + token, m_t


@triton.jit
def loaded_values(
    v_ptr, p_v, ROW: tl.constexpr, BLOCK: tl.constexpr, PAGE: tl.constexpr, TILE: tl.constexpr
):  # fmt: skip
    """Values [ROW, TILE], or [TILE, ROW] for 16 bit, at the offsets of ``addresses``."""
    b_v = tl.load(v_ptr + p_v)
    if PAGE == 16 and BLOCK > 0:
        return tl.reshape(tl.permute(b_v, (1, 0, 2)), (ROW, TILE))
    else:
        return b_v


@triton.jit
def tile_step(
    q0, q1, q_scale, m, mass, acc0, acc1,
    table_ptr, k_ptr, v_ptr, ks_ptr, vs_ptr, tile, length, page_stride, scale_stride, head,
    RESIDUAL: tl.constexpr, MAXIMUM: tl.constexpr, CODE: tl.constexpr, PACKED: tl.constexpr, TOKEN_SCALE: tl.constexpr,
    ASM: tl.constexpr, GP: tl.constexpr, ROW: tl.constexpr, PAGE: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr,
    SPAN: tl.constexpr, PART: tl.constexpr,  # "whole" tiles or tiles of "pieces", see ``pieces``; else "any"
):  # fmt: skip
    """One tile of tokens: (m [GP], mass [TILE, GP], accumulators [ROW, N]) brought up to date.

    ``m`` is the running maximum of log2(p * value scale); ``mass`` holds, per token of the tile, the sum
    of p / 2^m: summed over tokens only once, at the end.
    """
    if PART == "whole":
        p_k, p_v, p_s, m_t = whole_addresses(
            table_ptr, tile, length, page_stride, scale_stride, head, ROW, PAGE, TILE
        )  # fmt: skip
        b_k = tl.load(k_ptr + p_k)
    elif PART == "pieces":
        p_k, p_v, p_s, m_t = piece_addresses(
            table_ptr, tile, length, page_stride, scale_stride, head, ROW, PAGE, TILE
        )  # fmt: skip
        b_k = tl.reshape(tl.load(k_ptr + p_k), (TILE, ROW))
    else:
        p_k, p_v, p_s, m_t = addresses(
            table_ptr, tile, length, page_stride, scale_stride, head, ROW, ROW, BLOCK, PAGE, TILE, SPAN
        )
        b_k = tl.load(k_ptr + p_k)  # [TILE, ROW]
    if PACKED:
        s = tl.dot(low_nibbles(b_k, ASM), q0) + tl.dot(high_nibbles(b_k, ASM), q1)
    else:
        s = tl.dot(b_k, q0)  # [TILE, 2 GP], [TILE, GP] for 16 bit
    if RESIDUAL > 0:
        high, low = halves(s, TILE, GP)
        if CODE == tl.int8:
            s = (high * RESIDUAL + low).to(tl.float32)
        else:
            s = high * RESIDUAL + low
    s = s * q_scale[None, :]
    if TOKEN_SCALE:
        # Masking the scales masks the scores, at one select per token instead of one per score.
        b_vs = tl.load(vs_ptr + p_s)
        b_ks = tl.where(m_t, tl.load(ks_ptr + p_s), 0.0)
        s = s * b_ks[:, None] + tl.where(m_t, tl.log2(b_vs), float("-inf"))[:, None]
    else:
        s = tl.where(m_t[:, None], s, float("-inf"))
    m_tile = tl.max(s, 0)
    m_new = tl.maximum(m, m_tile)
    alpha = tl.exp2(m - m_new)
    p = tl.exp2(s - m_tile[None, :])  # 1 at the tile's maximum: the full range of a code
    beta = tl.exp2(m_tile - m_new)
    if TOKEN_SCALE:
        weight = tl.where(m_t, 1.0 / b_vs, 0.0)
        mass = mass * alpha[None, :] + p * (weight[:, None] * beta[None, :])
    else:
        mass = mass * alpha[None, :] + p * beta[None, :]

    if PART == "whole":
        b_v = tl.load(v_ptr + p_v)
    elif PART == "pieces":
        b_v = tl.reshape(tl.permute(tl.load(v_ptr + p_v), (1, 0, 2)), (ROW, TILE))
    else:
        b_v = loaded_values(v_ptr, p_v, ROW, BLOCK, PAGE, TILE)
    if RESIDUAL > 0:
        high, low = two_codes(p * MAXIMUM, RESIDUAL, CODE)
        b_p = side_by_side(high, low, TILE, GP)
        alpha = tl.reshape(tl.permute(tl.join(alpha, alpha), (1, 0)), (2 * GP,))
        beta = tl.reshape(tl.permute(tl.join(beta, beta * (1.0 / RESIDUAL)), (1, 0)), (2 * GP,))
    else:
        b_p = p.to(b_v.dtype)
        b_v = tl.trans(b_v)
    if PACKED:
        acc0 = acc0 * alpha[None, :] + tl.dot(low_nibbles(b_v, ASM), b_p).to(tl.float32) * beta[None, :]
        acc1 = acc1 * alpha[None, :] + tl.dot(high_nibbles(b_v, ASM), b_p).to(tl.float32) * beta[None, :]
    else:
        acc0 = acc0 * alpha[None, :] + tl.dot(b_v, b_p).to(tl.float32) * beta[None, :]
    return m_new, mass, acc0, acc1


@triton.jit(do_not_specialize=["table_ptr", "length_ptr", "splits", "table_stride"])
def decode_partial_kernel(
    q_ptr,  # [sequences, heads, D], sequences q_stride apart
    k_ptr,  # key codes of the first page
    v_ptr,  # value codes of the first page
    ks_ptr,  # fp32; per token: scale plane of the first page; static: [KV heads]
    vs_ptr,
    table_ptr,  # [sequences, table_stride] int32 pages
    length_ptr,  # [sequences] int32
    o_ptr,  # [sequences, heads, splits, D] fp32
    lse_ptr,  # [sequences, heads, splits] fp32, base 2
    softmax_scale,
    q_stride,  # elements of q_ptr
    table_stride,
    page_stride,  # elements of k_ptr and v_ptr
    scale_stride,  # elements of ks_ptr and vs_ptr
    splits,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,  # query heads per KV head
    GP: tl.constexpr,  # GROUP padded to 8, 16, ...
    D: tl.constexpr,
    PAGE: tl.constexpr,
    BLOCK: tl.constexpr,  # tokens per transposed block of values; 0: not transposed
    TILE: tl.constexpr,
    SPAN: tl.constexpr,  # pages that a tile can lie in; 0: tiles start afresh in every page
    SCOPE: tl.constexpr,  # "none", "static", "token"
    CODE: tl.constexpr,  # type of the codes that are multiplied
    PACKED: tl.constexpr,  # two 4-bit codes per byte: dimensions d and d + D / 2
    MAXIMUM: tl.constexpr,  # largest code of q and p
    RESIDUAL: tl.constexpr,  # see two_codes; 0: 16-bit operands
    ASM: tl.constexpr,  # "ptx" or "none"
    PIECES: tl.constexpr,  # whole tiles of each page, then the pages' last 16 tokens, see ``pieces``
):
    sequence, head, split = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    length = tl.load(length_ptr + sequence)
    if PIECES:
        whole, tiles = piece_counts(length, PAGE, TILE)
        tiles += whole
    else:
        tiles = tile_count(length, PAGE, TILE, SPAN)
        whole = tiles
    per_split = tl.cdiv(tiles, splits)
    first = split * per_split
    end = tl.minimum(first + per_split, tiles)

    ROW: tl.constexpr = D // 2 if PACKED else D
    N: tl.constexpr = 2 * GP if RESIDUAL > 0 else GP
    o_g = tl.arange(0, GP)
    o_d = tl.arange(0, ROW)
    m_g = o_g < GROUP
    row = sequence * (KV_HEADS * GROUP) + head * GROUP + o_g
    p_q = q_ptr + sequence * q_stride + (head * GROUP + o_g)[:, None] * D + o_d[None, :]
    b_q0 = tl.load(p_q, mask=m_g[:, None], other=0.0)
    b_q1 = b_q0
    q_scale = tl.full([GP], softmax_scale * 1.4426950408889634, tl.float32)
    if RESIDUAL > 0:
        if PACKED:
            b_q1 = tl.load(p_q + ROW, mask=m_g[:, None], other=0.0)
            b_q0 = b_q0.to(tl.float32)
            b_q1 = b_q1.to(tl.float32)
            top = tl.maximum(tl.max(tl.abs(b_q0), 1), tl.max(tl.abs(b_q1), 1))
            b_q0, factor = queries(b_q0, top, RESIDUAL, MAXIMUM, CODE, GP, ROW)
            b_q1, factor = queries(b_q1, top, RESIDUAL, MAXIMUM, CODE, GP, ROW)
            q_scale *= factor * (1.0 / (16 * RESIDUAL))
        else:
            b_q0 = b_q0.to(tl.float32)
            b_q0, factor = queries(b_q0, tl.max(tl.abs(b_q0), 1), RESIDUAL, MAXIMUM, CODE, GP, ROW)
            b_q1 = b_q0
            q_scale *= factor * (1.0 / RESIDUAL)
    else:
        b_q0 = tl.trans(b_q0.to(k_ptr.dtype.element_ty))
        b_q1 = b_q0
    if SCOPE == "static":
        q_scale *= tl.load(ks_ptr + head)

    m = tl.full([GP], float("-inf"), tl.float32)
    mass = tl.zeros([TILE, GP], tl.float32)
    acc0 = tl.zeros([ROW, N], tl.float32)
    acc1 = tl.zeros([ROW, N], tl.float32)
    p_table = table_ptr + sequence * table_stride
    if not PIECES or PAGE >= TILE:
        for i in range(first, tl.minimum(end, whole)):
            m, mass, acc0, acc1 = tile_step(
                b_q0, b_q1, q_scale, m, mass, acc0, acc1,
                p_table, k_ptr, v_ptr, ks_ptr, vs_ptr, i, length, page_stride, scale_stride, head,
                RESIDUAL, MAXIMUM, CODE, PACKED, SCOPE == "token", ASM, GP, ROW, PAGE, BLOCK, TILE, SPAN,
                "whole" if PIECES else "any",
            )  # fmt: skip
    if PIECES:
        for i in range(tl.maximum(first, whole), end):
            m, mass, acc0, acc1 = tile_step(
                b_q0, b_q1, q_scale, m, mass, acc0, acc1,
                p_table, k_ptr, v_ptr, ks_ptr, vs_ptr, i - whole, length, page_stride, scale_stride, head,
                RESIDUAL, MAXIMUM, CODE, PACKED, SCOPE == "token", ASM, GP, ROW, PAGE, BLOCK, TILE, SPAN, "pieces",
            )  # fmt: skip

    total = tl.sum(mass, 0)
    ok = total > 0
    norm = 1.0 / tl.where(ok, total, 1.0)
    if RESIDUAL > 0:
        norm *= 1.0 / MAXIMUM / (16 if PACKED else 1)
        if SCOPE == "static":
            norm *= tl.load(vs_ptr + head)
        high, low = halves(acc0, ROW, GP)
        acc0 = high + low
        if PACKED:
            high, low = halves(acc1, ROW, GP)
            acc1 = high + low
    p_o = o_ptr + ((row * splits + split) * D)[None, :] + o_d[:, None]
    tl.store(p_o, acc0 * norm[None, :], mask=m_g[None, :])
    if PACKED:
        tl.store(p_o + ROW, acc1 * norm[None, :], mask=m_g[None, :])
    lse = tl.where(ok, m + tl.log2(tl.where(ok, total, 1.0)), float("-inf"))
    tl.store(lse_ptr + row * splits + split, lse, mask=m_g)


@triton.jit(do_not_specialize=["splits"])
def decode_combine_kernel(
    o_ptr,  # [sequences * heads, splits, D] fp32
    lse_ptr,  # [sequences * heads, splits] fp32, base 2
    out_ptr,  # [sequences * heads, D]
    splits,
    D: tl.constexpr,
    SPLITS_PADDED: tl.constexpr,  # the least power of two that is not below splits
):
    """Weighted mean of the splits of one query head; zero for an empty sequence."""
    row = tl.program_id(0).to(tl.int64)
    o_s = tl.arange(0, SPLITS_PADDED)
    o_d = tl.arange(0, D)
    m_s = o_s < splits
    lse = tl.load(lse_ptr + row * splits + o_s, mask=m_s, other=float("-inf"))
    top = tl.max(lse, 0)
    weight = tl.exp2(lse - tl.where(top > float("-inf"), top, 0.0))
    parts = tl.load(o_ptr + (row * splits + o_s)[:, None] * D + o_d[None, :], mask=m_s[:, None], other=0.0)
    total = tl.sum(weight, 0)
    out = tl.sum(parts * weight[:, None], 0) / tl.where(total > 0, total, 1.0)
    tl.store(out_ptr + row * D + o_d, out.to(out_ptr.dtype.element_ty))
