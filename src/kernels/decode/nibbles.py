# mypy: ignore-errors
# ruff: noqa: RET505
# Triton's language is not Python: annotations there are compile-time values.
"""Packed 4-bit codes to fp16, and their scales beside them: PTX on NVIDIA, plain Triton elsewhere (``ASM``)."""

import triton
import triton.language as tl
from adrbench.kernels.store.kernel import halves_of


@triton.jit
def in_pairs(x, ASM: tl.constexpr):
    """Positions in the order in which ``unpack`` gives columns: 0, 2, 1, 3 of every four."""
    if ASM == "ptx":
        return x // 4 * 4 + x % 2 * 2 + x % 4 // 2
    else:
        return x


@triton.jit
def unpack(x, ASM: tl.constexpr):
    """(low, 16 times high) codes 0..15 of packed bytes in fp16, columns as ``in_pairs``; on NVIDIA in units of 2^-24,
    elsewhere whole: the matrix units of gfx90a take subnormal numbers for zero."""
    if ASM == "ptx":
        return tl.inline_asm_elementwise(
            """{ .reg .b32 h; shr.b32 h, $4, 8;
            lop3.b32 $0, $4, 0x000F000F, 0x00080008, 0x6A; lop3.b32 $1, h, 0x000F000F, 0x00080008, 0x6A;
            lop3.b32 $2, $4, 0x00F000F0, 0x00800080, 0x6A; lop3.b32 $3, h, 0x00F000F0, 0x00800080, 0x6A; }""",
            "=r,=r,=r,=r,r", [x], dtype=(tl.float16, tl.float16), is_pure=True, pack=4,
        )  # fmt: skip
    else:
        low = (x.to(tl.int32) ^ 8) & 0x0F
        high = (x.to(tl.int32) ^ 0x80) & 0xF0
        return low.to(tl.float16), high.to(tl.float16)


@triton.jit
def unpack_scaled(x, scale, zero, ASM: tl.constexpr, EIGHT: tl.constexpr):
    """Codes 0..15, less 8 with EIGHT, times scale plus zero: (low, high) in fp16, columns as ``in_pairs``. On NVIDIA
    ``scale`` and ``zero`` are words of ``operands``, one for each byte; elsewhere pairs (low, high) of fp32.

    A nibble in the mantissa of 1024 is 1024 + u (high ones 1024 + 16 u), so codes become whole numbers exactly
    and a scale may be any fp16 number.
    """
    if ASM == "ptx":
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
    else:
        low = ((x.to(tl.int32) ^ 8) & 0x0F).to(tl.float32)
        high = ((x.to(tl.int32) ^ 0x80) & 0xF0).to(tl.float32) * (1.0 / 16)
        if EIGHT:
            low -= 8.0
            high -= 8.0
        return (low * scale[0] + zero[0]).to(tl.float16), (high * scale[1] + zero[1]).to(tl.float16)


@triton.jit
def operands_of_words(low, high, ASM: tl.constexpr):
    """Operands of ``unpack_scaled`` (EIGHT) for values [N], from words (fp16 scale, fp16 offset of code 8) of the group
    of low nibbles and of that of high ones."""
    if ASM == "ptx":
        return tl.inline_asm_elementwise(
            """prmt.b32 $0, $8, $10, 0x5410; prmt.b32 $4, $8, $10, 0x7632;
            prmt.b32 $1, $9, $11, 0x5410; prmt.b32 $5, $9, $11, 0x7632;
            prmt.b32 $2, $12, $14, 0x5410; prmt.b32 $6, $12, $14, 0x7632;
            prmt.b32 $3, $13, $15, 0x5410; prmt.b32 $7, $13, $15, 0x7632;""",
            "=&r,=&r,=&r,=&r,=&r,=&r,=&r,=&r,r,r,r,r,r,r,r,r", [low, high], dtype=(tl.int32, tl.int32), is_pure=True,
            pack=4,
        )  # fmt: skip
    else:
        s0, z0 = halves_of(low)
        s1, z1 = halves_of(high)
        return (s0, s1), (z0, z1)


@triton.jit
def halves_of_plane(word):
    """fp32 numbers of (low, high) nibbles [N] from a plane's words [N]; undoes ``formats.layout.pair_order``."""
    N: tl.constexpr = word.shape[0]
    x = tl.join(word.to(tl.int16), (word >> 16).to(tl.int16))
    x = tl.permute(tl.reshape(x, (N // 4, 2, 2, 2)), (0, 3, 2, 1))  # four, high, odd, half: to half, odd, high
    low, high = tl.split(x)
    low = tl.reshape(low, (N,)).to(tl.float16, bitcast=True)
    return low.to(tl.float32), tl.reshape(high, (N,)).to(tl.float16, bitcast=True).to(tl.float32)


@triton.jit
def operands_of_planes(scale_ptr, offset, zero: tl.constexpr, WIDTH: tl.constexpr, ASM: tl.constexpr):
    """The same, without EIGHT, from planes in the order of ``formats.layout.pair_order``: scales [WIDTH] words at
    ``offset``, zeros ``zero`` words further on."""
    o = tl.arange(0, WIDTH)
    scale = tl.load(scale_ptr + offset + o)
    zeros = tl.load(scale_ptr + offset + zero + o)
    if ASM == "ptx":
        return scale, zeros
    else:
        return halves_of_plane(scale), halves_of_plane(zeros)


@triton.jit
def over_rows(x, ASM: tl.constexpr):
    """An operand [N] as [1, N]."""
    if ASM == "ptx":
        return x[None, :]
    else:
        return x[0][None, :], x[1][None, :]
