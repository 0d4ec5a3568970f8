"""Launchers of store and load: shape checks, then the kernel."""

from __future__ import annotations

from typing import Any

import torch
import triton
from adrbench.kernels.formats.layout import BLOCK_TOKENS, PagedCache, PageLayout
from adrbench.kernels.formats.scheme import SCALE_FLOOR
from adrbench.kernels.formats.served import scope_of
from adrbench.kernels.store.grouped import GROUP_FLOOR
from adrbench.kernels.store.kernel import store_blocks_kernel, store_scattered_kernel
from adrbench.kernels.store.load_kernel import load_kernel

LOAD_TILE_TOKENS = 16

BLOCKS_FROM_TOKENS = 4 * BLOCK_TOKENS
"""Batches of at least this many tokens are stored block by block; a decode step has no blocks."""

BLOCK_WARPS: int | None = None
"""Warps of a program that stores one block; None: ``block_warps``."""

BLOCK_REGISTERS: int | None = None
"""Limit of a thread's registers on NVIDIA, so that more programs fit a unit; None or 0: the compiler's choice."""

BLOCK_EARLY = False
"""Whether the block kernel loads rows before it is known where their block begins."""


BLOCK_HEADS = 0
"""Heads of a program of the block kernel (``store/runs.py``), as far as they divide the cache's; 0: one, and every
block is searched for."""


def heads_of(kv_heads: int) -> int:
    """Heads of a program: ``BLOCK_HEADS``, or the largest part of it that divides ``kv_heads``."""
    return next((n for n in range(BLOCK_HEADS, 0, -1) if kv_heads % n == 0), 0)


def block_warps(layout: PageLayout) -> int:
    """Warps of a program that stores one block, as measured: with a scale to find per row of few bytes, fewer
    threads a row are faster."""
    few = scope_of(layout.scheme) == "token" and layout.scheme.key.values.bits == 8 and layout.head_dim <= 128
    return 2 if few else 4


def _check_rows(cache: PagedCache, key: torch.Tensor, value: torch.Tensor, slots: torch.Tensor) -> None:
    heads, dim = cache.layout.kv_heads, cache.layout.head_dim
    for name, x in (("key", key), ("value", value)):
        if x.ndim != 3 or tuple(x.shape[1:]) != (heads, dim):
            raise ValueError(f"{name} is {tuple(x.shape)}, the cache holds [tokens, {heads}, {dim}]")
        if x.stride(2) != 1 or x.stride(1) != dim:
            raise ValueError(f"{name}: heads and dimensions must be contiguous, strides are {x.stride()}")
    if cache.pages * cache.layout.page_size >= 1 << 31:
        raise ValueError(f"{cache.pages} pages of {cache.layout.page_size}: slots must fit 31 bits")
    if key.shape[0] != value.shape[0]:
        raise ValueError(f"{key.shape[0]} keys and {value.shape[0]} values")
    if slots.shape != (key.shape[0],) or slots.dtype != torch.int64:
        raise ValueError(f"slots must be int64 [{key.shape[0]}], got {slots.dtype} {tuple(slots.shape)}")


def scale_arguments(
    cache: PagedCache, scope: str, key_scale: torch.Tensor | None, value_scale: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor, int]:
    """(key scales, value scales, page stride in scales) for the kernels; a dummy where no scale is read."""
    if scope in ("token", "group"):
        assert cache.key_scale is not None
        assert cache.value_scale is not None
        return cache.key_scale, cache.value_scale, cache.key_scale.stride(0)
    if scope == "static":
        for name, scale in (("key_scale", key_scale), ("value_scale", value_scale)):
            if scale is None or scale.shape != (cache.layout.kv_heads,) or scale.dtype != torch.float32:
                raise ValueError(f"{cache.layout.scheme.name} needs {name}: fp32 [{cache.layout.kv_heads}]")
        assert key_scale is not None
        assert value_scale is not None
        return key_scale, value_scale, 0
    return cache.buffer, cache.buffer, 0


def codes_pointer(codes: torch.Tensor) -> torch.Tensor:
    """Packed bytes are signed to the kernels."""
    return codes.view(torch.int8) if codes.dtype == torch.uint8 else codes


def constants(layout: PageLayout) -> dict[str, Any]:
    """Compile-time arguments that all kernels of a layout share.

    Raises:
        NotImplementedError: padded key rows, which no kernel reads.
    """
    if layout.key_row_bytes != layout.scheme.key.code_bytes(layout.head_dim):
        raise NotImplementedError(f"head_dim {layout.head_dim}: no kernel for padded rows of {layout.scheme.name}")
    return {
        "D": layout.head_dim,
        "PAGE": layout.page_size,
        "SCOPE": scope_of(layout.scheme),
        "PACKED": layout.scheme.key.values.bits == 4,
        "BLOCK": BLOCK_TOKENS if layout.values_transposed else 0,
    }


def store_constants(layout: PageLayout) -> dict[str, Any]:
    """And those that the two store kernels add."""
    floor = GROUP_FLOOR if constants(layout)["SCOPE"] == "group" else SCALE_FLOOR
    return constants(layout) | {"MAXIMUM": layout.scheme.key.values.maximum, "FLOOR": floor}


def store(
    cache: PagedCache,
    key: torch.Tensor,
    value: torch.Tensor,
    slots: torch.Tensor,
    key_scale: torch.Tensor | None = None,
    value_scale: torch.Tensor | None = None,
) -> None:
    """Quantise ``key`` and ``value`` and write them to ``slots``; see ``reference.store``.

    Raises:
        ValueError: shapes, strides or dtypes that the kernel does not take.
        NotImplementedError: the scheme has no store kernel.
    """
    scope = scope_of(cache.layout.scheme)
    _check_rows(cache, key, value, slots)
    ks, vs, scale_stride = scale_arguments(cache, scope, key_scale, value_scale)
    tokens = key.shape[0]
    if tokens == 0:
        return
    common = store_constants(cache.layout)
    arguments = (
        key,
        value,
        slots,
        codes_pointer(cache.key),
        codes_pointer(cache.value),
        ks,
        vs,
        tokens,
        key.stride(0),
        value.stride(0),
        cache.key.stride(0),
        scale_stride,
    )
    if cache.layout.values_transposed and tokens >= BLOCKS_FROM_TOKENS:
        heads = heads_of(cache.layout.kv_heads)
        blocks = (triton.cdiv(tokens, BLOCK_TOKENS), cache.layout.kv_heads // max(1, heads), 2)
        limit = {"maxnreg": BLOCK_REGISTERS} if BLOCK_REGISTERS else {}
        warps = BLOCK_WARPS or block_warps(cache.layout)
        store_blocks_kernel[blocks](*arguments, **common, EARLY=BLOCK_EARLY, HEADS=heads, num_warps=warps, **limit)
    else:
        tile = 1 if cache.layout.values_transposed else 16
        grid = (triton.cdiv(tokens, tile), cache.layout.kv_heads)
        store_scattered_kernel[grid](*arguments, **common, TILE=tile, num_warps=1 if tile == 1 else 4)


def load(
    cache: PagedCache,
    slots: torch.Tensor,
    dtype: torch.dtype = torch.float32,
    key_scale: torch.Tensor | None = None,
    value_scale: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values ``[tokens, heads, dim]`` in ``dtype`` of ``slots``; see ``reference.load``."""
    scope = scope_of(cache.layout.scheme)
    shape = (slots.shape[0], cache.layout.kv_heads, cache.layout.head_dim)
    key = torch.empty(shape, dtype=dtype, device=slots.device)
    value = torch.empty_like(key)
    _check_rows(cache, key, value, slots)
    ks, vs, scale_stride = scale_arguments(cache, scope, key_scale, value_scale)
    if slots.shape[0]:
        load_kernel[(triton.cdiv(slots.shape[0], LOAD_TILE_TOKENS), cache.layout.kv_heads)](
            key,
            value,
            slots,
            codes_pointer(cache.key),
            codes_pointer(cache.value),
            ks,
            vs,
            slots.shape[0],
            key.stride(0),
            cache.key.stride(0),
            scale_stride,
            TILE=LOAD_TILE_TOKENS,
            **constants(cache.layout),
        )
    return key, value
