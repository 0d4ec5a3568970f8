"""The status on synthetic evidence: which option is accepted, what holds it up, what is blocked and why.

The numbers are the tests' own; nothing here says how vLLM behaves.
"""

import pytest
from adrbench.decide.words import METRICS
from adrbench.report.markdown import catalogue
from decide_synthetic import decision, fill, option, verdict


def test_enough_evidence_accepts_the_better_option(world):
    document = verdict(fill(world, rounds=5))
    assert (document.status.word, document.status.option) == ("Accepted", "FP8 e4m3 per-tensor")
    fp8 = option(document, "FP8 e4m3 per-tensor")
    assert fp8.eligible
    assert all(g.verdict == "passed" for g in fp8.gates)
    assert (fp8.objective.gain, fp8.objective.gain_low, fp8.objective.noise) == (1.0, 1.0, 0.0)
    assert document.missing == []


def test_an_option_wins_only_beyond_the_error_of_all_options(world):
    """Each of its gates passes by itself; the p value of the option counts how many were tried."""
    document = verdict(fill(world, rounds=5))
    found = option(document, "FP8 e4m3 per-tensor")
    greatest = max(2 * gate.p_met for gate in found.gates if gate.p_met is not None)
    assert found.p_value == pytest.approx(min(1.0, greatest))
    assert found.eligible


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


def test_a_stretch_option_wins_only_when_the_others_are_out(world):
    options = decision()["options"]
    for o in options:
        o["stretch"] = o["name"] == "FP8 e4m3 per-tensor"
    fill(world, rounds=4, arms=("auto", "fp8-e4m3", "fp8-e5m2"))
    assert verdict(world, decision=decision(options=options)).status.option == "FP8 e5m2 per-tensor"
    broken = [{"where": "--x", "rule": "C01", "reason_en": "no", "reason_zh": "否"}]
    document = verdict(world, decision=decision(options=options), violations={"fp8-e5m2": broken})
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


RAW = ("kv_pool_tokens", "output_tokens_per_s", "ttft_ms", "tpot_ms", "accuracy_delta", "undecided; missing")


def test_what_is_missing_is_told_in_words_and_by_titles(world):
    """No key of a metric, no bare code of a gate, the option as its title names it; in both languages."""
    fill(world, rounds=1, pairs=14)
    options = decision()["options"]
    titles = {"en": "FP8 with four bits of exponent", "zh": "四位指数的 FP8"}
    next(o for o in options if o["name"] == "FP8 e4m3 per-tensor")["title"] = titles
    document = verdict(world, decision=decision(options=options))
    assert document.status.word == "Proposed"
    for told, title in ((document.status.text.en, titles["en"]), (document.status.text.zh, titles["zh"])):
        assert title in told
        assert [word for word in RAW if word in told] == []
        assert "P99 TTFT" in told
        assert "(G01-TTFT)" in told


def test_a_need_that_options_share_is_told_once(world):
    fill(world, rounds=12, arms=("auto", "fp8-e4m3", "fp8-e5m2"))
    document = verdict(world, random_weights=True)
    needs = [line.en for line in document.missing if "real weights" in line.en]
    assert len(needs) == 1
    assert needs[0].startswith("FP8 e4m3 per-tensor, FP8 e5m2 per-tensor: for accuracy loss (G01-Δ), an accuracy run")


def test_why_an_option_is_out_names_the_metric_in_words(world):
    fill(world, rounds=6, ttft_ms=1200.0)
    told = verdict(world).status.text
    assert "failed P99 TTFT in short, long (G01-TTFT)" in told.en
    assert "未通过 short, long 档 P99 TTFT (G01-TTFT)" in told.zh


def test_the_report_and_the_verdict_call_a_metric_the_same():
    texts = catalogue()
    named = {key.removeprefix("metric."): text for key, text in texts.items() if key.startswith("metric.")}
    assert {name: dict(zip(("en", "zh"), METRICS[name], strict=True)) for name in named} == named
