"""Numbers as text: as many digits as say something, the right unit, the interval beside the value.

Pure. Memory sizes are binary (KiB, MiB, GiB), rates decimal (GB/s, GFLOP/s), as the field writes them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

BINARY = ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"))
DECIMAL = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
SHORT = ((1.0, " s"), (1e-3, " ms"))
# An end of an interval that the data cannot bound.
OPEN = "–"
# Differences carry their sign.
SIGNED = ("points", "gain")
# Divergences below this are shown with one more place.
NEAR_ZERO_NATS = 0.001
# From here on milliseconds are read more easily as seconds.
LONG_MS = 1e4


@dataclass(frozen=True)
class Scale:
    """How a unit is shown: values are divided by ``divisor`` and followed by ``suffix``."""

    divisor: float = 1.0
    suffix: str = ""


def _prefixed(size: float, table: Sequence[tuple[float, str]], suffix: str) -> Scale:
    for divisor, prefix in table:
        if size >= divisor:
            return Scale(divisor, f" {prefix}{suffix}")
    return Scale(1.0, f" B{suffix}" if table is BINARY or suffix == "B/s" else f" {suffix}")


def scale_for(unit: str, values: Sequence[float]) -> Scale:
    """The scale that suits the largest of ``values``, so that a column can share one.

    Raises:
        ValueError: a unit this module does not know.
    """
    size = max((abs(value) for value in values), default=0.0)
    if unit == "bytes":
        return _prefixed(size, BINARY, "")
    if unit == "bytes_per_s":
        return _prefixed(size, DECIMAL, "B/s")
    if unit == "flop_per_s":
        return _prefixed(size, DECIMAL, "FLOP/s")
    if unit == "op_per_s":
        return _prefixed(size, DECIMAL, "OP/s")
    if unit == "ms":
        return Scale(1e3, " s") if size >= LONG_MS else Scale(1.0, " ms")
    if unit == "s":
        return next((Scale(d, suffix) for d, suffix in SHORT if size >= d), Scale(1e-6, " µs"))
    fixed = {
        "fraction": Scale(0.01, " %"),
        "gain": Scale(0.01, " %"),
        "ratio": Scale(1.0, "×"),
        "points": Scale(),
        "score": Scale(),
        "count": Scale(),
        "gib": Scale(1.0, " GiB"),
        "tokens": Scale(1.0, " tokens"),
        "tokens_per_s": Scale(1.0, " tok/s"),
        "requests_per_s": Scale(1.0, " req/s"),
        "quoted_tokens_per_s": Scale(1.0, " tok/s"),
        "w": Scale(1.0, " W"),
        "mhz": Scale(1.0, " MHz"),
        "percent": Scale(1.0, " %"),
        "number": Scale(),
        "ratio4": Scale(1.0, "×"),
        "nats": Scale(),
        "share": Scale(0.01, " %"),
    }
    if unit not in fixed:
        raise ValueError(f"unit {unit!r} is unknown to the report")
    return fixed[unit]


def decimals(unit: str, shown: Sequence[float]) -> int:
    """Decimal places for scaled values of one cell: three significant digits of the value, fewer where it is large;
    a quoted figure keeps those that it was published with."""
    if unit in ("count", "tokens"):
        return 0
    if unit in ("points", "score"):
        return 1
    if unit.startswith("quoted"):
        return len(f"{shown[0]:.6f}".rstrip("0").partition(".")[2])
    size = abs(shown[0]) if shown else 0.0
    if unit in ("fraction", "gain"):
        return 1 if size < 10 else 0
    if unit == "ratio":
        return 2
    if unit == "ratio4":
        return 4
    if unit == "share":
        return 2
    if unit == "nats":
        return 5 if size < NEAR_ZERO_NATS else 4
    if size == 0 or not math.isfinite(size):
        return 0
    return max(0, min(3, 2 - math.floor(math.log10(size))))


def number(value: float, places: int, signed: bool = False) -> str:
    """One number with thousands separators; a minus sign, never a negative zero."""
    text = f"{value:{'+' if signed else ''},.{places}f}"
    digits = text.lstrip("+-")
    if not digits.strip("0.,"):
        return digits
    return text.replace("-", "−")


def quantity(
    value: float,
    unit: str,
    low: float | None = None,
    high: float | None = None,
    scale: Scale | None = None,
    suffix: bool = True,
) -> str:
    """``value`` with its interval and unit, such as ``42 % [38, 46]``.

    An interval without width (a count that never varies) is left out.

    Args:
        scale: a column's common scale; none: the value's own.
        suffix: whether the unit is written.
    """
    scale = scale or scale_for(unit, [value])
    shown = [v / scale.divisor for v in (value, low, high) if v is not None]
    places = decimals(unit, shown)
    signed = unit in SIGNED
    text = number(shown[0], places, signed) + (scale.suffix if suffix else "")
    exact = low == high == value
    if not exact and (low is not None or high is not None):
        ends = (OPEN if end is None else number(end / scale.divisor, places, signed) for end in (low, high))
        text += f" [{', '.join(ends)}]"
    return text
