"""FP8 with one static scale per KV head, in the three 8-bit float formats that accelerators read."""

from adrbench.kernels.formats.scheme import Scheme, symmetric


def _scheme(values: str, name: str) -> Scheme:
    plane = symmetric(values, "head")
    return Scheme(name, plane, plane, f"{values.removeprefix('fp8_')}, one static scale per KV head")


SCHEMES = (
    _scheme("fp8_e4m3fn", "fp8_per_head"),
    _scheme("fp8_e4m3fnuz", "fp8_e4m3fnuz_per_head"),
    _scheme("fp8_e5m2", "fp8_e5m2_per_head"),
)
