"""Number formats: the value tables against torch, code by code, and the cost of a wrong maximum.

torch runs in the serving interpreter. What an accelerator's own conversion does is not shown here.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from adrbench.claims.format import quantise, torch_formats, usable
from adrbench.claims.registry import CHECKS, Context, Unverifiable
from adrbench.kernels.formats.values import decode

CONTEXT = Context(data=Path())


def values(name: str, **arguments: Any) -> dict[str, Any]:
    return CHECKS[name].run(CONTEXT, arguments).values


def as_word(value: float) -> float | str:
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return "-0" if value == 0 and math.copysign(1, value) < 0 else value


@pytest.mark.parametrize("name", ["e4m3fn", "e4m3fnuz", "e5m2"])
def test_every_code_has_the_value_that_torch_gives_it(serve_python: str, name: str) -> None:
    table = torch_formats(serve_python)["formats"][f"float8_{name}"]["table"]
    assert [as_word(decode(f"fp8_{name}", code)) for code in range(256)] == table


@pytest.mark.parametrize("name", ["e4m3fn", "e4m3fnuz", "e5m2"])
def test_maximum_and_smallest_normal_are_torchs(serve_python: str, name: str) -> None:
    stated, found = torch_formats(serve_python)["formats"][f"float8_{name}"], values("format", format=f"fp8_{name}")
    assert (found["max"], found["min_normal"]) == (stated["max"], stated["min_normal"])


@pytest.mark.parametrize("name", ["e4m3fn", "e4m3fnuz", "e5m2"])
def test_casts_inside_the_range_are_torchs(serve_python: str, name: str) -> None:
    casts = torch_formats(serve_python)["formats"][f"float8_{name}"]["casts"]
    inside = {float(v): got for v, got in casts.items() if float(v) <= values("format", format=f"fp8_{name}")["max"]}
    assert inside
    assert quantise(np.array(list(inside)), f"fp8_{name}", clamp=True).tolist() == list(inside.values())


def test_the_ranges_that_the_notes_confuse() -> None:
    assert (values("format", format="fp8_e4m3fn")["max"], values("format", format="fp8_e4m3fnuz")["max"]) == (448, 240)
    assert (values("format", format="int8")["max"], values("format", format="int4")["max"]) == (127, 7)


def test_the_same_bits_mean_twice_the_value() -> None:
    found = values("format-pair", format="fp8_e4m3fn", other="fp8_e4m3fnuz")
    assert found["ratio"] == 2.0
    assert sorted(found["special_differ"]) == ["0x7f", "0x80", "0xff"]
    assert values("format-pair", format="fp8_e4m3fn", other="fp8_e5m2")["ratio"] is None


def test_integers_are_symmetric() -> None:
    assert usable("int8")[0] == -127
    assert usable("int4") == [float(v) for v in range(-7, 8)]


def test_rounding_is_to_the_nearest_value_and_saturates_or_gives_nan() -> None:
    x = np.array([0.4, 0.6, -3.2, 500.0])
    assert quantise(x, "int8", clamp=True).tolist() == [0, 1, -3, 127]
    out = quantise(np.array([241.0, 247.9, 248.0, -300.0]), "fp8_e4m3fnuz", clamp=False)
    assert out[:2].tolist() == [240, 240]
    assert np.isnan(out[2:]).all()


def test_a_wrong_maximum_costs_error_or_nan() -> None:
    right = values("format-error", format="fp8_e4m3fnuz", assumed_max=240)
    clamped = values("format-error", format="fp8_e4m3fnuz", assumed_max=448)
    open_ended = values("format-error", format="fp8_e4m3fnuz", assumed_max=448, clamp=False)
    assert right["relative_rmse"] == pytest.approx(0.0264, rel=0.01)
    assert clamped["relative_rmse"] == pytest.approx(0.0562, rel=0.02)
    assert clamped["ratio_to_right"] > 2
    assert (right["nan_percent"], open_ended["nan_percent"]) == (0, pytest.approx(1.0, abs=0.1))


def test_outliers_make_the_clamp_worse() -> None:
    plain = values("format-error", format="fp8_e4m3fnuz", assumed_max=448)
    outliers = values("format-error", format="fp8_e4m3fnuz", assumed_max=448, outliers=True)
    assert outliers["max_error"] > 5 * plain["max_error"]


def test_an_interpreter_without_torch_leaves_casts_unverified(tmp_path: Path) -> None:
    for python in (str(tmp_path / "none"), "/bin/false"):
        with pytest.raises(Unverifiable, match="needs an interpreter with torch"):
            torch_formats(python)
    with pytest.raises(Unverifiable, match="serve_python"):
        CHECKS["torch-name"].run(CONTEXT, {"dtype": "float8_e4m3fn"})
