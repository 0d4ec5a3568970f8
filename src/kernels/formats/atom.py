"""Atom's KV cache (Zhao et al. 2023, arXiv 2310.19102): asymmetric INT4, one group per token and KV head.

The paper quantises weights and activations in groups of 128 and the KV cache "at the granularity of
attention heads", whose dimension is 128 in its models (``model/quant.py`` of the authors: scale =
span / 15 with a span of at least 1e-5, zero point rounded to a whole code). Its 8-bit outlier channels
belong to activations, not to the cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from adrbench.kernels.formats.plane import Plane
from adrbench.kernels.formats.scheme import Scheme
from adrbench.kernels.formats.values import VALUES

if TYPE_CHECKING:
    import torch

LEAST_SPAN = 1e-5


@dataclass(frozen=True)
class WholeZeroPlane(Plane):
    """An asymmetric plane whose zero point is a code: 0 is exact, and a range that excludes 0 is widened to it."""

    def make_scale(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        view, reduced = self._view(x.float())
        steps = 2 * self.maximum + 1
        low, high = view.amin(reduced, keepdim=True), view.amax(reduced, keepdim=True)
        scale = self._stored((high - low).clamp(min=LEAST_SPAN) / steps)
        zero_code = (-low * (1.0 / scale)).round().clamp(0, steps)
        return scale, -zero_code * scale


_PLANE = WholeZeroPlane(VALUES["int4"], "token_head", zero=True, scale_bytes=2)

SCHEMES = (
    Scheme("atom_int4", _PLANE, _PLANE, "Atom: asymmetric INT4 per token and KV head", source="arXiv 2310.19102"),
)
