"""Order-statistic bounds: known answers and coverage. It cannot prove that requests are independent."""

import numpy as np
import pytest
from adrbench.decide.percentiles import bounds, lower_rank, percentile, resting_ranks, upper_rank, values_to_close


def test_median_of_100_uses_the_textbook_ranks():
    # Binomial(100, 1/2): the 95 % interval of the median is the 40th to the 61st value.
    assert bounds(range(1, 101), 50, 0.975) == (40, 61)


@pytest.mark.parametrize(("n", "closed"), [(298, False), (299, True)])
def test_p99_upper_bound_is_open_below_299_values(n, closed):
    assert (upper_rank(n, 0.99, 0.95) is not None) is closed
    assert values_to_close(99, 0.95) == 299


def test_values_to_close_is_the_first_n_that_closes():
    for level in (0.9, 0.975, 0.99375):
        n = values_to_close(99, level)
        assert upper_rank(n, 0.99, level) == n
        assert upper_rank(n - 1, 0.99, level) is None


def test_lower_bound_of_a_tiny_sample_is_open_too():
    assert lower_rank(3, 0.5, 0.975) is None
    assert bounds([1.0, 2.0, 3.0], 50, 0.975) == (None, None)


def test_order_of_the_values_does_not_matter_and_ties_are_fine():
    assert bounds([5.0] * 400, 99, 0.975) == (5.0, 5.0)
    assert bounds([3, 1, 2] * 10, 50, 0.9) == bounds(sorted([3, 1, 2] * 10), 50, 0.9)


@pytest.mark.parametrize("values", [[], [1.0, float("nan")], [float("inf")]])
def test_nothing_and_not_a_number_are_refused(values):
    with pytest.raises(ValueError, match="finite"):
        bounds(values, 99, 0.95)


def test_p99_of_50_requests_rests_on_the_two_slowest():
    assert resting_ranks(50, 99) == (2, 1)
    values = list(range(50))
    assert percentile(values, 99) == pytest.approx(48 + 0.51)
    assert resting_ranks(101, 99) == (2, 2)


def test_coverage_of_a_heavy_tailed_p90():
    rng, true = np.random.default_rng(5), float(np.exp(1.2815515655446004))  # lognormal, sigma 1
    intervals = [bounds(np.exp(rng.standard_normal(120)).tolist(), 90, 0.975) for _ in range(2000)]
    # Ranks are whole numbers, so that the coverage is at least 95 % and somewhat more.
    assert 0.94 <= np.mean([low <= true <= high for low, high in intervals]) <= 0.99
