"""Planned rounds: the planner's power against simulation."""

import math

import numpy as np
import pytest
from adrbench.decide.intervals import compare
from adrbench.decide.multiplicity import holm
from adrbench.decide.planning import MOST_PAIRS, MOST_ROUNDS, pairs_needed, power_of_rounds, rounds_needed


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


def tasks(pairs, loss):
    """Four task classes of ``pairs`` pairs each; every tenth differs by 50, and all by ``loss``."""
    return [[loss + (50.0 if i % 10 == 0 else -50.0 if i % 10 == 5 else 0.0) for i in range(pairs)] for _ in range(4)]


@pytest.mark.parametrize(("pairs", "loss", "planned"), [(20, 0.0, True), (20, 2.9, False), (2000, 2.0, True)])
def test_pairs_that_no_team_would_run_are_no_plan(pairs, loss, planned):
    """A loss of 2.9 against a limit of 3 needs hundreds of thousands of pairs: it is too near to be decided by more."""
    needed = pairs_needed(tasks(pairs, loss), 3.0, 0.95)
    assert (needed is not None) is planned
    if needed is not None:
        assert needed <= max(MOST_PAIRS, 20 * 4 * pairs)


def test_a_large_run_may_be_enlarged_beyond_the_usual():
    assert pairs_needed(tasks(2000, 2.4), 3.0, 0.95) > MOST_PAIRS


def test_rounds_that_no_team_would_run_are_no_plan():
    assert rounds_needed(0.05, 0.05 * math.sqrt(MOST_ROUNDS) / 4, 0.95) <= MOST_ROUNDS
    assert rounds_needed(0.05, 0.05 * math.sqrt(MOST_ROUNDS) / 2, 0.95) is None


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
