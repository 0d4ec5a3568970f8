"""Format checks: value tables of the number formats, and what a wrong maximum costs.

Values come from ``adrbench.kernels.formats.values``, which decodes codes by the formats' definitions
without torch; a test compares it with torch code by code. Quantisation error is computed over
evenly spaced quantiles of a standard normal distribution, so it is the same number on every machine.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
from functools import cache
from itertools import pairwise
from pathlib import Path
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
from adrbench.claims.registry import Context, Finding, Unverifiable, check
from adrbench.kernels.formats.values import VALUES, decode

Format = Literal["fp8_e4m3fn", "fp8_e4m3fnuz", "fp8_e5m2", "int8", "int4"]

SCRIPT = Path(__file__).with_name("format_probe.py")
SAMPLE_SIZE = 1 << 18


def usable(name: str) -> list[float]:
    """Finite values that a quantiser produces, ascending. Integers are symmetric: -128 and -8 are left out."""
    values = {decode(name, code) for code in range(1 << VALUES[name].bits)}
    return sorted(v for v in values if math.isfinite(v) and abs(v) <= VALUES[name].maximum)


FORMAT = "max least min_normal min_subnormal infinities nans nan_codes negative_zero finite_codes bits relative_step"


@check("format", kind="format", gives=FORMAT)
def format_values(_context: Context, format: Format) -> Finding:
    """The value table of a format. ``relative_step``: largest relative rounding error of a normal value (floats)."""
    codes = {code: decode(format, code) for code in range(1 << VALUES[format].bits)}
    finite = [v for v in codes.values() if math.isfinite(v)]
    positive = [v for v in finite if 0 < v <= VALUES[format].maximum]
    normal = VALUES[format].min_normal
    steps = sorted(v for v in positive if v >= normal)
    nan_codes = [f"0x{code:02x}" for code, v in codes.items() if math.isnan(v)]
    values: dict[str, Any] = {
        "max": max(positive),
        "least": -max(positive),
        "min_normal": normal,
        "min_subnormal": min(positive),
        "infinities": sum(math.isinf(v) for v in codes.values()),
        "nans": len(nan_codes),
        "nan_codes": nan_codes,
        "negative_zero": any(v == 0 and math.copysign(1, v) < 0 for v in finite),
        "finite_codes": len(finite),
        "bits": VALUES[format].bits,
        "relative_step": max((b - a) / 2 / a for a, b in pairwise(steps)) if VALUES[format].is_float else None,
    }
    text = (
        f"{format}: values to +-{values['max']:g}, smallest {values['min_subnormal']:g}, {len(finite)} finite codes, "
        f"{values['infinities']} infinities, NaN at {', '.join(nan_codes) or 'no code'}"
    )
    return Finding(values, text, "value table of the format")


@check("format-pair", kind="format", gives="ratio same_codes differing_codes special_differ")
def format_pair(_context: Context, format: Format, other: Format) -> Finding:
    """The same bits read as two formats: the constant factor, if there is one, and which codes differ in kind."""
    pairs = {code: (decode(format, code), decode(other, code)) for code in range(256)}
    both = {c: p for c, p in pairs.items() if all(map(math.isfinite, p))}
    ratios = {a / b for a, b in both.values() if a and b}
    special = [f"0x{c:02x}" for c in pairs if c not in both and not all(map(math.isnan, pairs[c]))]
    same = sum(a == b and math.copysign(1, a) == math.copysign(1, b) for a, b in both.values())
    values: dict[str, Any] = {
        "ratio": ratios.pop() if len(ratios) == 1 else None,
        "same_codes": same,
        "differing_codes": 256 - same,
    }
    values["special_differ"] = special
    text = (
        f"value as {format} = {values['ratio']} x value as {other} for every code that both read as finite; "
        f"special: {', '.join(special)}"
    )
    return Finding(values, text, "value tables of both formats")


@cache
def _sample(outliers: bool) -> np.ndarray:
    """Quantiles of the standard normal distribution, float64 ``[SAMPLE_SIZE]``: no random numbers.

    With ``outliers`` one value in a thousand, evenly over the distribution, is 20 times as large.
    """
    normal = NormalDist()
    x = np.array([normal.inv_cdf((i + 0.5) / SAMPLE_SIZE) for i in range(SAMPLE_SIZE)])
    if outliers:
        x[500::1000] *= 20
    return x


def quantise(x: np.ndarray, name: str, clamp: bool) -> np.ndarray:
    """Nearest value of a format, ties to the even code. Beyond the maximum: saturate, or NaN without ``clamp``.

    Without clamping a value rounds to the maximum while it is less than half a step above it.
    """
    magnitudes = np.array([v for v in usable(name) if v >= 0])
    middles = (magnitudes[1:] + magnitudes[:-1]) / 2
    size = np.abs(x)
    # Magnitudes ascend with their codes, so an odd position is an odd code: a tie goes one further.
    position = np.searchsorted(middles, size)
    tie = np.isin(size, middles) & (position % 2 == 1)
    out: np.ndarray = np.copysign(magnitudes[position + tie], x)
    half_step = (magnitudes[-1] - magnitudes[-2]) / 2
    if not clamp:
        out = np.where(size >= magnitudes[-1] + half_step, np.nan, out)
    return out


@check("format-error", kind="format", gives="relative_rmse max_error nan_percent ratio_to_right")
def format_error(
    _context: Context, format: Format, assumed_max: float, clamp: bool = True, outliers: bool = False
) -> Finding:
    """Error of absmax scaling with an assumed maximum, over normal data.

    The scale is ``absmax / assumed_max``; a maximum that the format does not have clamps or gives NaN.
    ``relative_rmse`` is over values that are numbers, relative to the sample's root mean square;
    ``ratio_to_right`` compares it with the format's own maximum.
    """

    def measure(maximum: float, clamped: bool) -> tuple[float, float, float]:
        x = _sample(outliers)
        scale = np.abs(x).max() / maximum
        error = quantise(x / scale, format, clamped) * scale - x
        finite = np.isfinite(error)
        rmse = math.sqrt(float(np.mean(error[finite] ** 2))) / math.sqrt(float(np.mean(x**2)))
        return rmse, float(np.abs(error[finite]).max()), 100 * float(np.mean(~finite))

    rmse, largest, nan_percent = measure(assumed_max, clamp)
    right, _, _ = measure(VALUES[format].maximum, True)
    values = {"relative_rmse": rmse, "max_error": largest, "nan_percent": nan_percent, "ratio_to_right": rmse / right}
    how = f"{format} scaled to {assumed_max:g}, {'clamped' if clamp else 'not clamped'}"
    how += ", with outliers" if outliers else ""
    text = (
        f"{how}: relative RMSE {rmse:.4f} ({rmse / right:.2f} x that of its own maximum), "
        f"largest error {largest:.2f}, NaN {nan_percent:.2f} %"
    )
    return Finding(values, text, f"{SAMPLE_SIZE} quantiles of a normal distribution")


@cache
def torch_formats(python: str) -> dict[str, Any]:
    """What an interpreter's torch says about the 8-bit formats.

    Raises:
        Unverifiable: the interpreter does not run, or has no torch.
    """
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run([python, str(SCRIPT)], capture_output=True, text=True, timeout=120, env=environment)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unverifiable(f"needs an interpreter with torch ({error})") from None
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise Unverifiable(f"needs an interpreter with torch ({python}: {last})")
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer


@check("torch-cast", kind="format", gives="result max")
def torch_cast(context: Context, dtype: str, value: float) -> Finding:
    """What torch's CPU cast makes of a value: a number, or ``nan`` / ``inf`` as text."""
    answer = torch_formats(context.need_torch())
    formats = answer["formats"]
    if dtype not in formats or f"{value:g}" not in formats[dtype]["casts"]:
        raise Unverifiable(f"the probe does not cast {value:g} to {dtype}")
    result = formats[dtype]["casts"][f"{value:g}"]
    text = f"torch {answer['torch']}: {value:g} cast to {dtype} is {result}; finfo max {formats[dtype]['max']:g}"
    return Finding({"result": result, "max": formats[dtype]["max"]}, text, f"torch {answer['torch']} on CPU")


@check("torch-format", kind="format", gives="max min_normal least infinities nans negative_zero finite_codes")
def torch_format(context: Context, dtype: str) -> Finding:
    """A format's table as torch has it, for formats without a decoder here. ``least``: smallest positive value."""
    answer = torch_formats(context.need_torch())
    if dtype not in answer["formats"]:
        raise Unverifiable(f"needs a torch with {dtype}; {answer['torch']} has {', '.join(answer['formats'])}")
    row = answer["formats"][dtype]
    numbers = [v for v in row["table"] if isinstance(v, int | float)]
    values = {
        "max": row["max"],
        "min_normal": row["min_normal"],
        "least": min(v for v in numbers if v > 0),
        "infinities": sum(v in ("inf", "-inf") for v in row["table"]),
        "nans": row["table"].count("nan"),
        "negative_zero": "-0" in row["table"],
        "finite_codes": len(numbers) + row["table"].count("-0"),
    }
    text = f"torch {answer['torch']}, {dtype}: values to +-{values['max']:g}, {values['finite_codes']} finite codes"
    return Finding(values, text, f"torch {answer['torch']} on CPU")


@check("torch-name", kind="format", gives="exists dtypes")
def torch_name(context: Context, dtype: str) -> Finding:
    """Whether torch has a name at all, and which small dtypes it has."""
    answer = torch_formats(context.need_torch())
    known = answer["dtypes"]
    exists = dtype in known or answer["aliases"].get(dtype, False)
    text = f"torch {answer['torch']} has {'a' if exists else 'no'} {dtype}; its small dtypes: {', '.join(known)}"
    return Finding({"exists": exists, "dtypes": known}, text, f"torch {answer['torch']}")
