# mypy: ignore-errors
# Triton's language is not Python: annotations there are compile-time values.
"""Triton kernel of load. Grid: (token tiles, KV heads)."""

import triton
import triton.language as tl
from adrbench.kernels.store.kernel import halves_of, value_rows


@triton.jit
def grouped_rows(code, p_group, m_t, first: tl.constexpr, PAGE: tl.constexpr):
    """fp32 values [TILE, 32 * groups] of codes; ``p_group`` [TILE]: where its head's first word lies."""
    TILE: tl.constexpr = code.shape[0]
    H: tl.constexpr = code.shape[1] // 32
    word = tl.load(p_group[:, None] + (first + tl.arange(0, H))[None, :] * PAGE, mask=m_t[:, None], other=0)
    scale, offset = halves_of(word)
    x = tl.reshape(code.to(tl.float32), (TILE, H, 32)) * scale[:, :, None] + offset[:, :, None]
    return tl.reshape(x, (TILE, H * 32))


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
    if SCOPE == "group":
        p_group = scale_ptr + page * scale_stride + head * (PAGE * (D // 32)) + token
        low = grouped_rows((code << 4) >> 4, p_group, m_t, 0, PAGE)
        high = grouped_rows(code >> 4, p_group, m_t, D // 64, PAGE)
        p_x = out_ptr + p_out[:, None] + o_d[None, :]
        tl.store(p_x, low.to(out_ptr.dtype.element_ty), mask=m_t[:, None])
        tl.store(p_x + ROW, high.to(out_ptr.dtype.element_ty), mask=m_t[:, None])
    else:
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


@triton.jit(do_not_specialize=["slot_ptr", "tokens"])
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
