"""QServe's KV4 (Lin et al. 2024, arXiv 2405.04532): asymmetric INT4 per token and KV head, with SmoothAttention.

SmoothAttention divides each key channel by a factor made ahead of time and multiplies the query by it,
which leaves products as they are and takes the channel outliers out of what is quantised. Rotary
embedding pairs channel ``i`` with ``i + dim / 2``, so a pair shares one factor: the square root
(alpha = 0.5, the paper's) of the larger of its two absolute maxima. Simulated, the factor is
multiplied back on reading. ``qserve_kv4_plain`` is the same format without it: no calibration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from adrbench.kernels.formats.plane import Plane
from adrbench.kernels.formats.scheme import Scheme
from adrbench.kernels.formats.values import VALUES

if TYPE_CHECKING:
    import torch
    from adrbench.kernels.formats.plane import Static

LEAST_FACTOR = 1e-3


@dataclass(frozen=True)
class SmoothPlane(Plane):
    """A dynamic plane whose channels are divided by calibrated factors before it is quantised.

    ``alpha`` is the exponent of a channel pair's absolute maximum that becomes its factor.
    """

    alpha: float = 0.5

    @property
    def needs_calibration(self) -> bool:
        return True

    def calibrate(self, x: torch.Tensor) -> dict[str, Any]:
        import torch

        amax = x.float().abs().amax(0)
        pair = torch.maximum(*amax.chunk(2, -1))
        factor = torch.cat((pair, pair), -1).clamp(min=LEAST_FACTOR) ** self.alpha
        return {"factor": factor.tolist()}

    def static(self, values: Mapping[str, Any] | None, device: torch.device | str = "cpu") -> Static:
        if not values:
            raise ValueError("SmoothAttention needs calibrated factors; `qserve_kv4_plain` has none")
        return super().static(values, device)

    def read_back(self, x: torch.Tensor, static: Static | None = None) -> torch.Tensor:
        assert static is not None
        factor = static["factor"]
        return super().read_back(x.float() / factor) * factor


_KV4 = Plane(VALUES["int4"], "token_head", zero=True, scale_bytes=2)
_SMOOTH = SmoothPlane(VALUES["int4"], "token_head", zero=True, scale_bytes=2)

SCHEMES = (
    Scheme(
        "qserve_kv4", _SMOOTH, _KV4, "QServe KV4: INT4 per token and KV head, smoothed keys", source="arXiv 2405.04532"
    ),
    Scheme("qserve_kv4_plain", _KV4, _KV4, "QServe KV4 without SmoothAttention", source="arXiv 2405.04532"),
)
