# mypy: ignore-errors
# Triton's language is not Python: annotations there are compile-time values.
"""Addresses of tiles where pages are no whole tiles: whole tiles of each page first, then the pages' last 16 tokens.

A page of 784 tokens is six tiles of 128 and a piece of 16; a page of 16 is one piece. Whole tiles lie in one page and
in whole blocks of 32 values, so nothing is clamped, masked or half a block wide; a tile of pieces has one piece of 16
tokens from each of TILE / 16 pages. No slot is wasted, and a sum over tokens does not mind their order.
"""

import triton
import triton.language as tl


@triton.jit
def piece_counts(length, PAGE: tl.constexpr, TILE: tl.constexpr):
    """(whole tiles, tiles of pieces) of a sequence; a tile of its last page may be masked."""
    FULL: tl.constexpr = PAGE // TILE
    rest = length % PAGE
    whole = length // PAGE * FULL + tl.minimum(tl.cdiv(rest, TILE), FULL)
    pieces = length // PAGE + tl.where(rest > FULL * TILE, 1, 0)
    return whole, tl.cdiv(pieces, TILE // 16)


@triton.jit
def whole_addresses(
    table_ptr, tile, length, page_stride, scale_stride, head, ROW: tl.constexpr, PAGE: tl.constexpr, TILE: tl.constexpr
):
    """Offsets of whole tile ``tile``: keys [TILE, ROW], values [ROW, TILE], scales [TILE]; and which tokens exist."""
    FULL: tl.constexpr = PAGE // TILE
    number = tile // FULL
    token = tile % FULL * TILE + tl.arange(0, TILE)
    o_d = tl.arange(0, ROW)
    page = tl.load(table_ptr + number).to(tl.int64)
    base = page * page_stride + head * (PAGE * ROW)
    p_k = tl.multiple_of(tl.max_contiguous(base + token[:, None] * ROW + o_d[None, :], (1, 16)), (1, 16))
    p_v = base + (token // 32 * (32 * ROW) + token % 32)[None, :] + o_d[:, None] * 32
    p_v = tl.multiple_of(tl.max_contiguous(p_v, (1, 16)), (1, 16))
    return p_k, p_v, page * scale_stride + head * PAGE + token, number * PAGE + token < length


@triton.jit
def piece_addresses(
    table_ptr, tile, length, page_stride, scale_stride, head, ROW: tl.constexpr, PAGE: tl.constexpr, TILE: tl.constexpr
):
    """The same of a tile of pieces: keys [TILE / 16, 16, ROW], values [TILE / 16, ROW, 16], scales [TILE]."""
    FIRST: tl.constexpr = PAGE // TILE * TILE
    number = tile * (TILE // 16) + tl.arange(0, TILE // 16)
    o_t = tl.arange(0, 16)
    o_d = tl.arange(0, ROW)
    page = tl.load(table_ptr + tl.minimum(number, (length - 1) // PAGE)).to(tl.int64)
    base = (page * page_stride + head * (PAGE * ROW) + FIRST * ROW)[:, None, None]
    p_k = base + (o_t * ROW)[None, :, None] + o_d[None, None, :]
    p_v = base + (o_d * 16)[None, :, None] + o_t[None, None, :]
    p_k = tl.multiple_of(tl.max_contiguous(p_k, (1, 1, 16)), (1, 1, 16))
    p_v = tl.multiple_of(tl.max_contiguous(p_v, (1, 1, 16)), (1, 1, 16))
    p_s = (page * scale_stride + (head * PAGE + FIRST))[:, None] + o_t[None, :]
    m_t = (number * PAGE + FIRST)[:, None] + o_t[None, :] < length
    return p_k, p_v, tl.reshape(p_s, (TILE,)), tl.reshape(m_t, (TILE,))
