# mypy: ignore-errors
# Triton's language is not Python: annotations there are compile-time values.
"""Read windowed schemes (KIVI) back for chunks that continue a prompt: codes dequantised, the newest as they are.

Grid: (sequence, KV head, block of 32 tokens).
"""

import torch
import triton
import triton.language as tl
from adrbench.kernels.decode.window import keys_of, values_of
from adrbench.kernels.formats.layout import BLOCK_TOKENS, PagedCache, Ring, RingPages
from adrbench.kernels.store.launch import codes_pointer
from adrbench.kernels.store.window_kernel import ring_block
from adrbench.kernels.store.window_launch import constants, ring_constants


@triton.jit(do_not_specialize=["row_ptr", "table_ptr", "start_ptr", "length_ptr", "table_stride", "row_stride"])
def load_windowed_kernel(
    key_ptr,  # out [tokens, KV heads, D]
    value_ptr,
    k_ptr, v_ptr, ks_ptr, vs_ptr, rk_ptr, rv_ptr, row_ptr, table_ptr,
    start_ptr,  # [sequences] int32: row of a sequence's first token in the output
    length_ptr,  # [sequences] int32: tokens to read
    output_stride, table_stride, page_stride, scale_stride, row_stride, ring_stride,
    D: tl.constexpr, PAGE: tl.constexpr, WINDOW: tl.constexpr, STEP: tl.constexpr, UNITS: tl.constexpr,
    FIRST_VALUE: tl.constexpr,
):  # fmt: skip
    sequence, head, first = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2) * 32
    length = tl.load(length_ptr + sequence)
    if first < length:
        DTYPE: tl.constexpr = rk_ptr.dtype.element_ty
        ROW: tl.constexpr = D // 2
        o_t = tl.arange(0, 32)
        o_d = tl.arange(0, ROW)
        t = first + o_t
        m_t = t < length
        page = tl.load(table_ptr + sequence * table_stride + first // PAGE).to(tl.int64)
        place = first % PAGE
        codes = page * page_stride + head * (PAGE * ROW) + place * ROW
        p_out = ((tl.load(start_ptr + sequence) + t).to(tl.int64) * output_stride + head * D)[:, None] + o_d[None, :]

        p_ring = ring_block(row_ptr, sequence, head, first, row_stride, ring_stride, 0, UNITS, WINDOW, D) + o_t * D
        p_scale = page * scale_stride + (head * (PAGE // 32) + place // 32) * D
        m_code = m_t & (t < length // STEP * STEP)
        m_ring = m_t & (t >= length // STEP * STEP)
        x = keys_of(k_ptr, ks_ptr, rk_ptr, codes, p_scale, p_ring, m_code, m_ring, 0, ROW, DTYPE)
        tl.store(key_ptr + p_out, x, mask=m_t[:, None])
        x = keys_of(k_ptr, ks_ptr, rk_ptr, codes, p_scale, p_ring, m_code, m_ring, 1, ROW, DTYPE)
        tl.store(key_ptr + p_out + ROW, x, mask=m_t[:, None])

        p_ring = (
            ring_block(row_ptr, sequence, head, first, row_stride, ring_stride, FIRST_VALUE, UNITS, WINDOW, D) + o_t * D
        )
        p_scale = page * scale_stride + head * (PAGE * (D // 32))
        m_code = m_t & (t < length - WINDOW)
        m_ring = m_t & (t >= length - WINDOW)
        x = values_of(v_ptr, vs_ptr, rv_ptr, codes, p_scale, p_ring, place + o_t, m_code, m_ring, 0, ROW, PAGE, DTYPE)
        tl.store(value_ptr + p_out, tl.trans(x), mask=m_t[:, None])
        x = values_of(v_ptr, vs_ptr, rv_ptr, codes, p_scale, p_ring, place + o_t, m_code, m_ring, 1, ROW, PAGE, DTYPE)
        tl.store(value_ptr + p_out + ROW, tl.trans(x), mask=m_t[:, None])


LOADED = ("D", "PAGE", "WINDOW", "STEP")
"""The compile-time arguments of ``window_launch.constants`` that ``load_windowed_kernel`` takes."""


def load_windowed(
    cache: PagedCache,
    ring: Ring | RingPages,
    rows: torch.Tensor,
    table: torch.Tensor,
    lengths: torch.Tensor,
    starts: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    longest: int,
) -> None:
    """Write what a reader of the first ``lengths`` tokens of each sequence gets to ``key`` and ``value``.

    Args:
        rows, table: as ``window_launch.store_windowed``.
        lengths: int32 ``[sequences]``: all tokens that have been stored, and no more.
        starts: int32 ``[sequences]``, the row of a sequence's first token in ``key``; other rows are left alone.
        key, value: ``[tokens, kv_heads, dim]`` in the ring's dtype, contiguous.
        longest: largest of ``lengths``, or more: the grid's size.

    Raises:
        ValueError: arguments that the kernel does not take.
        NotImplementedError: the scheme or the page size has no kernel.
    """
    layout = cache.layout
    for name, x in (("key", key), ("value", value)):
        if x.shape[1:] != (layout.kv_heads, layout.head_dim) or not x.is_contiguous() or x.dtype != ring.dtype:
            raise ValueError(
                f"{name} must be contiguous [tokens, {layout.kv_heads}, {layout.head_dim}] in {ring.dtype}"
            )
    if longest == 0 or table.shape[0] == 0:
        return
    fixed = constants(layout)
    newest = ring.newest(layout, rows, table.shape[0])
    load_windowed_kernel[(table.shape[0], layout.kv_heads, triton.cdiv(longest, BLOCK_TOKENS))](
        key, value, codes_pointer(cache.key), codes_pointer(cache.value), cache.key_scale, cache.value_scale,
        newest.key, newest.value, newest.table, table, starts, lengths, key.stride(0), table.stride(0),
        cache.key.stride(0), cache.key_scale.stride(0), newest.table.stride(0), newest.stride,
        **{name: fixed[name] for name in LOADED}, **ring_constants(newest), num_warps=4,
    )  # fmt: skip
