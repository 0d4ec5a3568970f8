"""One plane (keys or values) of a cache scheme: number format, what shares one scale, which tokens stay 16 bit.

A plane is data. Its torch reference and its memory arithmetic are computed from that data here, so
that simulation, kernels, reports and tests cannot disagree. A scheme that needs other arithmetic
defines a subclass in its own file. No kernel, no device.

Scale granularities:

==================  ==========================================  =======================
``scope``           one scale for                               determined
==================  ==========================================  =======================
``none``            (values stored as they are)
``tensor``          all tokens, heads and dimensions            ahead (static)
``head``            all tokens and dimensions of one KV head    ahead (static)
``static_channel``  one dimension of one KV head, all tokens    ahead (static)
``token``           one token, all its heads                    when the row is stored
``token_head``      one row: one token of one head              when the row is stored
``row_group``       ``group`` neighbouring dimensions of a row  when the row is stored
``channel``         one dimension over ``group`` tokens         when the group is full
==================  ==========================================  =======================

Values that are not numbers: a scale made from data that hold NaN or infinity is NaN, and so is every
value that shares it: the damage shows, and it stays inside the scale's scope. Static scales have
nothing to spoil: infinity saturates, NaN stays NaN in float formats and becomes 0 in integer
formats, which have no code for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from adrbench.kernels.formats.rounding import rounded
from adrbench.kernels.formats.values import ValueFormat

if TYPE_CHECKING:
    import torch

    Static = Mapping[str, torch.Tensor]

SCALE_FLOOR = 1e-8
"""Smallest absolute maximum that a scale is made from: an all-zero row divides by a positive scale."""

FP16_FLOOR = 2.0**-24
"""Smallest positive fp16: the floor of scales that the cache holds in 16 bit."""

STATIC_SCOPES = ("tensor", "head", "static_channel")
GROUPED_SCOPES = ("row_group", "channel")
DYNAMIC_SCOPES = ("token", "token_head", *GROUPED_SCOPES)


@dataclass(frozen=True)
class Quantised:
    """Codes of ``[tokens, heads, dim]`` with their scales, broadcastable against the codes.

    Grouped scopes view the grouped axis as ``(groups, group)``; ``shape`` is the original shape.
    ``zero`` is None for symmetric schemes; otherwise ``value = (code + 8) * scale + zero`` for int4.
    """

    codes: torch.Tensor
    scale: torch.Tensor | None
    zero: torch.Tensor | None
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Plane:
    """How one of the two planes (keys or values) is stored.

    Attributes:
        values: number format of one element.
        scope: what shares one scale; see the module's table.
        group: elements per scale for ``row_group`` and ``channel``, else 0.
        zero: asymmetric: a zero point beside each scale.
        scale_bytes: bytes of one scale (and of one zero point) in the cache; 2 rounds them to fp16.
        residual: newest tokens kept in 16 bit.
        step: tokens that leave the 16-bit window together; 0 means ``group`` for ``channel``, else 1.
        sink: first tokens of a request, kept in 16 bit.
        limit: largest magnitude that a scale maps to, where it is not the format's own (vLLM's 224).
    """

    values: ValueFormat
    scope: str = "none"
    group: int = 0
    zero: bool = False
    scale_bytes: int = 4
    residual: int = 0
    step: int = 0
    sink: int = 0
    limit: float | None = None

    def __post_init__(self) -> None:
        if self.scope not in ("none", *STATIC_SCOPES, *DYNAMIC_SCOPES):
            raise ValueError(f"unknown scope {self.scope!r}")
        if (self.scope in GROUPED_SCOPES) != (self.group > 0):
            raise ValueError(f"scope {self.scope!r} with group {self.group}")
        if min(self.residual, self.step, self.sink) < 0:
            raise ValueError("residual, step and sink are numbers of tokens: none can be negative")
        if self.scope == "channel" and self.step % self.group:
            raise ValueError(f"step {self.step} is not a multiple of the group of {self.group} tokens")
        if self.limit is not None and self.limit <= 0:
            raise ValueError(f"limit {self.limit} must be positive")

    @property
    def is_static(self) -> bool:
        return self.scope in STATIC_SCOPES

    @property
    def needs_calibration(self) -> bool:
        """Whether static values must come from data: a float format without them uses 1.0, as vLLM does."""
        return self.is_static and not self.values.is_float

    @property
    def maximum(self) -> float:
        """The magnitude that the largest value of a scale's scope is mapped to."""
        return self.values.maximum if self.limit is None else self.limit

    @property
    def heads_are_independent(self) -> bool:
        """Whether the heads of one token could as well be rows of any other cache: no scale spans them."""
        return self.scope in ("none", "tensor", "head", "token_head", "row_group")

    @property
    def window_step(self) -> int:
        """Tokens that leave the 16-bit window together."""
        return self.step or (self.group if self.scope == "channel" else 1)

    @property
    def depends_on_length(self) -> bool:
        """Whether a token is read differently while it is new than when it is old."""
        return self.residual > 0 or self.window_step > 1

    def quantised_end(self, length: int) -> int:
        """Of a request of ``length`` tokens, tokens ``sink`` to here are quantised, the others in 16 bit."""
        body = max(0, length - self.residual - self.sink)
        return min(length, self.sink + body // self.window_step * self.window_step)

    def code_bytes(self, head_dim: int) -> int:
        """Bytes of the codes of one row (one token, one head)."""
        if head_dim * self.values.bits % 8:
            raise ValueError(f"head_dim {head_dim} at {self.values.bits} bits does not fill bytes")
        return head_dim * self.values.bits // 8

    def scale_bytes_per_row(self, head_dim: int, kv_heads: int = 1) -> float:
        """Bytes of scales and zero points per row; static scales are not part of the cache."""
        each = self.scale_bytes * (2 if self.zero else 1)
        if self.scope == "token":
            return each / kv_heads
        if self.scope == "token_head":
            return float(each)
        if self.scope in GROUPED_SCOPES:
            return each * head_dim / self.group
        return 0.0

    def row_bytes(self, head_dim: int, kv_heads: int = 1) -> float:
        """Bytes of one quantised row, everything counted that the cache holds for it."""
        return self.code_bytes(head_dim) + self.scale_bytes_per_row(head_dim, kv_heads)

    def check_head_dim(self, head_dim: int) -> None:
        """Refuse a head dimension that this plane cannot store.

        Raises:
            ValueError: naming the dimension and what it must divide by.
        """
        if self.scope == "row_group" and head_dim % self.group:
            raise ValueError(f"head_dim {head_dim} is not a multiple of the group of {self.group}")
        self.code_bytes(head_dim)

    def _view(self, x: torch.Tensor) -> tuple[torch.Tensor, tuple[int, ...] | int]:
        """The tensor with grouped axes opened, and the dimensions that one scale reduces over."""
        tokens, heads, dim = x.shape
        if self.scope == "row_group":
            self.check_head_dim(dim)
            return x.reshape(tokens, heads, dim // self.group, self.group), 3
        if self.scope == "channel":
            if tokens % self.group:
                raise ValueError(f"{tokens} tokens do not fill groups of {self.group}; keep the rest in 16 bit")
            return x.reshape(tokens // self.group, self.group, heads, dim), 1
        reduced: dict[str, tuple[int, ...] | int]
        reduced = {"tensor": (0, 1, 2), "head": (0, 2), "static_channel": 0, "token": (1, 2), "token_head": 2}
        return x, reduced[self.scope]

    def _stored(self, scale: torch.Tensor) -> torch.Tensor:
        """A scale or zero point as the cache holds it; infinity becomes NaN."""
        scale = scale + scale * 0.0
        if self.scale_bytes == 2:
            return rounded(scale.clamp(-65504.0, 65504.0), "float16")
        return scale

    def make_scale(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Scale (and zero point) from the data, as a dynamic scope does it and a static one is calibrated."""
        view, reduced = self._view(x.float())
        floor = FP16_FLOOR if self.scale_bytes == 2 else 0.0
        if self.zero:
            low = view.amin(reduced, keepdim=True)
            span = view.amax(reduced, keepdim=True) - low
            scale = span.clamp(min=SCALE_FLOOR) / (2 * self.maximum + 1)
            return self._stored(scale.clamp(min=floor)), self._stored(low)
        amax = view.abs().amax(reduced, keepdim=True).clamp(min=SCALE_FLOOR)
        return self._stored((amax * (1.0 / self.maximum)).clamp(min=floor)), None

    def quantise(self, x: torch.Tensor, scale: torch.Tensor | None = None) -> Quantised:
        """Reference quantiser: round to nearest, ties to even, saturate.

        It multiplies by the fp32 reciprocal of the scale, as the kernels do (a division per row
        instead of one per element), so that kernels must match it code for code.

        Args:
            x: ``[tokens, heads, dim]``, any float dtype.
            scale: a static scope's scale, broadcastable to ``[tokens, heads, dim]`` (``[heads, 1]``
                for ``head``); calibrated from ``x`` itself when None.
        """
        if self.scope == "none":
            return Quantised(x.to(self.values.torch_dtype), None, None, tuple(x.shape))
        view, _ = self._view(x.float())
        zero = None
        if scale is None or not self.is_static:
            scale, zero = self.make_scale(x)
        if zero is not None:
            steps = 2 * self.maximum + 1
            codes = ((view - zero) * (1.0 / scale)).round().clamp(0, steps) - (self.maximum + 1)
            return Quantised(codes.nan_to_num(0.0).char(), scale, zero, tuple(x.shape))
        return Quantised(self.values.encode(view * (1.0 / scale), self.limit), scale, None, tuple(x.shape))

    def dequantise(self, stored: Quantised) -> torch.Tensor:
        """fp32 values ``[tokens, heads, dim]`` of stored codes."""
        x = stored.codes.float()
        if stored.zero is not None and stored.scale is not None:
            x = (x + (self.maximum + 1)) * stored.scale + stored.zero
        elif stored.scale is not None:
            x = x * stored.scale
        return x.reshape(stored.shape)

    def calibrate(self, x: torch.Tensor) -> dict[str, Any]:
        """Static values of this plane from sample rows ``[tokens, heads, dim]`` of one layer, as plain lists.

        Empty for planes that determine their scales when rows are stored.
        """
        if not self.is_static:
            return {}
        scale, _ = self.make_scale(x)
        return {"scale": (scale.flatten() if self.scope == "tensor" else scale.squeeze(0)).tolist()}

    def static(self, values: Mapping[str, Any] | None, device: torch.device | str = "cpu") -> Static:
        """Tensors of what ``calibrate`` gave, for ``read_back``; an uncalibrated float format gets scale 1.0.

        Raises:
            ValueError: calibration is needed and missing.
        """
        import torch

        if not values:
            if self.needs_calibration:
                raise ValueError(f"{self.values.name} with scope {self.scope!r} needs calibrated scales")
            return {"scale": torch.ones(1, device=device)} if self.is_static else {}
        return {name: torch.tensor(value, dtype=torch.float32, device=device) for name, value in values.items()}

    def read_back(self, x: torch.Tensor, static: Static | None = None) -> torch.Tensor:
        """What a reader of the cache gets for rows that are all quantised: fp32, the shape of ``x``.

        Value for value that is ``dequantise(quantise(x))``; integer codes stay fp32 on the way.
        """
        scale = (static or {}).get("scale")
        if self.scope == "none":
            return rounded(x.float(), self.values.torch_name)
        if self.values.is_float:
            return self.dequantise(self.quantise(x, scale))
        view, _ = self._view(x.float())
        zero = None
        if scale is None or not self.is_static:
            scale, zero = self.make_scale(x)
        if zero is not None:
            codes = ((view - zero) * (1.0 / scale)).round_().clamp_(0, 2 * self.maximum + 1)
            return codes.mul_(scale).add_(zero).reshape(x.shape)
        codes = (view * (1.0 / scale)).clamp_(-self.maximum, self.maximum).round_()
        codes = codes.nan_to_num_(0.0) if self.is_static else codes
        return codes.mul_(scale).reshape(x.shape)

    def round_trip(self, x: torch.Tensor, static: Static | None = None) -> torch.Tensor:
        """What a reader gets for a whole request ``[tokens, heads, dim]``: fp32, 16-bit windows as they are."""
        import torch

        start, end = min(self.sink, x.shape[0]), self.quantised_end(x.shape[0])
        if end <= start:
            return x.float()
        return torch.cat((x[:start].float(), self.read_back(x[start:end], static), x[end:].float()))
