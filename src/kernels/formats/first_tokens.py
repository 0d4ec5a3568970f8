"""The team's variant (learning.md, "KIVI 2D"): the first 256 tokens of a request in 16 bit, the rest FP8 or INT4.

It is not KIVI, which keeps the *newest* tokens: keeping the first ones is the attention-sink practice
of KVQuant. The rest has one scale per token and KV head. Whether a token is quantised depends on its
position only, so cached prefixes stay valid.
"""

from adrbench.kernels.formats.scheme import Plane, Scheme
from adrbench.kernels.formats.values import VALUES

FIRST_TOKENS = 256

_FP8 = Plane(VALUES["fp8_e4m3fn"], "token_head", sink=FIRST_TOKENS)
_FNUZ = Plane(VALUES["fp8_e4m3fnuz"], "token_head", sink=FIRST_TOKENS)
_INT4 = Plane(VALUES["int4"], "row_group", group=32, zero=True, scale_bytes=2, sink=FIRST_TOKENS)

SCHEMES = (
    Scheme("first256_fp8", _FP8, _FP8, "first 256 tokens in 16 bit, then e4m3fn per token and KV head"),
    Scheme("first256_fp8_e4m3fnuz", _FNUZ, _FNUZ, "first 256 tokens in 16 bit, then e4m3fnuz per token and KV head"),
    Scheme("first256_int4", _INT4, _INT4, "first 256 tokens in 16 bit, then INT4 per 32 dimensions"),
)
