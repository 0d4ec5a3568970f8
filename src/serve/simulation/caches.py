"""Reading and replacing single tokens in a backend's paged cache, whatever its layout."""

from __future__ import annotations

from typing import Any, Protocol

import torch

PROBE = {"num_blocks": 7, "block_size": 16, "num_kv_heads": 5, "head_size": 64}


class Cache(Protocol):
    """Access to one layer's cache by slot (``block * block_size + offset``)."""

    def begin(self, key: torch.Tensor, value: torch.Tensor, slots: torch.Tensor) -> None:
        """The step's rows ``[tokens, heads, dim]``, as the model computed them, have been written to ``slots``."""

    def replace(self, which: str, slots: torch.Tensor, make: Any) -> None:
        """Replace the rows of ``slots`` in the ``key`` or ``value`` plane by ``make(rows)``."""

    def end(self, **arguments: Any) -> None:
        """The step's replacements are complete: the backend's cache must show them."""


class PlainCache:
    """A cache whose planes are views ``[blocks, block, heads, dim]`` of the backend's own tensor."""

    def __init__(self, kv_cache: torch.Tensor, plane_dim: int) -> None:
        self.planes = dict(zip(("key", "value"), kv_cache.unbind(plane_dim), strict=True))
        self.block_size = self.planes["key"].shape[1]

    def begin(self, key: torch.Tensor, value: torch.Tensor, slots: torch.Tensor) -> None:
        pass

    def replace(self, which: str, slots: torch.Tensor, make: Any) -> None:
        plane, block, offset = self.planes[which], slots // self.block_size, slots % self.block_size
        plane[block, offset] = make(plane[block, offset]).to(plane.dtype)

    def end(self, **arguments: Any) -> None:
        pass


def plane_dimension(backend: Any) -> int | None:
    """The dimension of a backend's cache tensor that holds (keys, values); None where planes are not plain.

    Plain: ``[blocks, block, heads, dim]`` beside that dimension, as FLASH_ATTN and TRITON_ATTN have it.
    """
    shape = getattr(backend, "get_kv_cache_shape", lambda *_: ())(*PROBE.values())
    rest = tuple(PROBE.values())
    return next((d for d in (0, 1) if len(shape) == 5 and shape[d] == 2 and shape[:d] + shape[d + 1 :] == rest), None)


class MirrorCache:
    """A cache in a layout of its own (CPU_ATTN packs blocks for the instruction set at hand).

    A mirror ``[slots, heads, dim]`` holds what the cache shows; replaced rows are written through the
    backend's own writer. The mirror is as large as the layer's cache; memory becomes resident as slots
    are used.
    """

    def __init__(self, slots: int, heads: int, dim: int, dtype: torch.dtype) -> None:
        self.planes = {which: torch.empty(slots, heads, dim, dtype=dtype) for which in ("key", "value")}
        self.replaced: list[torch.Tensor] = []

    def begin(self, key: torch.Tensor, value: torch.Tensor, slots: torch.Tensor) -> None:
        self.planes["key"][slots], self.planes["value"][slots] = key, value
        self.replaced = []

    def replace(self, which: str, slots: torch.Tensor, make: Any) -> None:
        plane = self.planes[which]
        plane[slots] = make(plane[slots]).to(plane.dtype)
        self.replaced.append(slots)

    def rows(self, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of slots, as the cache shows them."""
        return self.planes["key"][slots], self.planes["value"][slots]

    def end(self, **arguments: Any) -> None:
        """Write replaced rows by ``write(key, value, slots)``, without those in ``excluded`` (if given)."""
        if not self.replaced:
            return
        slots = torch.unique(torch.cat(self.replaced))
        if (excluded := arguments.get("excluded")) is not None:
            slots = slots[~torch.isin(slots, excluded)]
        if slots.numel():
            arguments["write"](*self.rows(slots), slots)
