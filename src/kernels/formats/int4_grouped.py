"""INT4 in groups of 32 neighbouring dimensions, each with a 16-bit scale and zero point (5 bits a value)."""

from adrbench.kernels.formats.scheme import Plane, Scheme
from adrbench.kernels.formats.values import VALUES

_PLANE = Plane(VALUES["int4"], "row_group", group=32, zero=True, scale_bytes=2)

SCHEMES = (Scheme("int4_g32", _PLANE, _PLANE, "INT4, scale and zero point per 32 dimensions"),)
