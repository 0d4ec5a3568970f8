"""Which tokens leave a 16-bit window in a step: from the lengths before and after it, nothing else.

A plane's window ends at ``plane.quantised_end(length)``, which never falls as a request grows. In a
step that brings a request from ``old`` to ``new`` tokens, the tokens from ``quantised_end(old)`` to
``quantised_end(new)`` are replaced by what a reader of the quantised cache gets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from adrbench.kernels.formats.plane import Plane

NULL_BLOCK = 0
"""Block 0, which vLLM reserves and no request reads: where masked reads and writes go, spread over its slots so
that not all of them meet in one."""


def quantised_end(plane: Plane, lengths: torch.Tensor) -> torch.Tensor:
    """``Plane.quantised_end`` for a tensor of lengths."""
    body = (lengths - plane.residual - plane.sink).clamp(min=0)
    return torch.minimum(lengths, plane.sink + body // plane.window_step * plane.window_step)


@dataclass(frozen=True)
class Step:
    """A step's requests: first new row of each (and their number), lengths before and after it, and where their blocks
    are (``[requests, blocks]``)."""

    starts: torch.Tensor
    old: torch.Tensor
    new: torch.Tensor
    block_table: torch.Tensor
    longest_query: int

    @classmethod
    def of(cls, metadata: Any) -> Step:
        """From a backend's attention metadata.

        Raises:
            ValueError: the backend's metadata do not say what is needed.
        """
        try:
            starts, new = metadata.query_start_loc, metadata.seq_lens
            count = starts.shape[0] - 1
            new = new[:count]
            old = new - starts.diff().to(new.dtype)
            return cls(starts, old, new, metadata.block_table[:count], metadata.max_query_len)
        except AttributeError as error:
            raise ValueError(f"kv_simulation: this backend's metadata have no lengths by request ({error})") from None


@dataclass(frozen=True)
class Range:
    """Tokens of one plane to replace, in order of request and position; masked where ``valid`` is False.

    ``block`` and ``offset`` say where in the paged cache; ``count`` is a tensor, how many are not masked.
    """

    block: torch.Tensor
    offset: torch.Tensor
    valid: torch.Tensor | None
    count: torch.Tensor


def exact_range(plane: Plane, step: Step, block_size: int) -> Range:
    """Exactly the slots that leave the window; their number is read back to the host."""
    start, end = _bounds(plane, step)
    counts = (end - start).clamp(min=0)
    total = int(counts.sum())
    request = torch.repeat_interleave(torch.arange(len(counts), device=counts.device), counts, output_size=total)
    first = (counts.cumsum(0) - counts)[request]
    position = start[request] + torch.arange(total, device=counts.device) - first
    return Range(*_where(step, request, position, block_size), None, counts.sum())


def fixed_range(plane: Plane, step: Step, block_size: int) -> Range:
    """The same as a fixed number of slots with a mask: no read-back, so that a graph can capture it."""
    start, end = _bounds(plane, step)
    width = -(-step.longest_query // plane.window_step) * plane.window_step
    position = start[:, None] + torch.arange(width, device=start.device)
    valid = position < end[:, None]
    request = torch.arange(len(start), device=start.device)[:, None].expand_as(position)
    highest = step.block_table.shape[1] * block_size - 1
    block, offset = _where(step, request, position.clamp(max=highest), block_size)
    block = torch.where(valid, block, NULL_BLOCK)
    return Range(block.flatten(), offset.flatten(), valid.flatten(), valid.sum())


def _bounds(plane: Plane, step: Step) -> tuple[torch.Tensor, torch.Tensor]:
    start = quantised_end(plane, step.old.long()).clamp(min=plane.sink)
    return start, quantised_end(plane, step.new.long())


def _where(
    step: Step, request: torch.Tensor, position: torch.Tensor, block_size: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Block of the cache and offset in it, of each position of each request."""
    return step.block_table[request, position // block_size].long(), position % block_size
