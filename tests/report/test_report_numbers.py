"""Numbers as text. What this cannot prove: that a reader finds the digits sensible."""

from __future__ import annotations

import pytest
from adrbench.report.numbers import quantity, scale_for


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (2 * 2**30, "bytes", "2.00 GiB"),
        (2e9, "bytes_per_s", "2.00 GB/s"),
        (5.3e12, "bytes_per_s", "5.30 TB/s"),
        (65536, "bytes", "64.0 KiB"),
        (12, "bytes", "12.0 B"),
        (0.0364, "fraction", "3.6 %"),
        (0.364, "fraction", "36 %"),
        (-0.021, "gain", "−2.1 %"),
        (1.0, "gain", "+100 %"),
        (0.5, "ratio", "0.50×"),
        (1.25, "points", "+1.2"),
        (-0.04, "points", "0.0"),
        (46592, "tokens", "46,592 tokens"),
        (0.0583, "s", "58.3 ms"),
        (1999.4, "ms", "1,999 ms"),
        (12340.0, "ms", "12.3 s"),
        (0.0, "count", "0"),
    ],
)
def test_value_and_unit(value: float, unit: str, text: str) -> None:
    assert quantity(value, unit) == text


def test_interval_shares_digits_and_unit() -> None:
    assert quantity(9.31e9, "bytes_per_s", 9.049e9, 10.2e9) == "9.31 GB/s [9.05, 10.20]"
    assert quantity(1.25, "points", -4.1, 6.3) == "+1.2 [−4.1, +6.3]"


def test_open_end_is_shown_and_an_exact_value_has_no_interval() -> None:
    assert quantity(1.06, "ratio", 0.9, None) == "1.06× [0.90, –]"
    assert quantity(1.0, "gain", 1.0, 1.0) == "+100 %"


def test_column_scale_is_that_of_its_largest_value() -> None:
    scale = scale_for("ms", [800.0, 12000.0])
    assert [quantity(v, "ms", scale=scale, suffix=False) for v in (800.0, 12000.0)] == ["0.800", "12.0"]


def test_unknown_unit_is_refused() -> None:
    with pytest.raises(ValueError, match="furlongs"):
        quantity(1.0, "furlongs")
