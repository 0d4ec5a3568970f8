"""The cache as the model computes it: 16 bit, no scale."""

from adrbench.kernels.formats.scheme import Plane, Scheme
from adrbench.kernels.formats.values import VALUES

SCHEMES = (Scheme("bf16", Plane(VALUES["bf16"]), Plane(VALUES["bf16"]), "16 bit, as the model computes", "auto"),)
