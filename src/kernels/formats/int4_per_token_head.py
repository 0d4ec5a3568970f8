"""INT4 (-7..7) with one scale per token and KV head."""

from adrbench.kernels.formats.scheme import Scheme, symmetric

_PLANE = symmetric("int4", "token_head")

SCHEMES = (Scheme("int4_per_token_head", _PLANE, _PLANE, "INT4, one scale per token and KV head"),)
