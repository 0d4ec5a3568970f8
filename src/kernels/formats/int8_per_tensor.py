"""INT8 with one static scale for the whole layer: no scale traffic, and the coarsest 8-bit integer grid."""

from adrbench.kernels.formats.scheme import Scheme, symmetric

_PLANE = symmetric("int8", "tensor")

SCHEMES = (Scheme("int8_per_tensor", _PLANE, _PLANE, "INT8, one static scale per layer"),)
