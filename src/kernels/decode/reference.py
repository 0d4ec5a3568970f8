"""Torch reference of decode attention."""

from __future__ import annotations

import torch
from adrbench.kernels.formats.layout import PagedCache
from adrbench.kernels.store import reference as store


def attend(q: torch.Tensor, key: torch.Tensor, value: torch.Tensor, softmax_scale: float) -> torch.Tensor:
    """One token's attention ``[heads, dim]`` over ``key`` and ``value`` ``[tokens, kv_heads, dim]``.

    Computed in fp32; ``q`` is ``[heads, dim]``. No tokens: zeros.
    """
    heads, dim = q.shape
    kv_heads = key.shape[1]
    if key.shape[0] == 0:
        return torch.zeros(heads, dim, device=q.device)
    grouped = q.float().reshape(kv_heads, heads // kv_heads, dim)
    scores = torch.einsum("kgd,tkd->kgt", grouped, key.float()) * softmax_scale
    return torch.einsum("kgt,tkd->kgd", scores.softmax(-1), value.float()).reshape(heads, dim)


def slots_of(table: torch.Tensor, length: int, page_size: int) -> torch.Tensor:
    """Slots ``[length]`` of a sequence's tokens, from its row of the block table ``[pages]``."""
    position = torch.arange(length, device=table.device)
    return table[position // page_size].long() * page_size + position % page_size


def decode(
    q: torch.Tensor,
    cache: PagedCache,
    table: torch.Tensor,
    lengths: torch.Tensor,
    softmax_scale: float,
    key_scale: torch.Tensor | None = None,
    value_scale: torch.Tensor | None = None,
) -> torch.Tensor:
    """``[sequences, heads, dim]`` fp32 over what the cache holds; see ``launch.decode`` for the arguments."""
    rows = []
    for index, length in enumerate(lengths.tolist()):
        slots = slots_of(table[index], length, cache.layout.page_size)
        key, value = store.load(cache, slots, key_scale, value_scale)
        rows.append(attend(q[index], key, value, softmax_scale))
    return torch.stack(rows)
