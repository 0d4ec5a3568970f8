"""INT4 after a Hadamard rotation of each row (QuaRot, Ashkboos et al. 2024, arXiv 2404.00456; vLLM's own INT4).

An orthogonal rotation spreads an outlier channel over all dimensions of its head, so that one scale
per token and KV head fits all of them. Queries are rotated alike in a real implementation, which
leaves products as they are; simulated, a row is rotated back on reading.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from adrbench.kernels.formats.plane import Plane
from adrbench.kernels.formats.scheme import Scheme
from adrbench.kernels.formats.values import VALUES

if TYPE_CHECKING:
    import torch
    from adrbench.kernels.formats.plane import Static


def walsh_hadamard(x: torch.Tensor) -> torch.Tensor:
    """Rows times Sylvester's Hadamard matrix over sqrt(rows): orthogonal and its own inverse. ``[..., 2 ** n]``.

    By butterflies, sums of two at a time, whose rounding does not depend on how many rows there are
    (a matrix product's does, so that a row would be read differently in another batch). Written as a flip and a
    sum, not as halves put together again: a compiler then fuses several stages into one kernel.

    Raises:
        ValueError: the last dimension is no power of two.
    """
    import torch

    dim = x.shape[-1]
    if dim < 1 or dim & (dim - 1):
        raise ValueError(f"a Hadamard rotation of {dim} dimensions is not built here: use a power of two")
    half, sign = 1, 1.0 - 2.0 * torch.arange(2, device=x.device, dtype=x.dtype)[:, None]
    while half < dim:
        pairs = x.unflatten(-1, (-1, 2, half))  # (low, high) becomes (high + low, low - high)
        x = (pairs.flip(-2) + pairs * sign).flatten(-3)
        half *= 2
    return x * dim**-0.5


@dataclass(frozen=True)
class RotatedPlane(Plane):
    """A plane whose rows are rotated before they are quantised.

    A head dimension that is no power of two is rotated in blocks of its largest power-of-two divisor
    (96 in blocks of 32).
    """

    def rotate(self, x: torch.Tensor) -> torch.Tensor:
        block = x.shape[-1] & -x.shape[-1]
        return walsh_hadamard(x.float().unflatten(-1, (-1, block))).flatten(-2)

    def read_back(self, x: torch.Tensor, static: Static | None = None) -> torch.Tensor:
        return self.rotate(super().read_back(self.rotate(x), static))


_INT4 = RotatedPlane(VALUES["int4"], "token_head")
_ZERO = RotatedPlane(VALUES["int4"], "token_head", zero=True, scale_bytes=2)

SCHEMES = (
    Scheme(
        "int4_hadamard", _INT4, _INT4, "INT4 per token and KV head after a Hadamard rotation", source="arXiv 2404.00456"
    ),
    Scheme(
        "int4_hadamard_zero",
        _ZERO,
        _ZERO,
        "asymmetric INT4 per token and KV head after a Hadamard rotation",
        source="arXiv 2404.00456",
    ),
)
