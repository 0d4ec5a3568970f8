"""Spending of the error over repeated looks."""

import numpy as np
import pytest
from adrbench.decide.intervals import compare
from adrbench.decide.sequential import look_confidence, spent


def test_the_whole_error_is_spent_at_the_end_and_none_is_lost():
    assert spent(1.0, 0.05) == pytest.approx(0.05)
    looks = [2, 3, 5, 8]
    assert sum(1 - look_confidence(looks, now, 0.95) for now in looks) == pytest.approx(0.05)


def test_known_value_at_half_of_the_plan():
    # Kim and DeMets, exponent 2: a quarter of the error at half of the rounds.
    assert spent(0.5, 0.05) == pytest.approx(0.0125)


def test_early_looks_are_strict_and_one_look_is_plain():
    assert look_confidence([2, 4, 6], 2, 0.95) > look_confidence([2, 4, 6], 6, 0.95) > 0.95
    assert look_confidence([5], 5, 0.95) == pytest.approx(0.95)


@pytest.mark.parametrize(("looks", "now"), [([3, 2], 2), ([2, 3], 4), ([], 1), ([0, 2], 2), ([2, 2], 2)])
def test_plans_that_are_none_are_refused(looks, now):
    with pytest.raises(ValueError, match="look"):
        look_confidence(looks, now, 0.95)


def test_looking_after_every_round_keeps_the_error():
    """Two equal arms, looks at 2 to 6 rounds: unadjusted looks would err in about 15 % of experiments."""
    rng, looks, trials = np.random.default_rng(4), [2, 3, 4, 5, 6], 600
    wrong = {"spent": 0, "plain": 0}
    for _ in range(trials):
        noise = np.exp(0.05 * rng.standard_normal((2, 6)))
        crossed = {"spent": False, "plain": False}
        for now in looks:
            values = {name: dict(enumerate(row[:now])) for name, row in zip("ab", noise, strict=True)}
            for rule, confidence in (("spent", look_confidence(looks, now, 0.95)), ("plain", 0.95)):
                log = compare(values, "a", "b", confidence).log
                crossed[rule] |= log.low > 0 or log.high < 0
        for rule in wrong:
            wrong[rule] += crossed[rule]
    assert wrong["spent"] / trials <= 0.06
    assert wrong["plain"] / trials > 0.09
