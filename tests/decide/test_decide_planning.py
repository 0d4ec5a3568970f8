"""Planned rounds: the planner's power against simulation."""

import math

import numpy as np
import pytest
from adrbench.decide.intervals import compare
from adrbench.decide.multiplicity import holm
from adrbench.decide.planning import power_of_rounds, rounds_needed


@pytest.mark.parametrize(("gain", "sd"), [(0.05, 0.02), (0.10, 0.04), (0.075, 0.03)])
def test_planned_rounds_decide_as_often_as_planned(gain, sd):
    needed = rounds_needed(math.log1p(gain), sd * math.sqrt(2), 0.95)
    rng, decided, trials = np.random.default_rng(3), 0, 1500
    for _ in range(trials):
        arm, base = np.exp(sd * rng.standard_normal((2, needed)))
        decided += (
            compare({"a": dict(enumerate((1 + gain) * arm)), "b": dict(enumerate(base))}, "a", "b", 0.95).log.low > 0
        )
    planned = power_of_rounds(math.log1p(gain), sd * math.sqrt(2), needed, 0.95)
    assert planned >= 0.9
    assert decided / trials == pytest.approx(planned, abs=0.03)


def test_one_round_less_would_not_do():
    needed = rounds_needed(0.05, 0.04, 0.95)
    assert power_of_rounds(0.05, 0.04, needed - 1, 0.95) < 0.9 <= power_of_rounds(0.05, 0.04, needed, 0.95)


@pytest.mark.parametrize(("margin", "sd"), [(0.0, 0.1), (0.05, 0.0), (1e-6, 0.5)])
def test_nothing_to_plan_for(margin, sd):
    assert rounds_needed(margin, sd, 0.95) is None


def test_the_sign_of_the_margin_does_not_matter():
    assert rounds_needed(-0.05, 0.04, 0.95) == rounds_needed(0.05, 0.04, 0.95)


def test_holm_of_three_known_values():
    adjusted = holm({"a": 0.01, "b": 0.04, "c": 0.03})
    assert adjusted == {"a": pytest.approx(0.03), "b": pytest.approx(0.06), "c": pytest.approx(0.06)}
    assert holm({}) == {}


def test_holm_agrees_with_statsmodels():
    from statsmodels.stats.multitest import multipletests

    rng = np.random.default_rng(1)
    for _ in range(5):
        values = rng.random(8) ** 3
        ours = holm({str(i): float(p) for i, p in enumerate(values)})
        assert [ours[str(i)] for i in range(8)] == pytest.approx(list(multipletests(values, method="holm")[1]))


def test_holm_of_one_value_is_the_value():
    assert holm({"only": 0.02}) == {"only": pytest.approx(0.02)}
