"""Intervals of ratios over rounds: known answers, coverage, and data that leave nothing to estimate."""

import math

import numpy as np
import pytest
from adrbench.decide.blocks import fit, own_differences, scatters_more
from adrbench.decide.intervals import add_tiers, combine_within, compare, pooled_spread


def ratio(arm, base, confidence=0.95, **further):
    """Comparison of two arms' per-round values."""
    others = further.pop("others", {})
    return compare({"arm": arm, "base": base} | others, "arm", "base", confidence, **further)


def numbered(values):
    return dict(enumerate(values, start=1))


def test_two_arms_in_blocks_are_students_paired_t():
    found = ratio({1: 110.0, 2: 121.0, 3: 110.0}, {1: 100.0, 2: 110.0, 3: 105.0})
    logs = np.log([1.1, 1.1, 110 / 105])
    half = 4.302652729911275 * logs.std(ddof=1) / math.sqrt(3)  # t quantile with 2 degrees of freedom
    assert (found.basis, found.df, found.rounds) == ("blocks", 2, 3)
    assert found.log.value == pytest.approx(logs.mean())
    assert (found.log.low, found.log.high) == (pytest.approx(logs.mean() - half), pytest.approx(logs.mean() + half))
    assert found.ratio().value == pytest.approx(math.exp(logs.mean()))


def test_three_arms_share_one_noise():
    """Two-way analysis of variance by hand: 3 arms x 3 blocks leave 4 degrees of freedom."""
    values = {"arm": [1.2, 1.3, 1.1], "base": [1.0, 1.05, 1.02], "third": [0.9, 1.0, 0.8]}
    logs = np.log(np.array(list(values.values())))
    residual = logs - logs.mean(axis=1, keepdims=True) - logs.mean(axis=0) + logs.mean()
    error = math.sqrt((residual**2).sum() / 4 * 2 / 3)
    found = compare({name: numbered(v) for name, v in values.items()}, "arm", "base", 0.95)
    assert (found.basis, found.df) == ("blocks", 4)
    assert found.standard_error == pytest.approx(error)


def test_blocks_remove_what_a_round_does_to_both():
    """A drift that hits both arms alike must not widen the interval."""
    base = {r: 100.0 * 2**r * (1 + 0.001 * r) for r in range(1, 5)}
    arm = {r: 110.0 * 2**r for r in range(1, 5)}
    beside, apart = ratio(arm, base), ratio(arm, base, place=lambda name, r: None if name == "arm" else r)
    assert beside.log.high - beside.log.low < 0.01
    assert (apart.basis, apart.log.high - apart.log.low > 1) == ("unpaired", True)


def test_a_baseline_run_twice_in_each_block_adds_to_the_noise_estimate():
    arm, base = {1: 110.0, 2: 112.0}, {1: 100.0, 2: 101.0, 3: 99.0, 4: 103.0}
    found = ratio(arm, base, place=lambda name, r: r if name == "arm" else (r + 1) // 2)
    assert (found.df, found.rounds) == (3, 2)
    assert found.log.value == pytest.approx(np.log(list(arm.values())).mean() - np.log(list(base.values())).mean())


def test_an_arm_that_scatters_more_is_judged_by_its_own_differences():
    rng = np.random.default_rng(2)
    calm = {name: numbered(np.exp(0.001 * rng.standard_normal(5))) for name in ("base", "b", "c", "d")}
    wild = numbered(np.exp(0.2 * rng.standard_normal(5)))
    points = [(name, r, math.log(v)) for name, rounds in ({"arm": wild} | calm).items() for r, v in rounds.items()]
    assert scatters_more(points, "arm", "base")
    assert not scatters_more(points, "b", "base")
    found = compare({"arm": wild} | calm, "arm", "base", 0.95)
    assert (found.basis, found.df) == ("paired", 4)
    assert found.standard_error > 0.02


def test_arms_without_a_common_block_have_no_difference_in_blocks():
    fitted = fit((("a", 1, 0.0), ("a", 2, 0.1), ("b", 3, 0.2), ("b", 4, 0.3)))
    assert fitted.difference("a", "b") is None
    assert own_differences([("a", 1, 0.0), ("b", 3, 0.2)], "a", "b") == []


def test_one_round_borrows_the_spread_of_the_repeated_arms():
    others = {"third": {1: 50.0, 2: 51.0}, "fourth": {1: 70.0}}
    found = ratio({1: 120.0}, {1: 100.0, 2: 102.0, 3: 98.0}, others=others)
    spread = pooled_spread([[100.0, 102.0, 98.0], [50.0, 51.0], [70.0]])
    assert (found.basis, found.df, spread.df) == ("pooled", 3, 3)
    assert found.standard_error == pytest.approx(spread.sd * math.sqrt(1 + 1 / 3))
    assert found.log.low < math.log(1.2) < found.log.high


def test_no_repeat_means_no_interval():
    found = ratio({1: 120.0}, {1: 100.0})
    assert (found.basis, found.log.low, found.log.high) == ("point", None, None)
    assert found.p_value(1.0) == 1.0


def test_identical_rounds_of_a_noisy_quantity_give_no_interval():
    """A clock that gives the same number twice was copied: zero width would be a false certainty."""
    found = ratio({1: 120.0, 2: 120.0}, {1: 100.0, 2: 100.0})
    assert (found.basis, found.log.low, found.log.high) == ("point", None, None)
    drifting = ratio({1: 120.0, 2: 240.0}, {1: 100.0, 2: 200.0})
    assert (drifting.basis, drifting.log.low) == ("point", None)
    assert pooled_spread([[5.0, 5.0, 5.0]]) is None


def test_identical_rounds_of_a_deterministic_quantity_have_no_width():
    found = ratio({1: 93184.0}, {1: 46592.0, 2: 46592.0}, deterministic=True)
    assert found.basis == "exact"
    assert (found.ratio().low, found.ratio().high) == (pytest.approx(2.0), pytest.approx(2.0))
    assert (found.p_value(1.05), found.p_value(2.1)) == (0.0, 1.0)


def test_a_deterministic_quantity_whose_rounds_differ_is_noisy_after_all():
    found = ratio({1: 93000.0, 2: 94000.0}, {1: 46592.0, 2: 46600.0}, deterministic=True)
    assert found.basis == "blocks"
    assert found.log.low < found.log.high


def test_p_value_agrees_with_the_bound():
    """The lower bound is the ratio at which the one-sided p value is half the error."""
    found = ratio({1: 110.0, 2: 125.0, 3: 113.0}, {1: 100.0, 2: 110.0, 3: 105.0})
    assert found.p_value(math.exp(found.log.low)) == pytest.approx(0.025)


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf")])
def test_values_that_have_no_logarithm_are_refused(bad):
    with pytest.raises(ValueError, match="positive"):
        ratio({1: bad, 2: 1.0}, {1: 1.0, 2: 1.0})
    with pytest.raises(ValueError, match="positive"):
        pooled_spread([[bad, 1.0]])


def test_an_arm_without_rounds_is_refused():
    with pytest.raises(ValueError, match="at least one round"):
        ratio({}, {1: 1.0})


def test_tiers_are_averaged_geometrically_by_weight_where_complete():
    values = add_tiers([(3.0, {1: 8.0, 2: 1.0}), (1.0, {1: 0.5})])
    assert values == {1: pytest.approx(math.exp((3 * math.log(8) + math.log(0.5)) / 4))}


def test_worst_corner_and_open_sides():
    assert combine_within((90.0, 110.0), (95.0, 105.0), 0.0) == (pytest.approx(90 / 105), pytest.approx(110 / 95))
    assert combine_within((90.0, None), (95.0, 105.0), 0.0) == (pytest.approx(90 / 105), None)
    assert combine_within((90.0, 110.0), (95.0, None), 0.0) == (None, pytest.approx(110 / 95))
    assert combine_within((90.0, 110.0), (95.0, 105.0), math.log(2))[1] == pytest.approx(2 * 110 / 95)


@pytest.mark.parametrize(("rounds", "others"), [(2, 0), (5, 0), (3, 2)])
def test_coverage_over_rounds(rounds, others):
    """95 % with normal log noise between starts and a drift common to all arms."""
    rng, hits, trials = np.random.default_rng(7), 0, 800
    drift = np.linspace(0, 0.3, rounds)
    for _ in range(trials):
        noise = np.exp(0.05 * rng.standard_normal((2 + others, rounds)) + drift)
        further = {f"x{i}": numbered(noise[2 + i]) for i in range(others)}
        found = ratio(numbered(1.3 * noise[0]), numbered(noise[1]), others=further)
        hits += found.log.low <= math.log(1.3) <= found.log.high
    assert 0.925 <= hits / trials <= 0.975


def test_coverage_with_a_borrowed_spread():
    rng, hits = np.random.default_rng(8), 0
    for _ in range(1500):
        arm, base = np.exp(0.05 * rng.standard_normal(1)), np.exp(0.05 * rng.standard_normal(3))
        found = ratio(numbered(arm), numbered(base))
        hits += found.log.low <= 0 <= found.log.high
    assert 0.93 <= hits / 1500 <= 0.97


def test_extreme_spread_is_not_an_overflow():
    found = ratio({1: 1e-300}, {1: 1.0, 2: 1e300})
    assert math.isfinite(found.log.high)


def test_late_runs_of_both_arms_are_no_block_of_their_own():
    """Two arms whose runs were both out of turn were not measured beside each other for that."""
    found = ratio({1: 1.1, 2: 1.2}, {1: 1.0, 2: 1.05}, place=lambda _name, r: 1 if r == 1 else None)
    assert found.basis == "unpaired"
