"""Gates on synthetic evidence: what is decided, what is left open, and what would decide it.

The numbers are the tests' own; nothing here says how vLLM behaves.
"""

import numpy as np
import pytest
from adrbench.decide.gates import together
from adrbench.job import JobError
from decide_synthetic import even_scores, fill, gate, verdict


def test_the_default_run_leaves_latency_and_accuracy_open(world):
    """One round of 16 requests and 56 pairs decide neither P99 nor 3 points; the status says what would."""
    document = verdict(fill(world, rounds=1, pairs=14, requests=16))
    assert document.status.word == "Proposed"
    ttft = gate(document, "FP8 e4m3 per-tensor", "G01-TTFT", "short")
    assert (ttft.verdict, ttft.high) == ("undecided", None)
    assert ttft.value == pytest.approx(1, abs=0.2)
    assert ttft.rounds_needed >= 2
    accuracy = gate(document, "FP8 e4m3 per-tensor", "G01-Δ")
    assert (accuracy.verdict, accuracy.value) == ("undecided", 0.0)
    assert accuracy.high == pytest.approx(6.4, abs=0.2)  # 56 equal pairs: the rule of three, not zero
    assert accuracy.pairs_needed > 20
    assert str(accuracy.pairs_needed) in document.status.text.en
    assert str(accuracy.pairs_needed) in document.status.text.zh


def test_one_round_of_very_many_requests_closes_p99(world):
    """With 2,000 requests the order statistics bound P99; the spread between starts still enters."""
    for r in (1, 2):
        world.server("auto", r, requests=2000, noise=0.0005)
    world.server("fp8-e4m3", 1, requests=2000, noise=0.0005)
    document = verdict(world)
    ttft = gate(document, "FP8 e4m3 per-tensor", "G01-TTFT", "short")
    assert (ttft.verdict, ttft.high is not None) == ("passed", True)
    assert ttft.low < 1 < ttft.high


def test_without_any_repeat_one_round_decides_nothing(world):
    world.server("auto", 1, requests=2000)
    world.server("fp8-e4m3", 1, requests=2000, ttft_ms=4000.0)
    ttft = gate(verdict(world), "FP8 e4m3 per-tensor", "G01-TTFT", "short")
    assert (ttft.verdict, ttft.low, ttft.high) == ("undecided", None, None)
    assert ttft.value > 5
    assert ttft.rounds_needed == 3


def test_one_pair_of_repeats_is_too_little_to_plan_with(world):
    """The default run: two baseline starts give one degree of freedom, so three rounds come before any plan."""
    few = verdict(fill(world, rounds=1, requests=16))
    assert gate(few, "FP8 e4m3 per-tensor", "G01-TTFT", "short").rounds_needed == 3
    for r in range(3, 8):
        world.server("auto", r, requests=16, noise=0.2)
    planned = gate(verdict(world), "FP8 e4m3 per-tensor", "G01-TTFT", "short")
    assert planned.rounds_needed > 3


@pytest.mark.parametrize(("requests", "closed"), [(504, False), (505, True)])
def test_one_start_closes_p99_at_505_requests(world, requests, closed):
    """Half of 5 % for two arms and two sides: 0.625 % each, so 1 - 0.99^n >= 0.99375."""
    for r in (1, 2):
        world.server("auto", r, requests=requests)
    world.server("fp8-e4m3", 1, requests=requests)
    found = gate(verdict(world), "FP8 e4m3 per-tensor", "G01-TTFT", "short")
    assert (found.high is not None) is closed
    assert found.requests_needed == (None if closed else 505)
    if not closed:
        assert "505 prompts in one start (now 504)" in found.needs.en


def test_a_slow_option_fails_and_the_baseline_stays(world):
    document = verdict(fill(world, rounds=4, ttft_ms=800.0))
    assert gate(document, "FP8 e4m3 per-tensor", "G01-TTFT", "long").verdict == "failed"
    assert (document.status.word, document.status.option) == ("Accepted", "bf16")
    assert "G01-TTFT" in document.status.text.zh


def test_a_latency_at_the_limit_is_undecided(world):
    document = verdict(fill(world, rounds=3, ttft_ms=600.0, noise=0.1))
    assert gate(document, "FP8 e4m3 per-tensor", "G01-TTFT", "short").verdict == "undecided"
    assert document.status.word == "Proposed"


def test_accuracy_loss_fails_the_gate(world):
    fill(world, rounds=4)
    world.accuracy("fp8-e4m3", {task: [max(0.0, s - 10) for s in scores] for task, scores in even_scores(240).items()})
    document = verdict(world)
    assert gate(document, "FP8 e4m3 per-tensor", "G01-Δ").verdict == "failed"
    assert document.accuracy["fp8-e4m3"].more_pairs is None
    assert document.status.option == "bf16"


def test_a_loss_at_its_limit_is_told_as_too_near_and_not_as_a_number_of_pairs(world):
    """A loss of 3.1 against a limit of 3 would take hundreds of thousands of pairs."""
    fill(world, rounds=4)
    level = {task: [60.0] * 30 for task in even_scores(30)}
    world.accuracy("auto", level)
    world.accuracy(
        "fp8-e4m3", {task: [s - 3.1 + (20 if i % 2 else -20) for i, s in enumerate(v)] for task, v in level.items()}
    )
    document = verdict(world)
    found = gate(document, "FP8 e4m3 per-tensor", "G01-Δ")
    assert (found.verdict, found.pairs_needed, document.accuracy["fp8-e4m3"].more_pairs) == ("undecided", None, None)
    assert found.needs.en.startswith(
        "too near its limit to be decided by more samples (more than 5,000 pairs, now 120)"
    )
    assert found.needs.zh.startswith("离限值太近, 无法靠增加样本判定")
    assert any("a larger model" in line.en for line in document.missing)


@pytest.mark.parametrize("n", [2, 3])
def test_two_samples_a_task_are_enough_to_compute_and_too_few_to_decide(world, n):
    document = verdict(fill(world, rounds=2, pairs=n))
    assert gate(document, "FP8 e4m3 per-tensor", "G01-Δ").verdict == "undecided"
    assert document.accuracy["fp8-e4m3"].mean.pairs == 4 * n


def test_an_early_look_is_stricter_and_an_unplanned_one_refused(world):
    fill(world, 3)
    plain, early = verdict(world), verdict(world, looks=[3, 6, 12])
    assert early.look.confidence > early.confidence == 0.95
    identity = ("FP8 e4m3 per-tensor", "G01-TTFT", "short")
    assert gate(early, *identity).high > gate(plain, *identity).high
    assert (plain.look, early.look.rounds) == (None, 3)
    with pytest.raises(JobError, match="not a planned look"):
        verdict(world, looks=[2, 4])


def test_gates_with_the_same_need_are_told_in_one_line(world):
    fill(world, rounds=3, ttft_ms=600.0, tpot_ms=105.0, noise=0.4)
    lines = [m.en for m in verdict(world).missing]
    assert len(lines) == len(set(lines)) <= 3


def hundred_gates(p_missed, p_met=1.0, verdict="failed"):
    """Gates as their own intervals decide them."""
    from adrbench.config.section import Text
    from adrbench.decide.verdict import GateResult

    either = Text(en="", zh="")
    return [
        GateResult(
            id="G", title=either, tier=None, metric="ttft_ms", percentile=99, value=2.0, low=1.6, high=2.5, limit=1.5,
            verdict=verdict if number == 0 else "passed", basis=either, p_missed=p_missed if number == 0 else 1.0,
            p_met=p_met, evidence=[],
        )
        for number in range(100)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("p_missed", "settled", "expected"),
    [(0.0001, 0, "failed"), (0.0003, 0, "undecided"), (0.00024, 0, "failed"), (0.00024, 10, "undecided")],
)
def test_one_failure_of_many_gates_must_survive_holm(p_missed, settled, expected):
    """100 gates at 2.5 % each would fail one of equal arms in nine of ten experiments."""
    found = together({"option": hundred_gates(p_missed)}, 0.05, settled)["option"]
    assert found[0].verdict == expected
    assert found[0].p_missed == pytest.approx(min(1.0, p_missed * (100 + settled)))
    assert (found[0].needs is None) == (expected == "failed")
    if found[0].needs:
        assert "Holm" in found[0].needs.en
        assert "Holm" in found[0].needs.zh
    assert all(gate.verdict == "passed" for gate in found[1:])


def test_gates_of_equal_arms_rarely_fail_together():
    """20 options x 6 gates whose true ratio is the limit itself: some would fail by itself in most experiments."""
    rng = np.random.default_rng(3)
    plain = corrected = 0
    for _ in range(200):
        p = rng.uniform(size=120)
        plain += (p <= 0.025).any()
        gates = {str(k): hundred_gates(1.0)[:6] for k in range(20)}
        gates = {
            name: [
                gate.model_copy(
                    update={
                        "p_missed": float(p[6 * int(name) + i]),
                        "verdict": "failed" if p[6 * int(name) + i] <= 0.025 else "undecided",
                    }
                )
                for i, gate in enumerate(own)
            ]
            for name, own in gates.items()
        }
        corrected += any(g.verdict == "failed" for own in together(gates, 0.05, 0).values() for g in own)
    assert plain > 150
    assert corrected <= 14  # 2.5 % of 200 is 5; more than 14 is seen once in a thousand such tests


def test_p_values_of_gates_agree_with_their_intervals(world):
    fill(world, rounds=4, ttft_ms=640.0, noise=0.06)
    for result in verdict(world).options[1].gates or verdict(world).options[2].gates:
        if result.metric == "completion":
            assert result.p_met is None
        elif result.verdict == "passed":
            assert result.p_met <= 0.025
        elif result.verdict == "undecided" and result.value is not None:
            assert result.p_met > 0.025


def test_random_weights_leave_accuracy_open_whatever_speed_says(world):
    """The best option that there is, with no accuracy to be had: not accepted, and the gate says why."""
    fill(world, rounds=12, pairs=240)
    assert verdict(world).status.word == "Accepted"
    found = verdict(world, random_weights=True)
    assert found.status.word == "Proposed"
    assert "real weights" in found.status.text.en
    open_gate = gate(found, "FP8 e4m3 per-tensor", "G01-Δ")
    assert (open_gate.verdict, open_gate.basis.en) == ("undecided", "not measured: random weights")
    assert open_gate.pairs_needed is None
    assert found.accuracy == {}


def test_random_weights_let_a_slow_option_fail(world):
    fill(world, rounds=12, ttft_ms=1200.0)
    found = verdict(world, random_weights=True)
    assert (found.status.word, found.status.option) == ("Accepted", "bf16")
