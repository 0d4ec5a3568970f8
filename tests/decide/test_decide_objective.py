"""The objective on synthetic evidence: which gain is one, and which is inside the noise.

The numbers are the tests' own; nothing here says how vLLM behaves.
"""

import math

import pytest
from adrbench.decide import objective
from adrbench.decide.__main__ import gather, judge
from adrbench.decide.intervals import Comparison, Interval
from adrbench.decide.spec import parse_spec
from decide_synthetic import decision, fill, gate, option, throughput, verdict


def test_no_gain_keeps_the_baseline(world):
    document = verdict(fill(world, rounds=4, pool=46_592))
    assert option(document, "FP8 e4m3 per-tensor").objective.verdict == "worse"
    assert (document.status.word, document.status.option) == ("Accepted", "bf16")


def test_throughput_within_the_noise_is_no_win(world):
    document = verdict(fill(world, 3, arms=("triton-attn", "rocm-attn"), rate=52.0, noise=0.08), decision=throughput())
    assert option(document, "ROCM_ATTN").objective.verdict == "undecided"
    assert document.status.word == "Proposed"


def test_throughput_far_beyond_the_noise_wins(world):
    document = verdict(fill(world, 5, arms=("triton-attn", "rocm-attn"), rate=75.0), decision=throughput())
    goal = option(document, "ROCM_ATTN").objective
    assert (goal.verdict, document.status.option) == ("better", "ROCM_ATTN")
    assert goal.gain == pytest.approx(0.5, abs=0.05)
    assert goal.gain > goal.noise > 0


def test_a_baseline_without_a_repeat_has_no_noise_floor_and_no_switch(world):
    for r in (1, 2, 3):
        world.server("rocm-attn", r, rate=75.0)
    world.server("triton-attn", 1)
    arms = [{"name": "triton-attn", "baseline": True}, {"name": "rocm-attn"}]
    goal = option(verdict(world, decision=throughput(), arms=arms), "ROCM_ATTN").objective
    assert (goal.noise, goal.verdict) == (None, "undecided")


def test_tier_weights_decide_what_the_gain_is(world):
    for r in (1, 2, 3):
        world.server("triton-attn", r, noise=1e-4)
        world.server("rocm-attn", r, rate=100.0, tiers=("short",), noise=1e-4)
        world.server("rocm-attn", r, rate=50.0, tiers=("long",), noise=1e-4)
    for weight, gain in ((1.0, 2**0.5 - 1), (3.0, 2**0.75 - 1)):
        tiers = [{"name": "short", "weight": weight}, {"name": "long", "weight": 1.0}]
        goal = option(verdict(world, decision=throughput(), tiers=tiers), "ROCM_ATTN").objective
        assert goal.gain == pytest.approx(gain, rel=0.01)


def test_a_missing_tier_leaves_its_gates_and_the_objective_open(world):
    for r in (1, 2):
        world.server("triton-attn", r)
        world.server("rocm-attn", r, tiers=("short",))
    document = verdict(world, decision=throughput())
    assert gate(document, "ROCM_ATTN", "G01-TTFT", "long").value is None
    assert option(document, "ROCM_ATTN").objective.gain is None
    assert any("long" in m.en for m in document.missing)


def test_goodput_that_was_not_asked_for_is_missing(world):
    document = verdict(fill(world, 2), decision=decision(objective={"metric": "goodput", "minimum_gain": 0.05}))
    goal = option(document, "FP8 e4m3 per-tensor").objective
    assert (goal.gain, goal.verdict) == (None, "undecided")
    assert "goodput" in goal.needs.en


def test_the_estimate_rule_asks_less_of_the_lower_bound(world):
    """A gain of 8 % +- 4 %: above 5 % as measured and above 0 beyond doubt, but not above 5 % beyond doubt."""
    fill(world, 12, arms=("triton-attn", "rocm-attn"), rate=54.0, noise=0.05)
    by_bound, by_estimate = (
        option(verdict(world, decision=throughput(), gain_rule=rule), "ROCM_ATTN").objective
        for rule in ("lower_bound", "estimate")
    )
    assert 0 < by_bound.gain_low < 0.05 < by_bound.gain
    assert (by_bound.verdict, by_estimate.verdict) == ("undecided", "better")


def test_holm_makes_more_options_harder(world):
    """The best of four options is judged by four times its own p value."""
    fill(world, 3, arms=("triton-attn", "rocm-attn"), rate=60.0, noise=0.02)
    for arm in ("rocm-aiter-fa", "rocm-aiter-unified", "flash-attn"):
        for r in (1, 2, 3):
            world.server(arm, r, order=2 * r, requests=50)
    context = gather(parse_spec(world.spec(decision=throughput())))
    alone = objective.between(context, "rocm-attn", "triton-attn").found.p_value(1.05)
    assert option(judge(context), "ROCM_ATTN").objective.p_value == pytest.approx(4 * alone)


@pytest.mark.parametrize(
    ("low", "noise", "p_value", "rule", "expected"),
    [
        (0.06, 0.02, 0.01, "lower_bound", "better"),
        (0.06, 0.02, 0.06, "lower_bound", "undecided"),  # Holm over the family
        (0.06, None, 0.01, "lower_bound", "undecided"),  # no A/A
        (0.06, 0.12, 0.01, "lower_bound", "undecided"),  # inside the noise
        (0.04, 0.02, 0.01, "lower_bound", "undecided"),
        (0.04, 0.02, 0.01, "estimate", "better"),
    ],
)
def test_a_better_option_needs_gain_noise_and_family_at_once(low, noise, p_value, rule, expected):
    log = Interval(math.log(1.1), math.log1p(low), math.log(1.2))
    gain = Comparison(log, "blocks", 0.02, 8, 5)
    assert objective.gain_verdict(gain, noise, p_value, 0.05, rule, 0.95) == expected


@pytest.mark.parametrize(("high", "expected"), [(0.05, "worse"), (0.051, "undecided")])
def test_an_option_is_out_when_its_whole_interval_is_below_the_minimum_gain(high, expected):
    gain = Comparison(Interval(0.0, -0.1, math.log1p(high)), "blocks", 0.02, 8, 5)
    assert objective.gain_verdict(gain, 0.01, 1.0, 0.05, "estimate", 0.95) == expected
