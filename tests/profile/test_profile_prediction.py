"""Predictions of the bytes model by hand, and when a measurement agrees with one."""

import pytest
from adrbench.paths import ROOT
from adrbench.profile.bound import interval
from adrbench.profile.model_shape import ModelConfigError, Shape, load_shape
from adrbench.profile.prediction import agreement, predicted_ratio, shape_as_dict, shape_from_dict

ALL_TRAFFIC, NO_TRAFFIC = interval(1.0, 1.0, 1.0), interval(0.0, 0.0, 0.0)


@pytest.fixture
def qwen() -> Shape:
    return load_shape(ROOT / "config/claims/data/qwen3.5-27b")


def test_a_shape_survives_its_way_through_evidence(qwen: Shape) -> None:
    assert shape_from_dict(shape_as_dict(qwen)) == qwen
    assert "source" not in shape_as_dict(qwen)


@pytest.mark.parametrize(("batch", "saving"), [(1, 0.020), (10, 0.138)])
def test_eight_bit_kv_of_the_27b_model_saves_what_the_hand_check_says(qwen: Shape, batch: int, saving: float) -> None:
    """About 1.9 % of all bytes held for one 32k sequence and 13.7 % for ten; a little more of those a step moves."""
    ratio = predicted_ratio(qwen, "auto", "fp8", batch, 32768, ALL_TRAFFIC)
    assert 1 - ratio["median"] == pytest.approx(saving, rel=0.05)
    assert ratio["low"] == ratio["median"] == ratio["high"]


def test_a_step_without_traffic_gains_nothing_at_best_an_upper_end(qwen: Shape) -> None:
    ratio = predicted_ratio(qwen, "auto", "fp8", 10, 32768, NO_TRAFFIC)
    assert (ratio["median"], ratio["high"]) == (1.0, 1.0)
    assert ratio["low"] == predicted_ratio(qwen, "auto", "fp8", 10, 32768, ALL_TRAFFIC)["low"]


def test_more_bytes_are_predicted_to_be_slower(qwen: Shape) -> None:
    ratio = predicted_ratio(qwen, "fp8", "auto", 4, 32768, interval(0.4, 0.5, 0.6))
    assert 1.0 < ratio["low"] < ratio["median"] < ratio["high"]


def test_scales_count(qwen: Shape) -> None:
    plain, scaled = (
        predicted_ratio(qwen, "auto", dtype, 10, 32768, ALL_TRAFFIC)["median"]
        for dtype in ("fp8", "int8_per_token_head")
    )
    assert plain < scaled < 1


def test_an_unknown_format_is_no_guess(qwen: Shape) -> None:
    with pytest.raises(ModelConfigError, match="int3"):
        predicted_ratio(qwen, "auto", "int3", 1, 100, ALL_TRAFFIC)


@pytest.mark.parametrize(
    ("measured", "word"),
    [((0.97, 1.0, 1.02), "agrees"), ((1.06, 1.07, 1.08), "slower"), ((0.80, 0.81, 0.82), "faster")],
)
def test_intervals_that_meet_agree(measured: tuple[float, float, float], word: str) -> None:
    assert agreement(interval(0.95, 0.98, 1.0), interval(*measured)) == word
