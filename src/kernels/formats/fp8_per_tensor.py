"""FP8 with one static scale for the whole layer: vLLM's ``fp8``, ``fp8_e4m3`` and ``fp8_e5m2``."""

from adrbench.kernels.formats.scheme import Scheme, symmetric

_E4M3 = symmetric("fp8_e4m3fn", "tensor")
_E5M2 = symmetric("fp8_e5m2", "tensor")

SCHEMES = (
    Scheme("fp8_per_tensor", _E4M3, _E4M3, "e4m3fn, one static scale per layer", "fp8_e4m3"),
    Scheme("fp8_e5m2_per_tensor", _E5M2, _E5M2, "e5m2, one static scale per layer", "fp8_e5m2"),
)
