"""INT8 with one static scale per KV head: no scale traffic, but an outlier token coarsens its head."""

from adrbench.kernels.formats.scheme import Scheme, symmetric

_PLANE = symmetric("int8", "head")

SCHEMES = (Scheme("int8_per_head", _PLANE, _PLANE, "INT8, one static scale per KV head"),)
