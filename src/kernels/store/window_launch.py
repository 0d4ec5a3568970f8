"""Launcher of the store of windowed schemes: shape checks, then the two kernels."""

from __future__ import annotations

from typing import Any

import torch
from adrbench.kernels.formats.layout import BLOCK_TOKENS, Newest, PagedCache, PageLayout, Ring, RingPages
from adrbench.kernels.formats.scheme import SCALE_FLOOR
from adrbench.kernels.formats.served import check_windowed
from adrbench.kernels.store.launch import codes_pointer
from adrbench.kernels.store.window_kernel import store_left_kernel, store_newest_kernel


def constants(layout: PageLayout) -> dict[str, Any]:
    """Compile-time arguments of ``store_left_kernel``.

    Raises:
        NotImplementedError: a scheme that is not KIVI's at 4 bit, or pages that are no whole groups.
    """
    key, value = layout.scheme.key, layout.scheme.value
    check_windowed(layout.scheme)
    if layout.page_size % BLOCK_TOKENS:
        raise NotImplementedError(f"{layout.scheme.name}: pages must be a multiple of {BLOCK_TOKENS} tokens")
    if layout.head_dim not in (64, 128, 256):
        raise NotImplementedError(f"head_dim {layout.head_dim}: use one of (64, 128, 256)")
    return {
        "D": layout.head_dim,
        "PAGE": layout.page_size,
        "WINDOW": value.residual,
        "STEP": key.window_step,
        "SPAN_FLOOR": SCALE_FLOOR,
    }


NEWEST = ("D", "WINDOW")
"""The compile-time arguments that ``store_newest_kernel`` takes beside those of ``ring_constants``."""


def ring_constants(newest: Newest) -> dict[str, int]:
    """Compile-time arguments of where the newest rows lie."""
    return {"UNITS": newest.units, "FIRST_VALUE": newest.first_value}


def grid_blocks(most: int, step: int) -> tuple[int, int]:
    """(blocks of keys, blocks of values) of 32 tokens that ``most`` new tokens can complete, wherever they begin."""
    return -(-most // step) * (step // BLOCK_TOKENS), blocks_of(most)


def blocks_of(tokens: int) -> int:
    """Aligned blocks of 32 tokens that a run of ``tokens`` can touch."""
    return (tokens + 2 * BLOCK_TOKENS - 2) // BLOCK_TOKENS


def _check(
    cache: PagedCache, ring: Ring | RingPages, key: torch.Tensor, value: torch.Tensor, table: torch.Tensor,
    starts: torch.Tensor, lengths: torch.Tensor,
) -> None:  # fmt: skip
    heads, dim = cache.layout.kv_heads, cache.layout.head_dim
    for name, x in (("key", key), ("value", value)):
        if x.ndim != 3 or tuple(x.shape[1:]) != (heads, dim) or x.stride()[1:] != (dim, 1):
            raise ValueError(
                f"{name} must be [tokens, {heads}, {dim}] with contiguous heads, got {tuple(x.shape)}, strides "
                f"{x.stride()}"
            )
        if x.dtype != ring.dtype:
            raise ValueError(f"{name} is {x.dtype}, the ring {ring.dtype}: they must not differ")
    if key.shape[0] != value.shape[0]:
        raise ValueError(f"{key.shape[0]} keys and {value.shape[0]} values")
    if table.ndim != 2 or table.dtype != torch.int32 or table.stride(1) != 1:
        raise ValueError(f"the block table must be int32 [sequences, pages], got {table.dtype} {tuple(table.shape)}")
    sequences = table.shape[0]
    for name, x, size in (("lengths", lengths, 0), ("starts", starts, 1)):
        size += sequences
        if x.shape != (size,) or x.dtype != torch.int32:
            raise ValueError(f"{name} must be int32 [{size}], got {x.dtype} {tuple(x.shape)}")


def store_windowed(
    cache: PagedCache,
    ring: Ring | RingPages,
    rows: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    table: torch.Tensor,
    starts: torch.Tensor,
    lengths: torch.Tensor,
    most: int,
    slots: torch.Tensor | None = None,
) -> None:
    """Append new tokens of a batch of sequences; together with earlier calls that is ``windowed.store_request``.

    Args:
        rows: int32 ``[sequences]``, each sequence's row of ``ring``, or its pages ``[sequences, window_pages]``; it
            must keep them while it lives.
        key, value: ``[tokens, kv_heads, dim]`` in the ring's dtype, sequence after sequence.
        table: int32 ``[sequences, pages]``.
        starts: int32 ``[sequences + 1]``, first row of each sequence in ``key``, and the number of rows.
        lengths: int32 ``[sequences]``, tokens with the new ones.
        most: largest number of new tokens of one sequence: the grid's size, so known to the host.
        slots: int64 ``[tokens]``: a sequence whose first row has -1 stores nothing. Nothing else is read from them.

    Raises:
        ValueError: arguments that the kernels do not take, with what they take.
        NotImplementedError: the scheme or the page size has no kernel.
    """
    fixed = constants(cache.layout)
    _check(cache, ring, key, value, table, starts, lengths)
    sequences, heads = table.shape[0], cache.layout.kv_heads
    newest = ring.newest(cache.layout, rows, sequences)
    if sequences == 0 or most == 0:
        return
    assert cache.key_scale is not None
    assert cache.value_scale is not None
    scales = [plane.view(torch.float16) for plane in (cache.key_scale, cache.value_scale)]
    key_blocks, value_blocks = grid_blocks(most, fixed["STEP"])
    marks, own = (starts, {"SLOTS": False}) if slots is None else (slots, {"SLOTS": True})
    rings, strides = (newest.key, newest.value, newest.table), (newest.table.stride(0), newest.stride)
    store_left_kernel[(sequences, heads, key_blocks + value_blocks)](
        key, value, *rings, table, starts, lengths, marks, codes_pointer(cache.key), codes_pointer(cache.value),
        *scales,
        key.stride(0), value.stride(0), table.stride(0), cache.key.stride(0), scales[0].stride(0), key_blocks,
        *strides,
        **fixed, **ring_constants(newest), **own, num_warps=4,
    )  # fmt: skip
    store_newest_kernel[(sequences, heads, blocks_of(min(most, fixed["WINDOW"])))](
        key, value, *rings, starts, lengths, marks, key.stride(0), value.stride(0), *strides,
        **{name: fixed[name] for name in NEWEST}, **ring_constants(newest), **own, num_warps=4,
    )  # fmt: skip
