"""Intervals, utilisation and the verdict of G06: never a verdict from inside the noise."""

import random
import statistics

import pytest
from adrbench.profile.spread import median_interval
from adrbench.profile.verdict import G06_THRESHOLD, ceiling_at, g06, memory_ceiling, rate, utilisation


def used(low, median, high):
    return {"low": low, "median": median, "high": high}


@pytest.mark.parametrize(
    ("interval", "verdict"),
    [
        ((0.30, 0.40, 0.50), "failed"),
        ((0.50, 0.59, 0.599), "failed"),
        ((0.50, 0.59, 0.600), "undecided"),
        ((0.59, 0.70, 0.80), "undecided"),
        ((0.60, 0.70, 0.80), "passed"),
        ((0.90, 1.10, 1.30), "passed"),
    ],
)
def test_g06_needs_the_whole_interval(interval, verdict):
    result = g06(used(*interval))
    assert result["verdict"] == verdict
    assert result["threshold"] == G06_THRESHOLD == 0.60


def test_g06_text_states_what_to_revisit_only_when_it_failed():
    assert "not quantisation" in g06(used(0.1, 0.2, 0.3))["text"]
    assert "not quantisation" not in g06(used(0.7, 0.8, 0.9))["text"]
    assert "20% [10%, 30%]" in g06(used(0.1, 0.2, 0.3))["text"]


def test_rate_turns_the_interval_round():
    assert rate(100, used(1, 2, 4)) == {"median": 50, "low": 25, "high": 100}


def test_utilisation_takes_both_intervals_at_their_worst():
    result = utilisation(used(40, 50, 60), used(80, 100, 120))
    assert result == pytest.approx({"median": 0.5, "low": 1 / 3, "high": 0.75})


def test_ceiling_at_takes_the_nearest_size_in_ratio():
    rows = [{"bytes": b, "read": {"median": b, "low": b, "high": b, "samples": 7}} for b in (1000, 4000, 16000)]
    assert [ceiling_at(rows, b)["bytes"] for b in (1, 1900, 2100, 7900, 8100, 10**9)] == [
        1000,
        1000,
        4000,
        4000,
        16000,
        16000,
    ]


def test_the_memory_ceiling_is_the_quickest_kind():
    rates = {"read_bytes_per_s": used(4.34, 4.35, 4.36), "write_bytes_per_s": used(4.62, 4.63, 4.64)}
    assert memory_ceiling(rates) == {"kind": "write", **used(4.62, 4.63, 4.64)}
    assert memory_ceiling(rates | {"write_bytes_per_s": used(1, 2, 3)})["kind"] == "read"
    assert memory_ceiling({"read_bytes_per_s": used(1, 2, 3)})["kind"] == "read"
    row = {"bytes": 1000, "read": used(1, 2, 3), "copy": used(4, 5, 6)}
    assert ceiling_at([row], 1000) == {"bytes": 1000, "kind": "copy", **used(4, 5, 6)}


@pytest.mark.parametrize(
    ("count", "low", "high"), [(1, 0, 0), (5, 0, 4), (6, 0, 5), (9, 1, 7), (20, 5, 14), (100, 39, 60)]
)
def test_interval_ranks_of_the_median(count, low, high):
    """Ranks for 95 % as tabulated for the binomial: for 20 values the 6th and the 15th."""
    result = median_interval(list(range(count)))
    assert (result["low"], result["high"]) == (low, high)
    assert result["samples"] == count
    assert (result["coverage"] >= 0.95) == (count >= 6)


def test_interval_covers_as_it_says():
    choose, hits, trials = random.Random(3), 0, 2000
    for _ in range(trials):
        interval = median_interval([choose.expovariate(1.0) for _ in range(12)])
        hits += interval["low"] <= 0.6931 <= interval["high"]
    assert hits / trials == pytest.approx(interval["coverage"], abs=0.02)


def test_median_of_nothing_is_refused():
    with pytest.raises(ValueError, match="no samples"):
        median_interval([])


def test_median_is_the_median():
    values = [5.0, 1.0, 9.0, 2.0]
    assert median_interval(values)["median"] == statistics.median(values)
