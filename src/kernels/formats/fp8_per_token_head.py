"""FP8 (e4m3fn) with one scale per token and KV head, made when the row is stored."""

from adrbench.kernels.formats.scheme import Scheme, symmetric

_PLANE = symmetric("fp8_e4m3fn", "token_head")

SCHEMES = (
    Scheme("fp8_per_token_head", _PLANE, _PLANE, "e4m3fn, one scale per token and KV head", "fp8_per_token_head"),
)
