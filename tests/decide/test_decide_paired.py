"""Accuracy intervals: known answers, degenerate scores, and simulated coverage of zero-inflated differences."""

import numpy as np
import pytest
from adrbench.decide.paired import agreement, differences, mean_interval, weights
from adrbench.decide.planning import pairs_needed


def test_fourteen_equal_pairs_give_the_two_sided_rule_of_three():
    found = mean_interval([[0.0] * 14], 0.95)
    assert found.value == 0
    assert found.high == pytest.approx(100 * (1 - 0.025 ** (1 / 14)), rel=0.02)  # Clopper-Pearson, 23.2 points
    assert found.low == pytest.approx(-found.high, rel=1e-9)


def test_equal_pairs_of_four_tasks_pool():
    found = mean_interval([[0.0] * 14] * 4, 0.95)
    assert found.high == pytest.approx(100 * (1 - 0.025 ** (1 / 56)), rel=0.02)


def test_binary_differences_give_clopper_pearson():
    from scipy.stats import beta

    found = mean_interval([[100.0] * 3 + [0.0] * 17], 0.95)
    assert found.high == pytest.approx(100 * beta.ppf(0.975, 4, 17), rel=0.02)


def test_a_small_task_weighs_as_much_as_a_large_one():
    found = mean_interval([[10.0] * 2, [0.0] * 200], 0.95)
    assert found.value == pytest.approx(5.0)
    assert weights([[1.0] * 2, [1.0] * 200]) == [0.25, 0.0025]
    # The guard weighs as much as the heaviest pair, so the small task keeps the interval wide.
    assert found.high > 20


def test_two_pairs_bound_almost_nothing():
    found = mean_interval([[5.0, -5.0]], 0.95)
    assert found.low < -70
    assert found.high > 70


def test_same_data_same_interval():
    data = [[0.0, 50.0, -20.0, 0.0], [0.0] * 8]
    assert mean_interval(data, 0.95) == mean_interval(data, 0.95)


def test_more_pairs_narrow_the_interval():
    few, many = (mean_interval([[0.0, 0.0, 50.0, -50.0] * n], 0.95) for n in (5, 100))
    assert many.high - many.low < (few.high - few.low) / 3


@pytest.mark.parametrize(
    ("baseline", "arm", "message"),
    [([1.0], [1.0, 2.0], "cannot be paired"), ([], [], "cannot be paired"), ([101.0], [1.0], "between 0 and 100"),
     ([float("nan")], [1.0], "between 0 and 100"), ([1.0], [-0.1], "between 0 and 100")],
)  # fmt: skip
def test_scores_that_do_not_pair_are_refused(baseline, arm, message):
    with pytest.raises(ValueError, match=message):
        differences(baseline, arm)


def test_empty_tasks_are_refused():
    with pytest.raises(ValueError, match="at least one pair"):
        mean_interval([[1.0], []], 0.95)


def test_agreement_counts_equal_scores():
    assert agreement([[0.0, 1.0], [0.0, 0.0]]) == 0.75


def simulated(rng, sizes, rate, loss):
    """Differences in which a fraction ``rate`` of pairs differs: a loss of 0-100 with probability ``loss``."""
    tasks = []
    for n in sizes:
        differ = rng.random(n) < rate
        sign = np.where(rng.random(n) < loss, 1, -1)
        tasks.append(differ * sign * 100 * rng.random(n) ** 0.5)
    return tasks


@pytest.mark.parametrize(("rate", "loss"), [(0.02, 1.0), (0.1, 0.5), (0.1, 1.0), (0.4, 0.6)])
@pytest.mark.parametrize("sizes", [(14, 14, 14, 8), (40, 40, 40, 40)])
def test_coverage_of_zero_inflated_differences(sizes, rate, loss):
    """At least 95 %, within Monte-Carlo error; the normal interval covers 62 % of the first case."""
    rng, hits, trials = np.random.default_rng(11), 0, 250
    true = rate * (2 * loss - 1) * 100 * 2 / 3
    for _ in range(trials):
        found = mean_interval(simulated(rng, sizes, rate, loss), 0.95, draws=1000)
        hits += found.low <= true <= found.high
    assert hits / trials >= 0.93


def test_planned_pairs_decide_as_often_as_planned():
    """Take a pilot, plan, then draw experiments of that size: about 90 % must decide."""
    rng = np.random.default_rng(13)
    pilot = [task.tolist() for task in simulated(rng, (200, 200, 200, 200), 0.15, 0.5)]
    centred = [[value - np.mean(task) for value in task] for task in pilot]
    needed = pairs_needed(centred, 3.0, 0.95)
    decided = 0
    for _ in range(200):
        tasks = [rng.choice(task, size=round(needed / 4)) for task in centred]
        decided += mean_interval(tasks, 0.95, draws=1500).high <= 3.0
    assert 0.82 <= decided / 200 <= 0.97


def test_no_plan_for_a_difference_on_the_limit():
    assert pairs_needed([[3.0, 3.0 + 50, 3.0 - 50] * 10], 3.0, 0.95) is None


def test_a_difference_beyond_the_limit_is_planned_from_below():
    assert pairs_needed([[0.0, 20.0] * 10], 3.0, 0.95) > 20
