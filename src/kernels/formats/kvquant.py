"""KVQuant (Hooper et al. 2024, arXiv 2401.18079): non-uniform levels, 1 % outliers beside them in 16 bit.

Keys: per channel, with bounds calibrated ahead of time as quantiles of each channel; what lies outside
them is an outlier. Values: per token over all heads, with bounds found when the token is stored.
Both are normalised to -1..1 and rounded to the nearest of ``2 ** bits`` levels per layer, which
k-means places where the data are. The first token stays in 16 bit (the paper's attention sink).

Where this differs from the paper: keys are quantised **after** rotary embedding, because that is what
a paged cache holds (the paper quantises before it, which suits channel scales better); k-means weighs
all samples alike (the paper weighs them by Fisher information, which takes gradients); no Q-Norm.
With tensor parallelism a token's bounds are those of its rank's heads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from adrbench.kernels.formats.plane import SCALE_FLOOR, Plane
from adrbench.kernels.formats.rounding import rounded
from adrbench.kernels.formats.scheme import Scheme
from adrbench.kernels.formats.values import VALUES

if TYPE_CHECKING:
    import torch
    from adrbench.kernels.formats.plane import Static

OUTLIER_BYTES = 4
"""An outlier's 16-bit value and its 16-bit index."""

KMEANS_STEPS = 50
KMEANS_SAMPLES = 1 << 17


def kmeans_levels(x: torch.Tensor, count: int) -> torch.Tensor:
    """``count`` ascending levels for values ``x`` (flat): Lloyd's algorithm from evenly spaced quantiles.

    Deterministic: no random start, and at most ``KMEANS_SAMPLES`` evenly spaced samples of the sorted data.
    """
    import torch

    ordered = x.flatten().float().sort().values
    ordered = ordered[torch.linspace(0, len(ordered) - 1, min(len(ordered), KMEANS_SAMPLES)).long()]
    levels = ordered[((torch.arange(count) + 0.5) / count * len(ordered)).long()].clone()
    sums = torch.cat((torch.zeros(1, dtype=torch.float64), ordered.double().cumsum(0)))
    for _ in range(KMEANS_STEPS):
        cuts = torch.searchsorted(ordered, (levels[1:] + levels[:-1]) / 2)
        edges = torch.cat((torch.tensor([0]), cuts, torch.tensor([len(ordered)])))
        sizes = edges.diff()
        means = (sums[edges].diff() / sizes.clamp(min=1)).float()
        moved = torch.where(sizes > 0, means, levels).sort().values
        if torch.equal(moved, levels):
            break
        levels = moved
    return levels


def nearest(x: torch.Tensor, levels: torch.Tensor) -> torch.Tensor:
    """Each value's nearest level; NaN stays NaN."""
    import torch

    middles = (levels[1:] + levels[:-1]) / 2
    return torch.where(x.isnan(), x, levels[torch.bucketize(x.contiguous(), middles)])


@dataclass(frozen=True)
class NonUniformPlane(Plane):
    """Calibrated levels, and a share of ``outliers`` (both ends together) stored exactly in 16 bit.

    ``static_channel`` scope: bounds per channel are calibrated. ``token`` scope: bounds per token are
    its own quantiles. ``bits`` is that of ``values``.
    """

    outliers: float = 0.01

    @property
    def needs_calibration(self) -> bool:
        return True

    def row_bytes(self, head_dim: int, kv_heads: int = 1) -> float:
        return super().row_bytes(head_dim, kv_heads) + self.outliers * head_dim * OUTLIER_BYTES

    def _bounds(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Lower and upper bound of what is not an outlier, broadcastable to ``[tokens, heads, dim]``.

        Order statistics, not interpolated: the ``share`` largest and smallest values are the outliers.
        """
        if self.scope == "static_channel":
            count = max(1, int(x.shape[0] * (1 - self.outliers / 2)))
            return _kth(x, x.shape[0] + 1 - count, 0), _kth(x, count, 0)
        flat = x.flatten(1)
        share = min(round(flat.shape[1] * self.outliers / 2), (flat.shape[1] - 1) // 2)
        low = flat.topk(share + 1, dim=1, largest=False).values[:, -1]
        high = flat.topk(share + 1, dim=1).values[:, -1]
        return low[:, None, None], high[:, None, None]

    def _normalised(self, x: torch.Tensor, low: torch.Tensor, high: torch.Tensor) -> tuple[torch.Tensor, ...]:
        half = self._stored(((high - low) / 2).clamp(min=SCALE_FLOOR))
        middle = self._stored((high + low) / 2)
        return (x - middle) / half, half, middle

    def calibrate(self, x: torch.Tensor) -> dict[str, Any]:
        x = x.float()
        low, high = self._bounds(x)
        inside = (x >= low) & (x <= high)
        levels = kmeans_levels(self._normalised(x, low, high)[0][inside], 1 << self.values.bits)
        found: dict[str, Any] = {"levels": levels.tolist()}
        if self.scope == "static_channel":
            found |= {"low": low.squeeze(0).tolist(), "high": high.squeeze(0).tolist()}
        return found

    def static(self, values: Mapping[str, Any] | None, device: torch.device | str = "cpu") -> Static:
        if not values:
            raise ValueError("KVQuant's levels come from calibration evidence")
        return super().static(values, device)

    def read_back(self, x: torch.Tensor, static: Static | None = None) -> torch.Tensor:
        import torch

        assert static is not None
        x = x.float()
        low, high = (static["low"], static["high"]) if "low" in static else self._bounds(x)
        normal, half, middle = self._normalised(x, low, high)
        dense = nearest(normal, static["levels"]) * half + middle
        return torch.where((x < low) | (x > high), rounded(x, "bfloat16"), dense)


def _kth(x: torch.Tensor, k: int, dim: int) -> torch.Tensor:
    return x.kthvalue(k, dim=dim, keepdim=True).values


def _scheme(bits: int) -> Scheme:
    values = VALUES[f"int{bits}"]
    key = NonUniformPlane(values, "static_channel", sink=1)
    value = NonUniformPlane(values, "token", zero=True, scale_bytes=2, sink=1)
    summary = f"KVQuant {bits} bit: non-uniform, 1 % outliers in 16 bit, keys per channel after rotary embedding"
    return Scheme(f"kvquant{bits}", key, value, summary, source="arXiv 2401.18079")


SCHEMES = (_scheme(4), _scheme(3))
