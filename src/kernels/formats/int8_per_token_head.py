"""INT8 with one scale per token and KV head, made when the row is stored: no calibration."""

from adrbench.kernels.formats.scheme import Scheme, symmetric

_PLANE = symmetric("int8", "token_head")

SCHEMES = (
    Scheme("int8_per_token_head", _PLANE, _PLANE, "INT8, one scale per token and KV head", "int8_per_token_head"),
)
