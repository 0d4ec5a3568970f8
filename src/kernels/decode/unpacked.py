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
  of KIVI's keys) are applied to the codes: one ``fma.f16x2`` for two codes gives ``u * scale + zero`` times
  2^-12 (values) or 2^-14 (keys), shared by the four rows of a thread: one warp to a program, 32 tokens to a tile.
"""

import triton
import triton.language as tl
from adrbench.kernels.store.kernel import halves_of

UNIT: tl.constexpr = tl.constexpr(16777216.0)
"""2^24: codes are multiples of its inverse."""

GROUP_TOKENS: tl.constexpr = tl.constexpr(32)


@triton.jit
def in_pairs(x, ASM: tl.constexpr):
    """Positions in the order in which ``unpack`` gives columns: 0, 2, 1, 3 of every four."""
    if ASM == "ptx":
        return x // 4 * 4 + x % 2 * 2 + x % 4 // 2
    else:
        return x


@triton.jit
def log2(x, ASM: tl.constexpr):
    """Logarithm in one instruction; Triton's own is a polynomial of fifteen."""
    if ASM == "ptx":
        return tl.inline_asm_elementwise("lg2.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
    else:
        return tl.log2(x)


@triton.jit
def unpack(x, ASM: tl.constexpr):
    """(low, 16 times high) codes 0..15 of packed bytes in fp16, in units of 2^-24; columns as ``in_pairs``."""
    if ASM == "ptx":
        return tl.inline_asm_elementwise(
            """{ .reg .b32 h; shr.b32 h, $4, 8;
            lop3.b32 $0, $4, 0x000F000F, 0x00080008, 0x6A; lop3.b32 $1, h, 0x000F000F, 0x00080008, 0x6A;
            lop3.b32 $2, $4, 0x00F000F0, 0x00800080, 0x6A; lop3.b32 $3, h, 0x00F000F0, 0x00800080, 0x6A; }""",
            "=r,=r,=r,=r,r", [x], dtype=(tl.float16, tl.float16), is_pure=True, pack=4,
        )  # fmt: skip
    else:
        low = ((x.to(tl.int32) ^ 8) & 0x0F).to(tl.float32) * (1.0 / UNIT)
        high = ((x.to(tl.int32) ^ 0x80) & 0xF0).to(tl.float32) * (1.0 / UNIT)
        return low.to(tl.float16), high.to(tl.float16)


@triton.jit
def unpack_scaled(x, scale, zero, ASM: tl.constexpr, WIDE: tl.constexpr, EIGHT: tl.constexpr):
    """``unpack`` times scale plus zero. On NVIDIA ``scale`` and ``zero`` are words of ``operands``, one for each
    byte; elsewhere pairs (low, high) of fp32.

    WIDE: codes as whole numbers in fp16 instead, by way of 1024 + u, so that scales may be any fp16 number; less
    8 with EIGHT.
    """
    if ASM == "ptx" and WIDE:
        if EIGHT:
            return tl.inline_asm_elementwise(
                """{ .reg .b32 h, a, b, c, d, k, l, m; shr.b32 h, $4, 8;
                mov.b32 k, 0xE408E408; mov.b32 l, 0x2C002C00; mov.b32 m, 0xD480D480;
                lop3.b32 a, $4, 0x000F000F, 0x64086408, 0x6A; lop3.b32 b, h, 0x000F000F, 0x64086408, 0x6A;
                lop3.b32 c, $4, 0x00F000F0, 0x64806480, 0x6A; lop3.b32 d, h, 0x00F000F0, 0x64806480, 0x6A;
                add.rn.f16x2 a, a, k; add.rn.f16x2 b, b, k; fma.rn.f16x2 c, c, l, m; fma.rn.f16x2 d, d, l, m;
                fma.rn.f16x2 $0, a, $5, $9; fma.rn.f16x2 $1, b, $6, $10;
                fma.rn.f16x2 $2, c, $7, $11; fma.rn.f16x2 $3, d, $8, $12; }""",
                "=r,=r,=r,=r,r,r,r,r,r,r,r,r,r", [x, scale, zero], dtype=(tl.float16, tl.float16), is_pure=True, pack=4,
            )  # fmt: skip
        else:
            return tl.inline_asm_elementwise(
                """{ .reg .b32 h, a, b, c, d, k, l, m; shr.b32 h, $4, 8;
                mov.b32 k, 0xE400E400; mov.b32 l, 0x2C002C00; mov.b32 m, 0xD400D400;
                lop3.b32 a, $4, 0x000F000F, 0x64086408, 0x6A; lop3.b32 b, h, 0x000F000F, 0x64086408, 0x6A;
                lop3.b32 c, $4, 0x00F000F0, 0x64806480, 0x6A; lop3.b32 d, h, 0x00F000F0, 0x64806480, 0x6A;
                add.rn.f16x2 a, a, k; add.rn.f16x2 b, b, k; fma.rn.f16x2 c, c, l, m; fma.rn.f16x2 d, d, l, m;
                fma.rn.f16x2 $0, a, $5, $9; fma.rn.f16x2 $1, b, $6, $10;
                fma.rn.f16x2 $2, c, $7, $11; fma.rn.f16x2 $3, d, $8, $12; }""",
                "=r,=r,=r,=r,r,r,r,r,r,r,r,r,r", [x, scale, zero], dtype=(tl.float16, tl.float16), is_pure=True, pack=4,
            )  # fmt: skip
    elif ASM == "ptx":
        return tl.inline_asm_elementwise(
            """{ .reg .b32 h, a, b, c, d; shr.b32 h, $4, 8;
            lop3.b32 a, $4, 0x000F000F, 0x00080008, 0x6A; lop3.b32 b, h, 0x000F000F, 0x00080008, 0x6A;
            lop3.b32 c, $4, 0x00F000F0, 0x00800080, 0x6A; lop3.b32 d, h, 0x00F000F0, 0x00800080, 0x6A;
            fma.rn.f16x2 $0, a, $5, $9; fma.rn.f16x2 $1, b, $6, $10;
            fma.rn.f16x2 $2, c, $7, $11; fma.rn.f16x2 $3, d, $8, $12; }""",
            "=r,=r,=r,=r,r,r,r,r,r,r,r,r,r", [x, scale, zero], dtype=(tl.float16, tl.float16), is_pure=True, pack=4,
        )  # fmt: skip
    else:
        low = ((x.to(tl.int32) ^ 8) & 0x0F).to(tl.float32)
        high = ((x.to(tl.int32) ^ 0x80) & 0xF0).to(tl.float32)
        if WIDE:
            high *= 1.0 / 16
            if EIGHT:
                low -= 8.0
                high -= 8.0
        else:
            low *= 1.0 / UNIT
            high *= 1.0 / UNIT
        return (low * scale[0] + zero[0]).to(tl.float16), (high * scale[1] + zero[1]).to(tl.float16)


@triton.jit
def operands_of_words(low, high, ASM: tl.constexpr, WIDE: tl.constexpr):
    """Operands of ``unpack_scaled`` for values [N], from words (fp16 scale, fp16 offset of code 8) of the group of low
    nibbles and of that of high ones. WIDE: as they are, for EIGHT."""
    if ASM == "ptx" and WIDE:
        return tl.inline_asm_elementwise(
            """prmt.b32 $0, $8, $10, 0x5410; prmt.b32 $4, $8, $10, 0x7632;
            prmt.b32 $1, $9, $11, 0x5410; prmt.b32 $5, $9, $11, 0x7632;
            prmt.b32 $2, $12, $14, 0x5410; prmt.b32 $6, $12, $14, 0x7632;
            prmt.b32 $3, $13, $15, 0x5410; prmt.b32 $7, $13, $15, 0x7632;""",
            "=&r,=&r,=&r,=&r,=&r,=&r,=&r,=&r,r,r,r,r,r,r,r,r", [low, high], dtype=(tl.int32, tl.int32), is_pure=True,
            pack=4,
        )  # fmt: skip
    elif ASM == "ptx":
        # Scales times 2^12 (high: 2^8); offset - 8 scale, times 2^-12.
        return tl.inline_asm_elementwise(
            """{ .reg .b32 s, z, k, m, n, a, b;
            mov.b32 k, 0x0C000C00; mov.b32 m, 0x98009800; mov.b32 a, 0x6C006C00; mov.b32 b, 0x5C005C00;
            prmt.b32 s, $8, $10, 0x5410; prmt.b32 z, $8, $10, 0x7632; mul.rn.f16x2 $0, s, a;
            mul.rn.f16x2 n, z, k; fma.rn.f16x2 $4, s, m, n;
            prmt.b32 s, $9, $11, 0x5410; prmt.b32 z, $9, $11, 0x7632; mul.rn.f16x2 $1, s, a;
            mul.rn.f16x2 n, z, k; fma.rn.f16x2 $5, s, m, n;
            prmt.b32 s, $12, $14, 0x5410; prmt.b32 z, $12, $14, 0x7632; mul.rn.f16x2 $2, s, b;
            mul.rn.f16x2 n, z, k; fma.rn.f16x2 $6, s, m, n;
            prmt.b32 s, $13, $15, 0x5410; prmt.b32 z, $13, $15, 0x7632; mul.rn.f16x2 $3, s, b;
            mul.rn.f16x2 n, z, k; fma.rn.f16x2 $7, s, m, n; }""",
            "=r,=r,=r,=r,=r,=r,=r,=r,r,r,r,r,r,r,r,r", [low, high], dtype=(tl.int32, tl.int32), is_pure=True, pack=4,
        )  # fmt: skip
    else:
        s0, z0 = halves_of(low)
        s1, z1 = halves_of(high)
        if WIDE:
            return (s0, s1), (z0, z1)
        else:
            return (s0 * 4096.0, s1 * 256.0), ((z0 - 8.0 * s0) * (1.0 / 4096), (z1 - 8.0 * s1) * (1.0 / 4096))


@triton.jit
def operands_of_planes(
    scale_ptr, offset, zero: tl.constexpr, WIDTH: tl.constexpr, SHIFT: tl.constexpr, ASM: tl.constexpr,
    WIDE: tl.constexpr,
):  # fmt: skip
    """The same from planes in the order of ``formats.layout.pair_order``: scales [WIDTH] words at ``offset``, zeros
    ``zero`` words further on. SHIFT: 12 or 10, see ``unpack_scaled``."""
    o = tl.arange(0, WIDTH)
    if ASM == "ptx":
        scale = tl.load(scale_ptr + offset + o)
        zeros = tl.load(scale_ptr + offset + zero + o)
        if WIDE:
            return scale, zeros
        elif SHIFT == 12:
            return tl.inline_asm_elementwise(
                """{ .reg .b32 a, b, c;
                mov.b32 a, 0x6C006C00; mov.b32 b, 0x5C005C00; mov.b32 c, 0x0C000C00;
                mul.rn.f16x2 $0, $8, a; mul.rn.f16x2 $1, $9, a;
                mul.rn.f16x2 $2, $10, b; mul.rn.f16x2 $3, $11, b;
                mul.rn.f16x2 $4, $12, c; mul.rn.f16x2 $5, $13, c;
                mul.rn.f16x2 $6, $14, c; mul.rn.f16x2 $7, $15, c; }""",
                "=r,=r,=r,=r,=r,=r,=r,=r,r,r,r,r,r,r,r,r", [scale, zeros], dtype=(tl.int32, tl.int32), is_pure=True,
                pack=4,
            )  # fmt: skip
        else:
            return tl.inline_asm_elementwise(
                """{ .reg .b32 a, b, c;
                mov.b32 a, 0x64006400; mov.b32 b, 0x54005400; mov.b32 c, 0x04000400;
                mul.rn.f16x2 $0, $8, a; mul.rn.f16x2 $1, $9, a;
                mul.rn.f16x2 $2, $10, b; mul.rn.f16x2 $3, $11, b;
                mul.rn.f16x2 $4, $12, c; mul.rn.f16x2 $5, $13, c;
                mul.rn.f16x2 $6, $14, c; mul.rn.f16x2 $7, $15, c; }""",
                "=r,=r,=r,=r,=r,=r,=r,=r,r,r,r,r,r,r,r,r", [scale, zeros], dtype=(tl.int32, tl.int32), is_pure=True,
                pack=4,
            )  # fmt: skip
    else:
        FACTOR: tl.constexpr = 1 << SHIFT
        BACK: tl.constexpr = 1 << (24 - SHIFT)
        word = o // 4 * 4 + o % 2
        half = o % 4 // 2 * 16
        s0 = (tl.load(scale_ptr + offset + word) >> half).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
        s1 = (tl.load(scale_ptr + offset + word + 2) >> half).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
        z0 = (tl.load(scale_ptr + offset + zero + word) >> half).to(tl.int16).to(tl.float16, bitcast=True)
        z1 = (tl.load(scale_ptr + offset + zero + word + 2) >> half).to(tl.int16).to(tl.float16, bitcast=True)
        if WIDE:
            return (s0, s1), (z0.to(tl.float32), z1.to(tl.float32))
        else:
            zeros = (z0.to(tl.float32) * (1.0 / BACK), z1.to(tl.float32) * (1.0 / BACK))
            return (s0 * FACTOR, s1 * (FACTOR // 16)), zeros


@triton.jit
def over_rows(x, ASM: tl.constexpr):
    """An operand [N] as [1, N]."""
    if ASM == "ptx":
        return x[None, :]
    else:
        return x[0][None, :], x[1][None, :]


@triton.jit
def group_of_keys(
    k_ptr, p_k, ks_ptr, p_s, q_low, q_high, sum_low, sum_high, h: tl.constexpr,
    ASM: tl.constexpr, PAGE: tl.constexpr, H: tl.constexpr,
):  # fmt: skip
    """Scores [TILE, GP] times 2^-24 of groups h (low nibbles) and H + h (high nibbles), scaled per token."""
    low, high = unpack(tl.load(k_ptr + p_k + h * 32), ASM)
    scale_low, offset_low = halves_of(tl.load(ks_ptr + p_s + h * PAGE))
    scale_high, offset_high = halves_of(tl.load(ks_ptr + p_s + (H + h) * PAGE))
    offset_low -= 8.0 * scale_low
    offset_high -= 8.0 * scale_high
    s = tl.dot(low, q_low) * scale_low[:, None] + offset_low[:, None] * sum_low[None, :]
    return s + (tl.dot(high, q_high) * scale_high[:, None] + offset_high[:, None] * sum_high[None, :])


@triton.jit
def group_of_queries(p_q, m_g, first: tl.constexpr, factor, ROW: tl.constexpr):
    """(Q^T of low [32, GP], of high nibbles over 16, their sums times 2^-24) of 32 dimensions and their partners."""
    low = (tl.load(p_q + first, mask=m_g[None, :], other=0.0).to(tl.float32) * factor).to(tl.float16)
    high = tl.load(p_q + (ROW + first), mask=m_g[None, :], other=0.0).to(tl.float32) * (factor * (1.0 / 16))
    high = high.to(tl.float16)
    sums = tl.sum(low.to(tl.float32), 0) * (1.0 / UNIT), tl.sum(high.to(tl.float32), 0) * (16.0 / UNIT)
    return low, high, sums[0], sums[1]


@triton.jit
def tile_position(
    table_ptr, tile, length, page_stride, scale_stride, head, ROW: tl.constexpr, PAGE: tl.constexpr, TILE: tl.constexpr,
    SPAN: tl.constexpr, ASM: tl.constexpr,
):  # fmt: skip
    """Of one tile: the first byte of its head's plane of codes and scales for each token, its place in its page, and
    whether it exists, [TILE] each in the order of ``in_pairs`` and in the order of tokens (values).

    SPAN as in ``kernel.addresses``.
    """
    o_t = tl.arange(0, TILE)
    o_p = in_pairs(o_t, ASM)
    if SPAN == 0:
        TILES: tl.constexpr = (PAGE + TILE - 1) // TILE
        page = tl.load(table_ptr + tile // TILES).to(tl.int64)
        start = tile % TILES * TILE
        m_t = tile // TILES * PAGE + start + o_p < length
        k_token = start + o_p
        v_token = start + o_t
        if PAGE % TILE != 0:
            m_t &= k_token < PAGE
            k_token = tl.minimum(k_token // 16, PAGE // 16 - 1) * 16 + o_p % 16
            v_token = tl.minimum(v_token // 16, PAGE // 16 - 1) * 16 + o_t % 16
        base = page * page_stride + head * (PAGE * ROW)
        scales = page * scale_stride
        return base, base, scales, scales, k_token, v_token, m_t
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
        k_base = k_page * page_stride + plane
        v_base = v_page * page_stride + plane
        return k_base, v_base, k_page * scale_stride, v_page * scale_stride, k_token, v_token, m_t


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
    v_ptr, vs_ptr, v_base, v_token, p_s, tile, h: tl.constexpr, SCOPE: tl.constexpr, ASM: tl.constexpr,
    PAGE: tl.constexpr, TILE: tl.constexpr, SPAN: tl.constexpr, ROW: tl.constexpr, H: tl.constexpr,
    WIDE: tl.constexpr,
):  # fmt: skip
    """Values [32, TILE] of the groups h and H + h, not WIDE times 2^-12."""
    b_v = tl.load(v_ptr + value_offsets(v_base, v_token, h * 32, 32, ROW, PAGE, SPAN))
    if SCOPE == "group":
        low = tl.load(vs_ptr + p_s + v_token + h * PAGE)
        scale, zero = operands_of_words(low, tl.load(vs_ptr + p_s + v_token + (H + h) * PAGE), ASM, WIDE)
    else:
        place = p_s + h * 2 * PAGE + tile % (PAGE // TILE) * TILE
        scale, zero = operands_of_planes(vs_ptr, place, PAGE, TILE, 12, ASM, WIDE)
    return unpack_scaled(b_v, over_rows(scale, ASM), over_rows(zero, ASM), ASM, WIDE, SCOPE == "group")


@triton.jit(do_not_specialize=["splits", "table_stride"])
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
    WIDE: tl.constexpr,  # scales along summed axes may be any fp16 number; see ``unpack_scaled``
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
        q0, r0, a0, b0 = group_of_queries(p_q, m_g, 0, factor, ROW)
        q1, r1, a1, b1 = q0, r0, a0, b0
        q2, r2, a2, b2 = q0, r0, a0, b0
        q3, r3, a3, b3 = q0, r0, a0, b0
        if H > 1:
            q1, r1, a1, b1 = group_of_queries(p_q, m_g, 32, factor, ROW)
        if H > 2:
            q2, r2, a2, b2 = group_of_queries(p_q, m_g, 64, factor, ROW)
            q3, r3, a3, b3 = group_of_queries(p_q, m_g, 96, factor, ROW)
        q_scale *= UNIT
    else:
        p_q += in_pairs(o_d, ASM)[:, None]
        HIGH: tl.constexpr = 1.0 / 16 if SCOPE == "token" else 1.0
        q0 = (tl.load(p_q, mask=m_g[None, :], other=0.0).to(tl.float32) * factor).to(tl.float16)
        r0 = tl.load(p_q + ROW, mask=m_g[None, :], other=0.0).to(tl.float32) * (factor * HIGH)
        r0 = r0.to(tl.float16)
        if SCOPE == "token":
            # Codes are 0..15, eight more than they mean.
            start = tl.sum(q0.to(tl.float32), 0) + 16.0 * tl.sum(r0.to(tl.float32), 0)
            start = tl.broadcast_to((start * (-8.0 / UNIT))[None, :], (TILE, GP))
            q_scale *= UNIT
        elif not WIDE:
            q_scale *= 16384.0

    VROWS: tl.constexpr = ROW if SCOPE == "token" else 32
    m = tl.full([GP], float("-inf"), tl.float32)
    mass = tl.zeros([TILE, GP], tl.float32)
    codes = tl.zeros([TILE, GP], tl.float32)  # sum of p as the second product has them
    x0 = tl.zeros([VROWS, GP], tl.float32)  # outputs of low nibbles' groups; x: low, y: high
    y0 = tl.zeros([VROWS, GP], tl.float32)
    x1, x2, x3, y1, y2, y3 = x0, x0, x0, y0, y0, y0
    p_table = table_ptr + sequence * table_stride
    for i in range(first, end):
        k_base, v_base, k_scales, v_scales, k_token, v_token, m_t = tile_position(
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
            s = group_of_keys(k_ptr, p_k, ks_ptr, p_s, q0, r0, a0, b0, 0, ASM, PAGE, H)
            if H > 1:
                s += group_of_keys(k_ptr, p_k, ks_ptr, p_s, q1, r1, a1, b1, 1, ASM, PAGE, H)
            if H > 2:
                s += group_of_keys(k_ptr, p_k, ks_ptr, p_s, q2, r2, a2, b2, 2, ASM, PAGE, H)
                s += group_of_keys(k_ptr, p_k, ks_ptr, p_s, q3, r3, a3, b3, 3, ASM, PAGE, H)
            s = tl.where(m_t[:, None], s * q_scale, float("-inf"))
        else:
            number = i % (PAGE // TILE)
            place = k_scales + (head * (PAGE // 32) + number) * D
            scale, zero = operands_of_planes(ks_ptr, place, ROW, ROW, 10, ASM, WIDE)
            low, high = unpack_scaled(
                tl.load(k_ptr + p_k), over_rows(scale, ASM), over_rows(zero, ASM), ASM, WIDE, False
            )
            s = tl.dot(high, r0, tl.dot(low, q0)) * q_scale
        m_new = tl.maximum(m, tl.max(s, 0))
        alpha = tl.exp2(m - m_new)
        p = tl.exp2(s - m_new[None, :])
        m = m_new
        b_p = p.to(tl.float16)
        if SCOPE == "token":
            mass = mass * alpha[None, :] + p * tl.where(m_t, tl.exp2(-log_vs), 0.0)[:, None]
            codes = codes * alpha[None, :] + b_p.to(tl.float32)
            p_v = value_offsets(v_base, v_token, 0, ROW, ROW, PAGE, SPAN)
            low, high = unpack(tl.load(v_ptr + p_v), ASM)
            x0 = tl.dot(low, b_p, x0 * alpha[None, :])
            y0 = tl.dot(high, b_p, y0 * alpha[None, :])
        else:
            mass = mass * alpha[None, :] + p
            p_s = v_scales + head * (PAGE * 2 * H)
            low, high = group_of_values(
                v_ptr, vs_ptr, v_base, v_token, p_s, i, 0, SCOPE, ASM, PAGE, TILE, SPAN, ROW, H, WIDE
            )
            x0 = tl.dot(low, b_p, x0 * alpha[None, :])
            y0 = tl.dot(high, b_p, y0 * alpha[None, :])
            if H > 1:
                low, high = group_of_values(
                    v_ptr, vs_ptr, v_base, v_token, p_s, i, 1, SCOPE, ASM, PAGE, TILE, SPAN, ROW, H, WIDE
                )
                x1 = tl.dot(low, b_p, x1 * alpha[None, :])
                y1 = tl.dot(high, b_p, y1 * alpha[None, :])
            if H > 2:
                low, high = group_of_values(
                    v_ptr, vs_ptr, v_base, v_token, p_s, i, 2, SCOPE, ASM, PAGE, TILE, SPAN, ROW, H, WIDE
                )
                x2 = tl.dot(low, b_p, x2 * alpha[None, :])
                y2 = tl.dot(high, b_p, y2 * alpha[None, :])
                low, high = group_of_values(
                    v_ptr, vs_ptr, v_base, v_token, p_s, i, 3, SCOPE, ASM, PAGE, TILE, SPAN, ROW, H, WIDE
                )
                x3 = tl.dot(low, b_p, x3 * alpha[None, :])
                y3 = tl.dot(high, b_p, y3 * alpha[None, :])

    total = tl.sum(mass, 0)
    ok = total > 0
    norm = 1.0 / tl.where(ok, total, 1.0)
    part = row * (splits + PARTS) + split
    p_o = o_ptr + (part * D)[None, :] + tl.arange(0, VROWS)[:, None]
    if SCOPE == "token":
        norm *= UNIT
        eight = (tl.sum(codes, 0) * (8.0 / UNIT))[None, :]
        tl.store(p_o, (x0 - eight) * norm[None, :], mask=m_g[None, :])
        tl.store(p_o + ROW, (y0 * (1.0 / 16) - eight) * norm[None, :], mask=m_g[None, :])
    else:
        if not WIDE:
            norm *= 4096.0
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
