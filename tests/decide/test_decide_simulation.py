"""A small run of benchmarks/decide_simulation.py: error rates of the rule as the decide stage applies it.

The full run (2,000 experiments a row) is the benchmark; this one has the power to see gross errors only.
"""

import sys

import numpy as np
import pytest
from adrbench.paths import ROOT

sys.path.append(str(ROOT / "benchmarks"))

import decide_experiment as experiment
import decide_simulation as simulation
from decide_experiment import BASELINE, Design
from decide_noise import Noise, fit_noise, recorded


@pytest.mark.parametrize("sd", [0.02, 0.10])
def test_equal_arms_are_rarely_switched(sd):
    found = simulation.outcomes(Design((0.0, 0.0, 0.0)), Noise(sd), 150, seed=1)
    # With a true rate of 5 % more than 17 of 150 are seen once in a thousand such tests.
    assert found["false_switch"]["rate"] <= 17 / 150
    assert found["false_switch_adaptive"]["rate"] <= 17 / 150


def test_a_ten_percent_gain_is_found_at_five_rounds():
    found = simulation.outcomes(Design((0.10,)), Noise(0.02), 60, seed=2)
    assert found["power"]["rate"] > 0.85


def test_the_rule_errs_without_its_guards():
    """The measure itself: taking every positive estimate for a gain would switch in most A/A experiments."""
    design, noise = Design((0.0, 0.0, 0.0)), Noise(0.04)
    rng = np.random.default_rng(3)
    switched = 0
    for _ in range(50):
        values = experiment.measure(design, noise, rng)
        levels = {arm: np.log(list(rounds.values())).mean() for arm, rounds in values.items()}
        switched += max(levels, key=levels.get) != BASELINE
    assert switched > 25


def test_clear_losers_save_server_starts():
    design = Design((-0.2, -0.3), rounds=10)
    found = simulation.outcomes(design, Noise(0.02), 30, seed=4)
    assert found["adaptive_share_of_grid"] < 0.5


def test_p99_of_few_requests_is_covered():
    found = simulation.request_coverage(lambda x: float(np.percentile(x, 99)), 50, 5, Noise(0.04), 300, 5)
    assert found["rate"] >= 0.90


def test_noise_is_fitted_to_recorded_starts():
    rng = np.random.default_rng(6)
    truth = Noise(0.05, tail_df=5.0, drift=0.2)
    series = [(100 * np.exp(truth.draw(rng, 30))).tolist() for _ in range(40)]
    found = fit_noise(series)
    assert found.sd == pytest.approx(0.05, rel=0.2)
    assert found.drift == pytest.approx(0.2, rel=0.3)
    assert 3 <= found.tail_df < 15
    with pytest.raises(ValueError, match="4 recorded starts"):
        fit_noise([[1.0, 2.0, 3.0]])


def test_recorded_starts_are_read_in_the_order_in_which_they_ran(world):
    for number, order in ((1, 3), (2, 1), (3, 2)):
        world.server("auto", number, rate=float(number), noise=1e-12, order=order)
    series = recorded(world.folder / "cpu" / "serve")
    assert [pytest.approx(v) for v in (2.0, 3.0, 1.0)] in series
