"""A cache scheme: for keys and for values, which number format, and what shares one scale.

A scheme is data. Its torch reference (quantise, dequantise) and its memory arithmetic (bytes per
token, scales counted) are computed from that data here, so that simulation, kernels, reports and
tests cannot disagree. No kernel, no device.

Scale granularities:

==============  ==========================================  =======================
``scope``       one scale for                               determined
==============  ==========================================  =======================
``none``        (values stored as they are)
``tensor``      all tokens, heads and dimensions            ahead (static)
``head``        all tokens and dimensions of one KV head    ahead (static)
``token_head``  one row: one token of one head              when the row is stored
``row_group``   ``group`` neighbouring dimensions of a row  when the row is stored
``channel``     one dimension over ``group`` tokens         when the group is full
==============  ==========================================  =======================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from adrbench.kernels.formats.values import VALUES, ValueFormat

if TYPE_CHECKING:
    import torch

SCALE_FLOOR = 1e-8
"""Smallest absolute maximum that a scale is made from: an all-zero row divides by a positive scale."""

DYNAMIC_SCOPES = ("token_head", "row_group", "channel")
STATIC_SCOPES = ("tensor", "head")


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
        scale_bytes: bytes of one scale (and of one zero point) in the cache.
        residual: newest tokens kept in 16 bit (KIVI's window), else 0.
    """

    values: ValueFormat
    scope: str = "none"
    group: int = 0
    zero: bool = False
    scale_bytes: int = 4
    residual: int = 0

    def __post_init__(self) -> None:
        if self.scope not in ("none", *STATIC_SCOPES, *DYNAMIC_SCOPES):
            raise ValueError(f"unknown scope {self.scope!r}")
        if (self.scope in ("row_group", "channel")) != (self.group > 0):
            raise ValueError(f"scope {self.scope!r} with group {self.group}")

    @property
    def is_static(self) -> bool:
        return self.scope in STATIC_SCOPES

    def code_bytes(self, head_dim: int) -> int:
        """Bytes of the codes of one row (one token, one head)."""
        if head_dim * self.values.bits % 8:
            raise ValueError(f"head_dim {head_dim} at {self.values.bits} bits does not fill bytes")
        return head_dim * self.values.bits // 8

    def scale_bytes_per_row(self, head_dim: int) -> float:
        """Bytes of scales and zero points per row; static scales are not part of the cache."""
        each = self.scale_bytes * (2 if self.zero else 1)
        if self.scope == "token_head":
            return float(each)
        if self.scope == "row_group":
            return each * head_dim / self.group
        if self.scope == "channel":
            return each * head_dim / self.group
        return 0.0

    def _view(self, x: torch.Tensor) -> tuple[torch.Tensor, tuple[int, ...] | int]:
        """The tensor with grouped axes opened, and the dimensions that one scale reduces over."""
        tokens, heads, dim = x.shape
        if self.scope == "tensor":
            return x, (0, 1, 2)
        if self.scope == "head":
            return x, (0, 2)
        if self.scope == "token_head":
            return x, 2
        if self.scope == "row_group":
            if dim % self.group:
                raise ValueError(f"head_dim {dim} is not a multiple of the group of {self.group}")
            return x.reshape(tokens, heads, dim // self.group, self.group), 3
        if tokens % self.group:
            raise ValueError(f"{tokens} tokens do not fill groups of {self.group}; keep the rest in 16 bit")
        return x.reshape(tokens // self.group, self.group, heads, dim), 1

    def make_scale(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Scale (and zero point) from the data, as a dynamic scope does it and a static one is calibrated."""
        view, reduced = self._view(x.float())
        if self.zero:
            low = view.amin(reduced, keepdim=True)
            span = view.amax(reduced, keepdim=True) - low
            return span.clamp(min=SCALE_FLOOR) / (2 * self.values.maximum + 1), low
        amax = view.abs().amax(reduced, keepdim=True).clamp(min=SCALE_FLOOR)
        return amax * (1.0 / self.values.maximum), None

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
            steps = 2 * self.values.maximum + 1
            codes = ((view - zero) * (1.0 / scale)).round().clamp(0, steps) - (self.values.maximum + 1)
            return Quantised(codes.char(), scale, zero, tuple(x.shape))
        return Quantised(self.values.encode(view * (1.0 / scale)), scale, None, tuple(x.shape))

    def dequantise(self, stored: Quantised) -> torch.Tensor:
        """fp32 values ``[tokens, heads, dim]`` of stored codes."""
        x = stored.codes.float()
        if stored.zero is not None and stored.scale is not None:
            x = (x + (self.values.maximum + 1)) * stored.scale + stored.zero
        elif stored.scale is not None:
            x = x * stored.scale
        return x.reshape(stored.shape)

    def round_trip(self, x: torch.Tensor, scale: torch.Tensor | None = None) -> torch.Tensor:
        """What a reader of the cache gets back, fp32; the newest ``residual`` tokens stay in 16 bit.

        ``channel`` groups count from the first token; tokens past the last full group stay in 16 bit.
        """
        import torch

        keep = min(self.residual, x.shape[0]) if self.residual else 0
        body = x.shape[0] - keep
        if self.scope == "channel":
            body -= body % self.group
        if body == 0:
            return x.to(torch.bfloat16).float() if self.scope != "none" else self.dequantise(self.quantise(x))
        head = self.dequantise(self.quantise(x[:body], scale))
        tail = x[body:].to(torch.bfloat16).float()
        return torch.cat((head, tail))


@dataclass(frozen=True)
class Scheme:
    """A named way to store keys and values.

    ``vllm`` is the ``--kv-cache-dtype`` under which stock vLLM stores the same bytes, if it does.
    """

    name: str
    key: Plane
    value: Plane
    summary: str
    vllm: str | None = None

    @property
    def is_static(self) -> bool:
        return self.key.is_static or self.value.is_static

    def bytes_per_token(self, kv_heads: int, head_dim: int) -> float:
        """Bytes that one token occupies in one layer, scales counted, residual windows not."""
        row = sum(plane.code_bytes(head_dim) + plane.scale_bytes_per_row(head_dim) for plane in (self.key, self.value))
        return kv_heads * row

    def bits_per_value(self, head_dim: int) -> float:
        """Average bits per cached value, scales counted."""
        return self.bytes_per_token(1, head_dim) * 8 / (2 * head_dim)

    def ratio_to_bf16(self, kv_heads: int, head_dim: int) -> float:
        """How many times more tokens fit than in bf16."""
        return 4.0 * kv_heads * head_dim / self.bytes_per_token(kv_heads, head_dim)


def symmetric(values: str, scope: str, *, group: int = 0) -> Plane:
    """A plane with one symmetric scale per ``scope``."""
    return Plane(VALUES[values], scope, group)
