"""Torch reference of INT4 in groups with a scale and an offset, as the cache stores it: both in fp16.

``formats.scheme`` defines the format with exact scales; here codes are made with the rounded ones that
a reader will use, and the offset is that of code 0, so that ``value = code * scale + offset``.
"""

from __future__ import annotations

import torch

GROUP_FLOOR = 1e-3
"""Smallest span of a group: its fifteenth is a normal fp16 number."""


def quantise(x: torch.Tensor, group: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(codes -8..7 int8 ``[tokens, heads, dim]``, words ``[tokens, heads, groups]`` int32; see ``layout``)."""
    view = x.float().unflatten(2, (-1, group))
    low = view.amin(3)
    scale = ((view.amax(3) - low).clamp(min=GROUP_FLOOR) * (1.0 / 15)).half()
    offset = (low + 8.0 * scale.float()).half()
    codes = (view - offset.float()[..., None]) * (1.0 / scale.float())[..., None]
    words = torch.stack((scale, offset), -1).view(torch.int32)[..., 0]
    return codes.clamp(-8, 7).round().to(torch.int8).flatten(2), words


def dequantise(codes: torch.Tensor, words: torch.Tensor, group: int) -> torch.Tensor:
    """fp32 ``[tokens, heads, dim]``."""
    scale, offset = words.contiguous()[..., None].view(torch.float16).float().unbind(-1)
    return (codes.float().unflatten(2, (-1, group)) * scale[..., None] + offset[..., None]).flatten(2)
