"""FP8 with one static scale for the whole layer: vLLM's ``fp8``, ``fp8_e4m3`` and ``fp8_e5m2``.

On gfx94x vLLM stores e4m3fnuz, whose largest value is 240, and scales to 224 instead
(``vllm/model_executor/layers/quantization/utils/w8a8_utils.py``, "we use 224"): both are here.
"""

from adrbench.kernels.formats.scheme import Scheme, symmetric

VLLM_FNUZ_LIMIT = 224.0

_E4M3 = symmetric("fp8_e4m3fn", "tensor")
_E5M2 = symmetric("fp8_e5m2", "tensor")
_FNUZ = symmetric("fp8_e4m3fnuz", "tensor")
_VLLM = symmetric("fp8_e4m3fnuz", "tensor", limit=VLLM_FNUZ_LIMIT)

SCHEMES = (
    Scheme("fp8_per_tensor", _E4M3, _E4M3, "e4m3fn, one static scale per layer", "fp8_e4m3"),
    Scheme("fp8_e5m2_per_tensor", _E5M2, _E5M2, "e5m2, one static scale per layer", "fp8_e5m2"),
    Scheme("fp8_e4m3fnuz_per_tensor", _FNUZ, _FNUZ, "e4m3fnuz (to 240), one static scale per layer"),
    Scheme("fp8_e4m3fnuz_224_per_tensor", _VLLM, _VLLM, "e4m3fnuz scaled to vLLM's 224, one static scale per layer"),
)
