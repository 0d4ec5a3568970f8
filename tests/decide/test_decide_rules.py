"""Gates, objective and status on synthetic evidence: what is decided, what is left open, and why.

The numbers are the tests' own; nothing here says how vLLM behaves.
"""

import math

import numpy as np
import pytest
from adrbench.decide import objective
from adrbench.decide.__main__ import gather, judge
from adrbench.decide.gates import together
from adrbench.decide.intervals import Comparison, Interval
from adrbench.decide.spec import parse_spec
from adrbench.job import JobError
from decide_synthetic import TASKS, decision

FP8 = {"kv_cache_dtype": "fp8_e4m3"}


def verdict(world, **changes):
    return judge(gather(parse_spec(world.spec(**changes))))


def option(document, name):
    return next(o for o in document.options if o.name == name)


def gate(document, name, identity, tier=None):
    return next(g for g in option(document, name).gates if g.id == identity and g.tier == tier)


def even_scores(n, seed=1):
    rng = np.random.default_rng(seed)
    return {task: [float(s) for s in rng.choice([0, 50, 100], size=n)] for task in TASKS}


def fill(world, rounds, pairs=240, arms=("auto", "fp8-e4m3"), requests=50, **fp8):
    """Baseline (with one more round) and FP8 with twice the pool, equal accuracy."""
    for r in range(1, rounds + 1):
        world.server(arms[0], r, requests=requests)
        for arm in arms[1:]:
            resolved = FP8 if arm.startswith("fp8") else {"attention_backend": arm.upper()}
            world.server(arm, r, **{"pool": 93_184, "resolved": resolved, "requests": requests} | fp8)
    world.server(arms[0], rounds + 1, requests=requests)
    for arm in arms:
        world.accuracy(arm, even_scores(pairs))
    return world


def test_enough_evidence_accepts_the_better_option(world):
    document = verdict(fill(world, rounds=5))
    assert (document.status.word, document.status.option) == ("Accepted", "FP8 e4m3 per-tensor")
    fp8 = option(document, "FP8 e4m3 per-tensor")
    assert fp8.eligible
    assert all(g.verdict == "passed" for g in fp8.gates)
    assert (fp8.objective.gain, fp8.objective.gain_low, fp8.objective.noise) == (1.0, 1.0, 0.0)
    assert document.missing == []


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


def test_no_gain_keeps_the_baseline(world):
    document = verdict(fill(world, rounds=4, pool=46_592))
    assert option(document, "FP8 e4m3 per-tensor").objective.verdict == "worse"
    assert (document.status.word, document.status.option) == ("Accepted", "bf16")


def test_a_violation_keeps_the_best_option_from_winning(world):
    fill(world, rounds=4)
    broken = [{"where": "--x", "rule": "C01", "reason_en": "no", "reason_zh": "否"}]
    document = verdict(world, violations={"fp8-e4m3": broken})
    assert not option(document, "FP8 e4m3 per-tensor").eligible
    assert (document.status.option, "C01" in document.status.text.en) == ("bf16", True)


def test_a_baseline_outside_the_policy_is_not_accepted(world):
    fill(world, rounds=4, pool=46_592)
    broken = [{"where": "--x", "rule": "C06", "reason_en": "no", "reason_zh": "否"}]
    document = verdict(world, violations={"auto": broken})
    assert document.status.word == "Proposed"
    assert "C06" in document.status.text.zh


def test_equal_options_go_by_the_order_of_the_file(world):
    document = verdict(fill(world, rounds=4, arms=("auto", "fp8-e4m3", "fp8-e5m2")))
    assert document.status.option == "FP8 e4m3 per-tensor"


def test_an_open_rival_that_could_be_much_better_blocks_the_winner(world):
    fill(world, rounds=4)
    for r in range(1, 5):
        world.server("fp8-e5m2", r, pool=140_000, requests=50, order=3 * r)
    document = verdict(world)  # no accuracy of the rival: it is open, and its pool is larger
    assert document.status.word == "Proposed"
    assert any("fp8-e5m2" in m.en and "accuracy" in m.en for m in document.missing)


def test_an_arm_not_measured_yet_is_missing(world):
    fill(world, rounds=4)
    arms = [*world.spec()["arms"], {"name": "fp8-e5m2"}]
    document = verdict(world, arms=arms)
    assert option(document, "FP8 e5m2 per-tensor").state == "absent"
    assert document.status.word == "Proposed"
    assert "fp8-e5m2" in document.missing[0].en


def test_a_blocked_option_does_not_hold_up_the_decision(world):
    reason = {"en": "this vLLM has no int8", "zh": "该 vLLM 不支持 int8"}
    document = verdict(fill(world, rounds=5), blocked={"INT8 per (token, head)": reason})
    blocked = option(document, "INT8 per (token, head)")
    assert (blocked.state, blocked.reason.zh) == ("blocked", reason["zh"])
    assert document.status.word == "Accepted"


def test_adr0010_is_blocked_where_no_backend_can_be_chosen(world):
    world.server("auto", 1)
    names = [o["name"] for o in decision("adr0010")["options"]]
    reason = {"en": "CPU has one backend", "zh": "CPU 上只有一个 backend"}
    document = verdict(world, decision=decision("adr0010"), blocked=dict.fromkeys(names, reason))
    assert document.status.word == "Blocked"
    assert document.status.text.en.count(reason["en"]) == 1
    assert reason["zh"] in document.status.text.zh


def test_a_backend_whose_flag_was_ignored_is_blocked_by_that_evidence(world):
    world.server("auto", 1)
    world.integration("L1", {"server": {"args": ["--attention-backend", "TRITON_ATTN"]}}, {"ignored": True})
    document = verdict(world, decision=decision("adr0010"))
    assert document.status.word == "Blocked"
    assert "asked for TRITON_ATTN, ignored the flag and resolved CPU_ATTN" in document.status.text.en
    assert [o.state for o in document.options] == ["blocked", *["absent"] * 5]


def test_a_refusal_is_told_in_the_servers_words(world):
    fill(world, rounds=2, arms=("triton-attn", "rocm-attn"))
    world.integration("refusal-rocm-aiter-fa", {}, {"refused": True, "text": "compute capability not supported"})
    refusing = {"name": "rocm-aiter-fa", "expect_failure": "capability"}
    document = verdict(world, decision=decision("adr0010"), arms=[*world.spec()["arms"], refusing])
    assert option(document, "ROCM_AITER_FA").reason.en.endswith("refused to start: compute capability not supported")


def test_an_arm_that_must_refuse_to_start_blocks_its_option(world):
    fill(world, rounds=4, arms=("triton-attn", "rocm-attn"))
    refusing = {"name": "rocm-aiter-fa", "expect_failure": "compute capability not supported"}
    document = verdict(world, decision=decision("adr0010"), arms=[*world.spec()["arms"], refusing])
    blocked = option(document, "ROCM_AITER_FA")
    assert (blocked.state, "compute capability" in blocked.reason.en) == ("blocked", True)


def throughput(**objective):
    return decision("adr0010", objective={"metric": "output_tokens_per_s", "minimum_gain": 0.05} | objective)


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


def test_a_stretch_option_wins_only_when_the_others_are_out(world):
    options = decision()["options"]
    for o in options:
        o["stretch"] = o["name"] == "FP8 e4m3 per-tensor"
    fill(world, rounds=4, arms=("auto", "fp8-e4m3", "fp8-e5m2"))
    assert verdict(world, decision=decision(options=options)).status.option == "FP8 e5m2 per-tensor"
    broken = [{"where": "--x", "rule": "C01", "reason_en": "no", "reason_zh": "否"}]
    document = verdict(world, decision=decision(options=options), violations={"fp8-e5m2": broken})
    assert document.status.option == "FP8 e4m3 per-tensor"


def test_an_early_look_is_stricter_and_an_unplanned_one_refused(world):
    fill(world, 3)
    plain, early = verdict(world), verdict(world, looks=[3, 6, 12])
    assert early.look.confidence > early.confidence == 0.95
    identity = ("FP8 e4m3 per-tensor", "G01-TTFT", "short")
    assert gate(early, *identity).high > gate(plain, *identity).high
    assert (plain.look, early.look.rounds) == (None, 3)
    with pytest.raises(JobError, match="not a planned look"):
        verdict(world, looks=[2, 4])


def test_the_same_evidence_gives_the_same_document(world):
    fill(world, rounds=2)
    assert verdict(world).model_dump_json() == verdict(world).model_dump_json()


def test_noise_table_shows_the_two_rounds_that_differ_most(world):
    for r, rate in ((1, 50.0), (2, 60.0), (3, 55.0)):
        world.server("auto", r, rate=rate, noise=1e-9)
    noise = verdict(world).noise["short"]["output_tokens_per_s"]
    assert (noise.a, noise.b, noise.rounds) == (pytest.approx(50), pytest.approx(60), 3)
    assert noise.ratio == pytest.approx(1.2)
    assert noise.floor > 0.2


def test_latency_table_leaves_p99_open(world):
    fill(world, rounds=1, requests=16)
    table = verdict(world).latency["auto"]["short"]
    assert table["ttft_ms"].p99_high is None
    assert table["ttft_ms"].p99_low < table["ttft_ms"].p99
    assert (table["itl_ms"].requests, table["itl_ms"].p99_low) == (None, None)


def test_confounded_settings_are_named(world):
    fill(world, rounds=1, resolved=FP8 | {"block_size": 64})
    found = verdict(world).confounded
    assert {(c.arm, c.factor, c.value) for c in found} == {
        ("fp8-e4m3", "kv_cache_dtype", "fp8_e4m3"),
        ("fp8-e4m3", "block_size", "64"),
    }
    assert {c.factor for c in found} != {"kv_cache_dtype"}


@pytest.mark.parametrize("n", [2, 3])
def test_two_samples_a_task_are_enough_to_compute_and_too_few_to_decide(world, n):
    document = verdict(fill(world, rounds=2, pairs=n))
    assert gate(document, "FP8 e4m3 per-tensor", "G01-Δ").verdict == "undecided"
    assert document.accuracy["fp8-e4m3"].mean.pairs == 4 * n


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"blocked": {"nobody": {"en": "a", "zh": "b"}}}, "nobody"), ({"arms": [{"name": "auto"}]}, "baseline"),
     ({"decision": {}}, "decision"), ({"confidnce": 1}, "confidnce")],
)  # fmt: skip
def test_a_wrong_specification_names_the_key(world, changes, message):
    world.server("auto", 1)
    with pytest.raises(JobError, match=message):
        parse_spec(world.spec(**changes))


def test_one_pair_of_repeats_is_too_little_to_plan_with(world):
    """The default run: two baseline starts give one degree of freedom, so three rounds come before any plan."""
    few = verdict(fill(world, rounds=1, requests=16))
    assert gate(few, "FP8 e4m3 per-tensor", "G01-TTFT", "short").rounds_needed == 3
    for r in range(3, 8):
        world.server("auto", r, requests=16, noise=0.2)
    planned = gate(verdict(world), "FP8 e4m3 per-tensor", "G01-TTFT", "short")
    assert planned.rounds_needed > 3


def test_a_process_number_is_no_difference(world):
    plugin = [{"chosen": "CPU_ATTN", "pid": 1, "process": "VllmWorker-0"}]
    other = [{"chosen": "CPU_ATTN", "pid": 2, "process": "VllmWorker-1"}]
    for r in (1, 2):
        world.server("auto", r, resolved={"plugin": plugin})
        world.server("fp8-e4m3", r, resolved=FP8 | {"plugin": other})
    assert verdict(world).confounded == []


def test_gates_with_the_same_need_are_told_in_one_line(world):
    fill(world, rounds=3, ttft_ms=600.0, tpot_ms=105.0, noise=0.4)
    lines = [m.en for m in verdict(world).missing]
    assert len(lines) == len(set(lines)) <= 3


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


def test_an_option_wins_only_beyond_the_error_of_all_options(world):
    """Each of its gates passes by itself; the p value of the option counts how many were tried."""
    document = verdict(fill(world, rounds=5))
    found = option(document, "FP8 e4m3 per-tensor")
    greatest = max(2 * gate.p_met for gate in found.gates if gate.p_met is not None)
    assert found.p_value == pytest.approx(min(1.0, greatest))
    assert found.eligible


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
