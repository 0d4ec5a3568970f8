"""Torch reference of store and load: what the cache must hold, byte for byte."""

from __future__ import annotations

import torch
from adrbench.kernels.formats.layout import PagedCache
from adrbench.kernels.formats.packing import pack, unpack
from adrbench.kernels.formats.scheme import Plane
from adrbench.kernels.store import grouped


def _codes(plane: Plane, x: torch.Tensor, scale: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Codes ``[tokens, heads, dim]`` and, for per-token schemes, scales ``[tokens, heads]``; for grouped ones
    words of a scale and an offset ``[tokens, heads, groups]``."""
    if plane.scope == "row_group":
        codes, words = grouped.quantise(x, plane.group)
        return pack(codes), words
    per_head = None if scale is None else scale[:, None]
    stored = plane.quantise(x, per_head)
    codes = pack(stored.codes) if plane.values.bits == 4 else stored.codes
    dynamic = stored.scale is not None and plane.scope == "token_head"
    return codes, stored.scale[..., 0] if dynamic and stored.scale is not None else None


def _value_index(cache: PagedCache, page: torch.Tensor, token: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Index of the values ``[tokens, heads, row]`` of tokens in ``cache.value``."""
    heads = torch.arange(cache.layout.kv_heads, device=page.device)
    return page[:, None, None], heads[None, :, None], cache.layout.value_offsets(token)[:, None, :]


def _set(plane: torch.Tensor, page: torch.Tensor, token: torch.Tensor, scales: torch.Tensor) -> None:
    """Write ``scales`` ``[tokens, heads, ...]`` to ``plane`` ``[pages, heads, ..., page_size]``."""
    plane.movedim(-1, 1)[page, token] = scales


def store(
    cache: PagedCache,
    key: torch.Tensor,
    value: torch.Tensor,
    slots: torch.Tensor,
    key_scale: torch.Tensor | None = None,
    value_scale: torch.Tensor | None = None,
) -> None:
    """Write ``key`` and ``value`` ``[tokens, heads, dim]`` to ``slots`` ``[tokens]``; negative slots are skipped.

    Static scales are ``[heads]``.
    """
    kept = slots >= 0
    page, token = slots[kept] // cache.layout.page_size, slots[kept] % cache.layout.page_size
    codes, scales = _codes(cache.layout.scheme.key, key[kept], key_scale)
    cache.key[page, :, token] = codes
    if scales is not None and cache.key_scale is not None:
        _set(cache.key_scale, page, token, scales)
    codes, scales = _codes(cache.layout.scheme.value, value[kept], value_scale)
    cache.value[_value_index(cache, page, token)] = codes
    if scales is not None and cache.value_scale is not None:
        _set(cache.value_scale, page, token, scales)


def load(
    cache: PagedCache,
    slots: torch.Tensor,
    key_scale: torch.Tensor | None = None,
    value_scale: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values ``[tokens, heads, dim]`` fp32 of non-negative ``slots``."""
    page, token = slots // cache.layout.page_size, slots % cache.layout.page_size
    key = cache.key[page, :, token]
    value = cache.value[_value_index(cache, page, token)]
    if cache.layout.scheme.key.values.bits == 4:
        key, value = unpack(key), unpack(value)
    key, value = key.float(), value.float()
    group = cache.layout.scheme.key.group
    if group and cache.key_scale is not None and cache.value_scale is not None:
        planes = [plane.movedim(-1, 1)[page, token] for plane in (cache.key_scale, cache.value_scale)]
        return grouped.dequantise(key, planes[0], group), grouped.dequantise(value, planes[1], group)
    for x, plane, static in ((key, cache.key_scale, key_scale), (value, cache.value_scale, value_scale)):
        if plane is not None:
            x *= plane[page, :, token][..., None]
        elif static is not None:
            x *= static[:, None]
    return key, value
