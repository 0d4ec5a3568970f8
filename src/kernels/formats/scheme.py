"""A cache scheme: a name for how keys and how values are stored, with its memory arithmetic."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from adrbench.kernels.formats.plane import SCALE_FLOOR, Plane, Quantised
from adrbench.kernels.formats.values import VALUES

if TYPE_CHECKING:
    import torch

__all__ = ["SCALE_FLOOR", "Plane", "Quantised", "Scheme", "symmetric"]

BYTES_16_BIT = 2
PLANES = ("key", "value")


@dataclass(frozen=True)
class Scheme:
    """A named way to store keys and values.

    ``vllm`` is the ``--kv-cache-dtype`` under which stock vLLM stores the same bytes, if it does;
    ``source`` is where the scheme is published.
    """

    name: str
    key: Plane
    value: Plane
    summary: str
    vllm: str | None = None
    source: str = ""

    @property
    def is_static(self) -> bool:
        return self.key.is_static or self.value.is_static

    @property
    def needs_calibration(self) -> bool:
        """Whether the scheme cannot run without calibration evidence."""
        return self.key.needs_calibration or self.value.needs_calibration

    @property
    def depends_on_length(self) -> bool:
        """Whether how a token is read depends on how many follow it (a 16-bit window, groups of tokens)."""
        return self.key.depends_on_length or self.value.depends_on_length

    def with_parameters(self, parameters: Mapping[str, Any]) -> Scheme:
        """The scheme with fields of its planes changed: ``{"group": 64}``, or ``{"key.group": 64}`` for one plane.

        Raises:
            ValueError: a field that no plane has, a value of another type, or values that do not fit together.
        """
        changed: dict[str, Any] = {}
        for which in PLANES:
            plane = getattr(self, which)
            fields = {f.name: getattr(plane, f.name) for f in dataclasses.fields(plane) if f.name not in FIXED_FIELDS}
            wanted = {}
            for name, value in parameters.items():
                prefix, _, field = name.rpartition(".")
                if prefix not in ("", *PLANES) or field not in fields:
                    raise ValueError(f"{name!r} is unknown for {self.name}; allowed are {', '.join(fields)}")
                if prefix in ("", which):
                    wanted[field] = _fitting(name, value, fields[field])
            changed[which] = dataclasses.replace(plane, **wanted)
        return dataclasses.replace(self, **changed)

    def check_head_dim(self, head_dim: int) -> None:
        """Refuse a head dimension that the scheme cannot store (ValueError)."""
        for plane in (self.key, self.value):
            plane.check_head_dim(head_dim)

    def calibrate(self, key: torch.Tensor, value: torch.Tensor) -> dict[str, dict[str, Any]]:
        """Static values of one layer from sample keys and values ``[tokens, heads, dim]``, as plain lists."""
        return {"key": self.key.calibrate(key), "value": self.value.calibrate(value)}

    def bytes_per_token(self, kv_heads: int, head_dim: int) -> float:
        """Bytes that one quantised token occupies in one layer, scales counted, 16-bit windows not."""
        return kv_heads * sum(plane.row_bytes(head_dim, kv_heads) for plane in (self.key, self.value))

    def bytes_of_request(self, length: int, kv_heads: int, head_dim: int) -> float:
        """Bytes that a request of ``length`` tokens occupies in one layer, scales and 16-bit windows counted."""
        total = 0.0
        for plane in (self.key, self.value):
            quantised = max(0, plane.quantised_end(length) - plane.sink)
            wide = (length - quantised) * head_dim * BYTES_16_BIT
            total += kv_heads * (quantised * plane.row_bytes(head_dim, kv_heads) + wide)
        return total

    def bits_per_value(self, head_dim: int) -> float:
        """Average bits per cached value, scales counted."""
        return self.bytes_per_token(1, head_dim) * 8 / (2 * head_dim)

    def ratio_to_bf16(self, kv_heads: int, head_dim: int) -> float:
        """How many times more tokens fit than in bf16."""
        return 4.0 * kv_heads * head_dim / self.bytes_per_token(kv_heads, head_dim)


FIXED_FIELDS = ("values", "scope")
"""Fields of a plane that make the scheme what its name says: changing one is another scheme, in its own file."""


def _fitting(name: str, value: Any, current: Any) -> Any:
    """A parameter's value in the type of the field it replaces; ``limit`` may be None until set."""
    if isinstance(current, bool) != isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name}: {value!r} is not a {type(current).__name__}")
    if isinstance(current, int) and not isinstance(value, int):
        raise ValueError(f"{name}: {value!r} is not a whole number")
    return value


def symmetric(values: str, scope: str, *, group: int = 0, **fields: Any) -> Plane:
    """A plane with one symmetric scale per ``scope``."""
    return Plane(VALUES[values], scope, group, **fields)
