"""Reading and replacing single tokens in a backend's paged cache, whatever its layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from adrbench.serve.simulation.windows import Range

PROBE = {"num_blocks": 7, "block_size": 16, "num_kv_heads": 5, "head_size": 64}

Reader = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""New rows from a cache ``[blocks, block, heads, dim]`` and the block and offset of each token."""


class PlainCache:
    """A cache whose planes are views ``[blocks, block, heads, dim]`` of the backend's own tensor."""

    def __init__(self, planes: dict[str, torch.Tensor]) -> None:
        self.planes = planes
        self.block_size = planes["key"].shape[1]

    def replace(self, which: str, found: Range, read: Reader) -> None:
        """Replace a range's tokens in one plane by what ``read`` makes of them."""
        plane = self.planes[which]
        plane[found.block, found.offset] = read(plane, found.block, found.offset)

    def shows(self, kv_cache: torch.Tensor, plane_dim: int) -> bool:
        """Whether these planes are views of ``kv_cache``: an engine may allocate its cache anew at the same address."""
        plane, own = kv_cache.select(plane_dim, 0), self.planes["key"]
        same: bool = plane.data_ptr() == own.data_ptr() and plane.shape == own.shape
        return same and plane.stride() == own.stride()


class MirrorCache(PlainCache):
    """A cache in a layout of its own (CPU_ATTN packs blocks for the instruction set at hand).

    The mirror holds what the cache shows; replaced tokens go back through the backend's own writer. It
    is as large as the layer's cache; its memory becomes resident as slots are used.
    """

    def __init__(self, blocks: int, block_size: int, heads: int, dim: int, dtype: torch.dtype) -> None:
        shape = (blocks, block_size, heads, dim)
        super().__init__({which: torch.empty(shape, dtype=dtype) for which in ("key", "value")})
        self.replaced: list[torch.Tensor] = []

    def begin(self, key: torch.Tensor, value: torch.Tensor, slots: torch.Tensor) -> None:
        """The step's rows ``[tokens, heads, dim]``, as the model computed them, are written to ``slots``."""
        for which, rows in (("key", key), ("value", value)):
            self.planes[which].flatten(0, 1)[slots] = rows
        self.replaced = []

    def replace(self, which: str, found: Range, read: Reader) -> None:
        super().replace(which, found, read)
        self.replaced.append(found.block * self.block_size + found.offset)

    def rows(self, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values ``[tokens, heads, dim]`` of slots, as the cache shows them."""
        return self.planes["key"].flatten(0, 1)[slots], self.planes["value"].flatten(0, 1)[slots]

    def end(self, write: Callable[..., Any], excluded: torch.Tensor | None = None) -> None:
        """Write what the step replaced by ``write(key, value, slots)``, without ``excluded`` slots."""
        if not self.replaced:
            return
        slots = torch.unique(torch.cat(self.replaced))
        if excluded is not None:
            slots = slots[~torch.isin(slots, excluded)]
        if slots.numel():
            write(*self.rows(slots), slots)


def plane_dimension(backend: Any) -> int | None:
    """The dimension of a backend's cache tensor that holds (keys, values); None where planes are not plain.

    Plain: ``[blocks, block, heads, dim]`` beside that dimension, as FLASH_ATTN and TRITON_ATTN have it.
    """
    shape = getattr(backend, "get_kv_cache_shape", lambda *_: ())(*PROBE.values())
    rest = tuple(PROBE.values())
    return next((d for d in (0, 1) if len(shape) == 5 and shape[d] == 2 and shape[:d] + shape[d + 1 :] == rest), None)


def plain_cache(kv_cache: torch.Tensor, plane_dim: int) -> PlainCache:
    """Access to a backend's tensor whose planes are plain."""
    return PlainCache(dict(zip(("key", "value"), kv_cache.unbind(plane_dim), strict=True)))
