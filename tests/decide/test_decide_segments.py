"""Intervals over segments: they cover, they widen when there are few, and they do not invent a width."""

from __future__ import annotations

import numpy as np
import pytest
from adrbench.decide.segments import expanded_tail, ratio_interval
from scipy.stats import norm


def test_a_constant_ratio_has_no_width() -> None:
    under = np.array([10.0, 20.0, 30.0])
    found = ratio_interval(0.25 * under, under, 0.95)
    assert (found.value, found.low, found.high) == pytest.approx((0.25, 0.25, 0.25))


def test_the_tail_tends_to_the_normal_one_and_is_smaller_for_few_segments() -> None:
    assert expanded_tail(100_000, 0.95) == pytest.approx(0.025, abs=1e-4)
    assert expanded_tail(5, 0.95) < expanded_tail(20, 0.95) < 0.025
    assert norm.ppf(expanded_tail(12, 0.95)) < -2.2


def test_one_segment_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 2"):
        ratio_interval(np.array([1.0]), np.array([2.0]), 0.95)


def test_nothing_in_the_denominator_is_refused() -> None:
    with pytest.raises(ValueError, match="all zero"):
        ratio_interval(np.zeros(3), np.zeros(3), 0.95)


@pytest.mark.parametrize("segments", [8, 16])
def test_the_interval_covers_the_true_mean(segments: int) -> None:
    """400 simulated texts: plain percentiles would cover about 90 % with 8 segments."""
    rng, hits, runs = np.random.default_rng(11), 0, 400
    for seed in range(runs):
        over = rng.gamma(2.0, 1.0, segments)
        found = ratio_interval(over, np.ones(segments), 0.95, draws=800, seed=seed)
        hits += found.low <= 2.0 <= found.high
    assert 0.92 <= hits / runs <= 0.985
