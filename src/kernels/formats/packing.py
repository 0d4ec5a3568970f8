"""Two 4-bit codes per byte: dimension d in the low nibble, d + D / 2 in the high one, two's complement.

Halves of the row, not neighbours, share a byte: unpacking a tile then gives two tiles of
neighbouring dimensions, and each can be multiplied as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def pack(codes: torch.Tensor) -> torch.Tensor:
    """int8 codes in -8..7 ``[..., D]`` to bytes ``[..., D / 2]`` (uint8)."""
    import torch

    low, high = codes.view(torch.uint8).chunk(2, -1)
    return (low & 15) | (high << 4)


def unpack(packed: torch.Tensor) -> torch.Tensor:
    """Bytes ``[..., D / 2]`` to int8 codes ``[..., D]``."""
    import torch

    signed = packed.view(torch.int8)
    return torch.cat(((signed << 4) >> 4, signed >> 4), -1)
