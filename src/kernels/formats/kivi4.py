"""KIVI-4 (Liu et al. 2024, arXiv 2402.02750): keys per channel over 32 tokens, values per row group.

Key outliers sit in fixed channels, so a key scale runs along tokens; the newest 128 tokens stay in
16 bit because a channel group can be quantised only when its tokens are all there.
"""

from adrbench.kernels.formats.scheme import Plane, Scheme
from adrbench.kernels.formats.values import VALUES

_KEY = Plane(VALUES["int4"], "channel", group=32, zero=True, scale_bytes=2, residual=128)
_VALUE = Plane(VALUES["int4"], "row_group", group=32, zero=True, scale_bytes=2, residual=128)

SCHEMES = (Scheme("kivi4", _KEY, _VALUE, "KIVI-4: keys per channel over 32 tokens, values per 32 dimensions"),)
