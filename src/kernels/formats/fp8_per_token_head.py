"""FP8 with one scale per token and KV head, made when the row is stored, in the three 8-bit float formats."""

from adrbench.kernels.formats.scheme import Scheme, symmetric


def _scheme(values: str, name: str, vllm: str | None = None) -> Scheme:
    plane = symmetric(values, "token_head")
    return Scheme(name, plane, plane, f"{values.removeprefix('fp8_')}, one scale per token and KV head", vllm)


SCHEMES = (
    _scheme("fp8_e4m3fn", "fp8_per_token_head", "fp8_per_token_head"),
    _scheme("fp8_e4m3fnuz", "fp8_e4m3fnuz_per_token_head"),
    _scheme("fp8_e5m2", "fp8_e5m2_per_token_head"),
)
