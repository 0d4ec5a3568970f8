"""Gate G24: the start-up FP8 self-check.

The same 8 bits mean two different numbers: e4m3fnuz reads every code at half of what e4m3fn reads,
and puts its NaN elsewhere. Mixing them is silent. So before anything serves: the dtype that vLLM
resolves must be the one that the declared architecture implies, and the device must decode and
encode all 256 codes as that dtype's definition says. (C++'s ``__hip_fp8_e4m3_fnuz`` cannot be
compared with a torch dtype; the values can.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from adrbench.device.rules import E4M3FN, E4M3FNUZ, Fp8
from adrbench.device.rules import fp8 as format_of

FORMATS = {format_.dtype: format_ for format_ in (E4M3FN, E4M3FNUZ)}
BIAS = {"float8_e4m3fn": 7, "float8_e4m3fnuz": 8}
NAN_CODES = {"float8_e4m3fn": (0x7F, 0xFF), "float8_e4m3fnuz": (0x80,)}
TELLING_CODES = (0x7E, 0x7F, 0x80, 0xFF)


def decode(code: int, dtype: str) -> float:
    """The value of one code by the format's definition: sign, 4 exponent bits, 3 mantissa bits; NaN where it is NaN."""
    if code in NAN_CODES[dtype]:
        return math.nan
    exponent, mantissa, bias = code >> 3 & 0xF, code & 7, BIAS[dtype]
    size = math.ldexp(mantissa, 1 - bias - 3) if exponent == 0 else math.ldexp(8 + mantissa, exponent - bias - 3)
    return -size if code & 0x80 else size


def same(expected: float, seen: float | None) -> bool:
    """Equal as FP8 values: NaN (seen as None) equals NaN, and -0 is not +0."""
    if seen is None or math.isnan(expected):
        return seen is None and math.isnan(expected)
    return expected == seen and math.copysign(1, expected) == math.copysign(1, seen)


def shown(value: float | None) -> str:
    return "nan" if value is None or math.isnan(value) else f"{value:g}"


def round_trip(dtype: str, decoded: Sequence[float | None], encoded: Sequence[int]) -> list[str]:
    """Codes that the device reads, or writes back, otherwise than the definition of ``dtype`` says."""
    if len(decoded) != 256 or len(encoded) != 256:
        return [f"{len(decoded)} codes decoded and {len(encoded)} encoded, 256 expected"]
    problems = []
    for code in range(256):
        expected = decode(code, dtype)
        if not same(expected, decoded[code]):
            problems.append(f"code 0x{code:02x} decodes to {shown(decoded[code])}, {dtype} says {shown(expected)}")
        elif not math.isnan(expected) and encoded[code] != code:
            problems.append(f"{shown(expected)} encodes to 0x{encoded[code]:02x}, {dtype} says 0x{code:02x}")
    return problems


def _problems(expected: Fp8, observed: Mapping[str, Any], arch: str) -> list[str]:
    resolved = str(observed["dtype"])
    problems = []
    if resolved != expected.dtype:
        problems.append(
            f"vLLM resolves {resolved}, but {arch} implies {expected.dtype}: every value would be off by a factor 2"
        )
    if resolved not in FORMATS:
        return [*problems, f"{resolved} is no FP8 format that this check knows ({', '.join(FORMATS)})"]
    wrong = round_trip(resolved, observed["decoded"], observed["encoded"])
    problems += wrong[:4] + ([f"and {len(wrong) - 4} more codes"] if len(wrong) > 4 else [])
    format_ = FORMATS[resolved]
    if observed["maximum"] != format_.maximum:
        problems.append(
            f"torch gives {resolved} a maximum of {observed['maximum']:g}, its definition {format_.maximum:g}"
        )
    scale = observed.get("scale_maximum")
    if scale is not None and scale != format_.scale_maximum:
        problems.append(f"vLLM scales to {scale:g}, {resolved} needs {format_.scale_maximum:g}")
    return problems


def check(
    arch: str, observed: Mapping[str, Any] | None, why_not: str = "the serving interpreter has no vLLM"
) -> dict[str, Any]:
    """The verdict of G24 for the declared architecture.

    ``observed`` is ``inside.read_fp8``'s record. ``status`` is passed, failed, or not_run with the reason; a check that
    broke on the device has failed.
    """
    expected = format_of(arch)
    block: dict[str, Any] = {"gate": "G24", "arch": arch, "expected_dtype": expected.dtype}
    if observed is None:
        return {**block, "status": "not_run", "problems": [why_not]}
    if "problem" in observed:
        return {**block, "status": "failed", "problems": [f"the check broke: {observed['problem']}"]}
    problems = _problems(expected, observed, arch)
    decoded = observed["decoded"]
    return {
        **block,
        "status": "failed" if problems else "passed",
        "problems": problems,
        "resolved_dtype": observed["dtype"],
        "source": observed["source"],
        "device": observed["device"],
        "codes_compared": len(decoded),
        "codes": {f"0x{code:02x}": shown(decoded[code]) for code in TELLING_CODES if code < len(decoded)},
        "maximum": observed["maximum"],
        "scale_maximum": observed.get("scale_maximum"),
        "scale_problem": observed.get("scale_problem"),
        "overflow_of_1000": observed.get("overflow_of_1000"),
    }
