"""Trends inside rounds."""

import numpy as np
import pytest
from adrbench.decide.__main__ import gather, judge
from adrbench.decide.spec import parse_spec
from adrbench.decide.steady import Trend, combine, trend


def test_a_known_trend_is_found_and_the_first_requests_are_left_out():
    values = [9e9] * 4 + list(100 * np.exp(np.linspace(0, 0.5, 20)))
    found = trend(values, skip=4)
    assert (found.change, found.error) == (pytest.approx(0.5), pytest.approx(0.0, abs=1e-12))


def test_too_few_requests_say_nothing():
    assert trend([1.0] * 9, skip=4) is None
    assert combine([], 0.95) is None


def test_rounds_are_the_unit_where_there_are_several():
    several = combine([Trend(0.1, 9.0, 10), Trend(0.2, 9.0, 10), Trend(0.3, 9.0, 10)], 0.95)
    assert several[0] == pytest.approx(0.2)
    assert several[2] - several[0] == pytest.approx(4.302652729911275 * 0.1 / 3**0.5)
    assert combine([Trend(0.1, 0.01, 10)], 0.95)[1] == pytest.approx(0.1 - 2.2281388519649385 * 0.01)


def test_steady_noise_is_rarely_called_a_trend():
    rng = np.random.default_rng(9)
    called = 0
    for _ in range(400):
        _, low, high = combine([trend(np.exp(0.2 * rng.standard_normal(50)), 4)], 0.95)
        called += low > 0 or high < 0
    assert 0.02 <= called / 400 <= 0.08


@pytest.mark.parametrize("settling", [False, True])
def test_the_document_names_the_tier_that_was_not_steady(world, settling):
    for r in (1, 2, 3):
        world.server("auto", r, requests=50)
        slowing = list(1000 * np.exp(np.linspace(0, -0.5, 50)) * (1 + 0.01 * r))
        changed = {"per_request": {"e2el_ms": slowing}} if settling else None
        world.server("fp8-e4m3", r, requests=50, tiers=("short",), measured=changed)
    found = {(s.arm, s.tier): s.verdict for s in judge(gather(parse_spec(world.spec()))).steady}
    assert found["fp8-e4m3", "short"] == ("trend" if settling else "none seen")
    assert found["auto", "long"] == "none seen"
