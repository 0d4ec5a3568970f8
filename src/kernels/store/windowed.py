"""Torch reference of windowed schemes (KIVI): what cache and ring hold of a whole request."""

from __future__ import annotations

import torch
from adrbench.kernels.formats.layout import PagedCache, Ring, pair_order
from adrbench.kernels.formats.packing import pack
from adrbench.kernels.formats.scheme import Plane


def _paired(scale: torch.Tensor) -> torch.Tensor:
    """fp32 scales ``[..., 2, positions]`` (low, high nibbles) as words ``[..., positions]`` in pair order."""
    position = torch.arange(scale.shape[-1], device=scale.device)
    out = torch.empty((*scale.shape[:-2], 2 * scale.shape[-1]), dtype=torch.float16, device=scale.device)
    for high in (0, 1):
        out[..., pair_order(position, high)] = scale[..., high, :].half()
    return out.view(torch.int32)


def _quantised(plane: Plane, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(codes ``[tokens, heads, dim]``, scales, zeros in the shape of the plane's groups)."""
    stored = plane.quantise(x)
    assert stored.scale is not None
    assert stored.zero is not None
    return stored.codes.reshape(x.shape), stored.scale, stored.zero


def store_request(
    cache: PagedCache, ring: Ring, row: int, key: torch.Tensor, value: torch.Tensor, pages: torch.Tensor
) -> None:
    """Write a whole request's rows ``[tokens, heads, dim]`` to its ``pages`` (in order) and to ``row`` of the ring."""
    lay, length = cache.layout, key.shape[0]
    window = ring.key.shape[2]
    assert cache.key_scale is not None
    assert cache.value_scale is not None
    newest = torch.arange(max(0, length - window), length, device=key.device)
    for plane, x in ((ring.key, key), (ring.value, value)):
        plane[row, :, newest % window] = x[newest].to(plane.dtype).transpose(0, 1)

    position = torch.arange(length, device=key.device)
    page, place = pages[position // lay.page_size].long(), position % lay.page_size
    end, group = lay.scheme.key.quantised_end(length), lay.scheme.key.group
    if end:
        codes, scale, zero = _quantised(lay.scheme.key, key[:end])  # scales [groups, 1, heads, dim]
        cache.key[page[:end], :, place[:end]] = pack(codes)
        first = torch.arange(0, end, group, device=key.device)
        for which, x in enumerate((scale, zero)):
            words = _paired(x[:, 0].unflatten(2, (2, -1)))  # [groups, heads, dim / 2]
            cache.key_scale[page[first], :, place[first] // group, which] = words
    end = lay.scheme.value.quantised_end(length)
    if end:
        codes, scale, zero = _quantised(lay.scheme.value, value[:end])  # scales [tokens, heads, groups, 1]
        heads = torch.arange(lay.kv_heads, device=key.device)
        offsets = lay.value_offsets(place[:end])
        cache.value[page[:end, None, None], heads[None, :, None], offsets[:, None, :]] = pack(codes)
        halves = cache.value_scale.view(torch.float16)  # [pages, heads, groups / 2, 2, 2 page]
        for which, x in enumerate((scale, zero)):
            for high, part in enumerate(x[..., 0].chunk(2, 2)):  # [tokens, heads, groups / 2]
                halves[page[:end], :, :, which, pair_order(place[:end], high)] = part.half()


def load_request(
    cache: PagedCache, ring: Ring, row: int, length: int, pages: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values ``[tokens, heads, dim]`` fp32 that a reader of a request of ``length`` tokens gets."""
    from adrbench.kernels.formats.packing import unpack

    lay = cache.layout
    assert cache.key_scale is not None
    assert cache.value_scale is not None
    position = torch.arange(length, device=pages.device)
    page, place = pages[position // lay.page_size].long(), position % lay.page_size
    newest = [plane[row][:, position % plane.shape[2]].transpose(0, 1).float() for plane in (ring.key, ring.value)]
    codes = unpack(cache.key[page, :, place]).float() + 8
    dims = torch.arange(lay.head_dim // 2, device=pages.device)
    halves = cache.key_scale.view(torch.float16)[page, :, place // lay.scheme.key.group]  # [tokens, heads, 2, dim]
    scale, zero = (
        torch.cat([halves[:, :, which][:, :, pair_order(dims, high)] for high in (0, 1)], 2).float() for which in (0, 1)
    )
    end = lay.scheme.key.quantised_end(length)
    key = torch.where((position < end)[:, None, None], codes * scale + zero, newest[0])

    heads = torch.arange(lay.kv_heads, device=pages.device)
    offsets = lay.value_offsets(place)
    codes = unpack(cache.value[page[:, None, None], heads[None, :, None], offsets[:, None, :]]).float() + 8
    halves = cache.value_scale.view(torch.float16)
    scale, zero = (
        torch.cat([halves[page, :, :, which, pair_order(place, high)] for high in (0, 1)], 2).float()
        for which in (0, 1)
    )
    group = lay.scheme.value.group
    rows = codes.unflatten(2, (-1, group)) * scale[..., None] + zero[..., None]
    end = lay.scheme.value.quantised_end(length)
    return key, torch.where((position < end)[:, None, None], rows.flatten(2), newest[1])
