"""What a reader of the cache gets, as the two functions that an engine calls in every step.

Plain torch by default. Where the device has a compiler, what decode steps call is compiled into few kernels: a
decode step's rows are small, and launching a dozen kernels for each layer would cost more than they do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from adrbench.kernels.formats.plane import Plane

if TYPE_CHECKING:
    from adrbench.kernels.formats.plane import Static

OPTIONS = {"emulate_precision_casts": True}
"""Without it the compiler leaves out a cast to 16 bit and back: scales would not be rounded to fp16."""

WARM_UP_TOKENS = (8, 24, 1)
"""Two sizes make the number of tokens symbolic, and one token is a case of its own to the compiler."""


def read_rows(plane: Plane, x: torch.Tensor, static: Static) -> torch.Tensor:
    """What a reader gets for rows ``[tokens, heads, dim]``, in their dtype."""
    return plane.read_back(x, static).to(x.dtype)


def read_slots(
    plane: Plane, cache: torch.Tensor, block: torch.Tensor, offset: torch.Tensor, valid: Any, static: Static
) -> torch.Tensor:
    """The same for rows of a cache ``[blocks, block, heads, dim]``; rows that are not ``valid`` stay as they are."""
    rows = cache[block, offset]
    read = plane.read_back(rows, static)
    if valid is not None:
        read = torch.where(valid[:, None, None], read, rows.float())
    return read.to(cache.dtype)


class Readers:
    """Both functions for one plane."""

    def __init__(self, plane: Plane, compiled: bool) -> None:
        def rows(x: torch.Tensor, static: Static) -> torch.Tensor:
            return read_rows(plane, x, static)

        def slots(cache: torch.Tensor, block: Any, offset: Any, valid: Any, static: Static) -> torch.Tensor:
            return read_slots(plane, cache, block, offset, valid, static)

        self.plane, self.compiled = plane, compiled
        self.rows: Any = torch.compile(rows, options=OPTIONS) if compiled else rows
        self._slots, self._slots_compiled = slots, torch.compile(slots, options=OPTIONS) if compiled else slots

    def slots(self, cache: torch.Tensor, block: Any, offset: Any, valid: Any, static: Static) -> torch.Tensor:
        """``read_slots``; compiled for the masked form that decode steps use."""
        run: Any = self._slots if valid is None else self._slots_compiled
        found: torch.Tensor = run(cache, block, offset, valid, static)
        return found

    def warm_up(self, static: Static, heads: int, dim: int, block: int, dtype: torch.dtype, windowed: bool) -> None:
        """Compile before a graph is captured."""
        if not self.compiled:
            return
        device = torch.device("cuda")
        for tokens in WARM_UP_TOKENS:
            if not windowed:
                self.rows(torch.zeros(tokens, heads, dim, dtype=dtype, device=device), static)
                continue
            count = tokens * self.plane.window_step
            cache = torch.zeros(tokens + 1, block, heads, dim, dtype=dtype, device=device)
            where = torch.zeros(count, dtype=torch.int64, device=device)
            self.slots(cache, where, where, where == 0, static)
