"""References of the schemes: error, windows, faults, published formulas. Facts come from formats_facts.py.

Cannot prove: that a served model reads what the reference says (tests/serve/test_serve_simulation.py does).
"""

from __future__ import annotations

import pytest
from adrbench.kernels.formats import scheme, schemes

# Relative error (norm) on normal rows with channels of unequal size, head_dim 64, within 10 %: (key, value).
ERRORS = {
    "bf16": (0.0017, 0.0017),
    "int8_per_tensor": (0.0306, 0.0306),
    "int8_per_head": (0.0225, 0.0225),
    "int8_per_token_head": (0.0091, 0.0091),
    "fp8_per_tensor": (0.0265, 0.0265),
    "fp8_e4m3fnuz_per_tensor": (0.0264, 0.0264),
    "fp8_e4m3fnuz_224_per_tensor": (0.0265, 0.0265),
    "fp8_e5m2_per_tensor": (0.0533, 0.0533),
    "fp8_per_head": (0.0264, 0.0264),
    "fp8_e4m3fnuz_per_head": (0.0263, 0.0263),
    "fp8_e5m2_per_head": (0.0538, 0.0538),
    "fp8_per_token_head": (0.0228, 0.0228),
    "fp8_e4m3fnuz_per_token_head": (0.0227, 0.0227),
    "fp8_e5m2_per_token_head": (0.0453, 0.0453),
    "int4_per_token_head": (0.164, 0.164),
    "int4_g32": (0.095, 0.095),
    "int4_hadamard": (0.1036, 0.1036),
    "int4_hadamard_zero": (0.0878, 0.0878),
    "atom_int4": (0.120, 0.120),
    "qserve_kv4": (0.0958, 0.119),
    "qserve_kv4_plain": (0.119, 0.119),
    "kvquant4": (0.0821, 0.0951),
    "kvquant3": (0.162, 0.189),
    # Windows included: of 384 tokens KIVI quantises all keys and 256 values; the others 128.
    "kivi4": (0.0775, 0.077),
    "kivi2": (0.391, 0.391),
    "first256_fp8": (0.0133, 0.0133),
    "first256_fp8_e4m3fnuz": (0.013, 0.013),
    "first256_int4": (0.0555, 0.0555),
}
NAMES = sorted(schemes())
PLANES = [(name, which) for name in NAMES for which in ("key", "value")]


@pytest.fixture(scope="module")
def rounding(facts_of):
    return facts_of("rounding_facts.py")


@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_rounding_is_that_of_a_cast_to_16_bit_and_back(rounding, name):
    assert rounding["differing"][name] == 0


@pytest.mark.parametrize(("name", "which"), PLANES)
def test_a_reader_has_no_cast_to_16_bit_that_a_compiler_could_leave_out(rounding, name, which):
    assert rounding["sixteen_bit"][f"{name}.{which}"] == []


@pytest.fixture(scope="module")
def facts(facts_of):
    return facts_of("formats_facts.py")


def test_every_scheme_has_a_known_error(facts):
    assert set(ERRORS) == set(facts["schemes"]) == set(NAMES)


@pytest.mark.parametrize(("name", "which"), PLANES)
def test_error_is_that_of_the_format(facts, name, which):
    expected = ERRORS[name][which == "value"]
    assert facts["schemes"][name][which]["error"] == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize(("name", "which"), PLANES)
def test_a_zero_head_stays_zero(facts, name, which):
    zeros = facts["schemes"][name][which]["zeros"]
    if name.startswith("kvquant"):
        assert zeros < 0.6, "no level is exactly 0: a zero is off by at most half a level's width"
    else:
        assert zeros == 0


@pytest.mark.parametrize(("name", "which"), PLANES)
def test_windows_are_exact_and_the_rest_is_quantised_at_every_length(facts, name, which):
    for length, window in facts["schemes"][name][which]["lengths"].items():
        assert window["shape"] == [int(length), 3, 64]
        assert window["windows_exact"], length
        assert window["all_changed"], length


@pytest.mark.parametrize(("name", "which"), PLANES)
def test_a_quantised_token_reads_the_same_ever_after(facts, name, which):
    assert facts["schemes"][name][which]["old_tokens_never_change"]


@pytest.mark.parametrize(("name", "which"), PLANES)
def test_read_back_is_dequantise_of_quantise(facts, name, which):
    assert facts["schemes"][name][which].get("fast_path_is_the_reference", True)


def reach(name: str, which: str) -> tuple[int, int]:
    """(values, tokens) that one bad value may spoil: those that share its scale."""
    plane = getattr(scheme(name), which)
    shared = {"token_head": (64, 1), "row_group": (plane.group, 1), "channel": (plane.group, plane.group)}
    return shared.get(plane.scope, (1, 1))


@pytest.mark.parametrize(("name", "which"), PLANES)
@pytest.mark.parametrize("bad", ["nan", "inf", "minus_inf"])
def test_a_bad_value_spoils_what_shares_its_scale_and_nothing_else(facts, name, which, bad):
    found, plane = facts["schemes"][name][which][bad], getattr(scheme(name), which)
    values, tokens = reach(name, which)
    if not found["quantised"]:
        values, tokens = 1, 1
    assert found["heads_touched"] <= (3 if plane.scope == "token" else 1)
    assert found["tokens_touched"] <= tokens
    if plane.is_static and bad != "nan" and not name.startswith("kvquant"):
        assert isinstance(found["spot"], float), "a static scale saturates infinity"
        assert found["not_finite"] == 0
    elif plane.is_static and not plane.values.is_float and not name.startswith("kvquant"):
        assert found["spot"] == 0, "integers have no code for NaN"
    else:
        assert isinstance(found["spot"], str), "the damage must show"
        assert found["not_finite"] == values


@pytest.mark.parametrize(("name", "which"), PLANES)
def test_an_outlier_of_1e4_stays_finite_and_in_its_head(facts, name, which):
    found, plane = facts["schemes"][name][which]["outlier"], getattr(scheme(name), which)
    assert found["not_finite"] == 0
    assert found["heads_touched"] <= (3 if plane.scope == "token" else 1)
    assert found["tokens_touched"] <= reach(name, which)[1]
    if plane.is_static and not name.startswith("kvquant"):
        assert found["spot"] < 20, "a static scale clips what calibration did not see"
    else:
        assert found["spot"] == pytest.approx(1e4, rel=0.01)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dim", ["64", "96", "128", "256"])
def test_head_dimensions(facts, name, dim):
    expected = ERRORS[name]
    for error, at_64 in zip(facts["schemes"][name]["dims"][dim], expected, strict=True):
        assert 0.8 * at_64 < error < 1.7 * at_64


def test_published_formulas(facts):
    assert facts["by_hand"] == {"kivi_key": True, "kivi_value": True, "atom": True}


@pytest.mark.parametrize(
    ("which", "length", "end"),
    [("key", 127, 0), ("key", 128, 128), ("key", 255, 128), ("value", 128, 0), ("value", 129, 1), ("value", 300, 172)],
)
def test_kivi_windows_as_published(which, length, end):
    assert getattr(scheme("kivi2"), which).quantised_end(length) == end


def test_the_wrong_maximum_gives_nan(facts):
    assert facts["fnuz_scaled_to_448_is_nan"] > 0.05


def test_non_uniform_levels_fit_the_data(facts):
    assert facts["levels_ascend"]
    assert facts["levels_gain"] > 2


def test_rotation_smoothing_and_channel_scales_absorb_a_channel_outlier(facts):
    assert facts["hadamard_is_its_own_inverse"]
    error = facts["channel_outlier"]
    assert error["int4_hadamard"] < 0.5 * error["int4_per_token_head"]
    assert error["qserve_kv4"] < 0.5 * error["qserve_kv4_plain"]
    assert max(error["kivi4"], error["kvquant4"]) < 0.5 * error["int4_per_token_head"]
