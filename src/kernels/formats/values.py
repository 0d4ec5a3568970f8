"""Number formats: what one cached value can be, independent of how a cache scales it.

The decoders are plain Python written from the format definitions (OCP 8-bit floating point 1.0 for
e4m3fn and e5m2; the "fnuz" variant of Noune et al. 2022, arXiv 2206.02915, for e4m3fnuz), so that
they can check torch and a device instead of repeating them. torch is imported where it is needed:
memory arithmetic imports this module in an environment without torch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class ValueFormat:
    """One number format.

    Attributes:
        name: the name used in evidence and scheme names.
        bits: size of one code.
        maximum: the largest magnitude that a quantiser may produce. Integers are symmetric: -128
            (and -8) exist as codes but are not used, so that negation is exact.
        min_normal: the smallest positive normal value (1 for integers).
        torch_name: the torch dtype that stores the codes, ``uint8`` for packed formats.
        triton_name: Triton's name of the type in signatures and casts.
    """

    name: str
    bits: int
    maximum: float
    min_normal: float
    torch_name: str
    triton_name: str

    @property
    def is_float(self) -> bool:
        return self.torch_name.startswith(("float", "bfloat"))

    @property
    def torch_dtype(self) -> torch.dtype:
        import torch

        dtype: torch.dtype = getattr(torch, self.torch_name)
        return dtype

    def finite_values(self) -> dict[int, float]:
        """Every code whose value is finite, with that value. Only formats of at most 8 bits."""
        if self.bits > 8:
            raise ValueError(f"{self.name}: {1 << self.bits} codes are not enumerated")
        values = {code: decode(self.name, code) for code in range(1 << self.bits)}
        return {code: value for code, value in values.items() if math.isfinite(value)}

    def encode(self, x: torch.Tensor, limit: float | None = None) -> torch.Tensor:
        """Round to the nearest code (ties to even), saturating at ``maximum``; NaN stays NaN in floats, 0 in integers.

        Args:
            x: any shape, float.
            limit: saturate here instead (beyond ``maximum`` the cast decides: NaN in the fn formats).

        Returns:
            Codes in ``torch_dtype``, same shape; 4-bit codes are not packed yet (int8 in -7..7).
        """
        import torch

        bound = self.maximum if limit is None else limit
        x = x.float().clamp(-bound, bound)
        if self.is_float:
            return x.to(self.torch_dtype)
        return x.round().nan_to_num(0.0).to(torch.int8)


def _float8(code: int, exponent_bits: int, bias: int, flavour: str) -> float:
    """Value of an 8-bit float code. ``flavour``: ``fn`` (one NaN per sign, no infinity), ``ieee``, or
    ``fnuz`` (0x80 is NaN, nothing else is special)."""
    mantissa_bits = 7 - exponent_bits
    sign = -1.0 if code & 0x80 else 1.0
    exponent = (code >> mantissa_bits) & ((1 << exponent_bits) - 1)
    mantissa = code & ((1 << mantissa_bits) - 1)
    top = (1 << exponent_bits) - 1
    if flavour == "fnuz" and code == 0x80:
        return math.nan
    if flavour == "fn" and exponent == top and mantissa == (1 << mantissa_bits) - 1:
        return math.nan
    if flavour == "ieee" and exponent == top:
        return math.nan if mantissa else sign * math.inf
    if exponent == 0:
        return sign * math.ldexp(mantissa, 1 - bias - mantissa_bits)
    return sign * math.ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits)


def decode(name: str, code: int) -> float:
    """Value of one code of a format of at most 8 bits.

    Raises:
        ValueError: the format is unknown here or wider than 8 bits.
    """
    if name == "int8":
        return float(code - 256 if code >= 128 else code)
    if name == "int4":
        return float(code - 16 if code >= 8 else code)
    if name in ("int3", "int2"):
        bits = int(name[3:])
        return float(code - (1 << bits) if code >= 1 << (bits - 1) else code)
    if name == "fp8_e4m3fn":
        return _float8(code, 4, 7, "fn")
    if name == "fp8_e4m3fnuz":
        return _float8(code, 4, 8, "fnuz")
    if name == "fp8_e5m2":
        return _float8(code, 5, 15, "ieee")
    raise ValueError(f"{name}: no 8-bit decoder")


VALUES: dict[str, ValueFormat] = {
    value.name: value
    for value in (
        ValueFormat("fp32", 32, 3.4028234663852886e38, 2.0**-126, "float32", "fp32"),
        ValueFormat("fp16", 16, 65504.0, 2.0**-14, "float16", "fp16"),
        ValueFormat("bf16", 16, 3.3895313892515355e38, 2.0**-126, "bfloat16", "bf16"),
        ValueFormat("fp8_e4m3fn", 8, 448.0, 2.0**-6, "float8_e4m3fn", "fp8e4nv"),
        ValueFormat("fp8_e4m3fnuz", 8, 240.0, 2.0**-7, "float8_e4m3fnuz", "fp8e4b8"),
        ValueFormat("fp8_e5m2", 8, 57344.0, 2.0**-14, "float8_e5m2", "fp8e5"),
        ValueFormat("int8", 8, 127.0, 1.0, "int8", "i8"),
        ValueFormat("int4", 4, 7.0, 1.0, "uint8", "u8"),
        ValueFormat("int3", 3, 3.0, 1.0, "uint8", "u8"),
        ValueFormat("int2", 2, 1.0, 1.0, "uint8", "u8"),
    )
}
