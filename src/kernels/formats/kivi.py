"""KIVI (Liu et al. 2024, arXiv 2402.02750): keys per channel over 32 tokens, values per row group, asymmetric.

Key outliers sit in fixed channels, so a key scale runs along tokens. The window of 128 tokens is as
published (Algorithm 1, and the authors' ``models/llama_kivi.py``): keys leave it 128 at a time, four
groups of 32, so that ``length % 128`` of them are in 16 bit; values leave it one by one, so that
always the newest 128 are. The authors advise 4 bit for models with grouped KV heads.
"""

from adrbench.kernels.formats.scheme import Plane, Scheme
from adrbench.kernels.formats.values import VALUES

GROUP = 32
WINDOW_TOKENS = 128


def _scheme(bits: int) -> Scheme:
    values = VALUES[f"int{bits}"]
    key = Plane(values, "channel", group=GROUP, zero=True, scale_bytes=2, step=WINDOW_TOKENS)
    value = Plane(values, "row_group", group=GROUP, zero=True, scale_bytes=2, residual=WINDOW_TOKENS)
    summary = f"KIVI-{bits}: keys per channel over 32 tokens, values per 32 dimensions, newest 128 tokens in 16 bit"
    return Scheme(f"kivi{bits}", key, value, summary, source="arXiv 2402.02750")


SCHEMES = (_scheme(4), _scheme(2))
