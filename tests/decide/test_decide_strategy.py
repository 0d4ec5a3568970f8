"""The choice among KV schemes: which rule excludes, what a refuted premise lifts, and who wins in which order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from adrbench import evidence
from adrbench.config.decision import Strategy, model_of
from adrbench.config.strategy import Premise, TeamRule
from adrbench.decide.premises import Found, verdict
from adrbench.decide.strategy import judge
from adrbench.decide.strategy_spec import StrategySpec, parse_strategy
from adrbench.evidence import Evidence
from adrbench.job import JobError
from adrbench.paths import ROOT

DECISION = yaml.safe_load((ROOT / "config/decisions/adr0009.yaml").read_text(encoding="utf-8"))
ARMS = {
    "auto": ("bf16", 1.0), "int8-head": ("int8_per_head", 0.5), "fp8-e4m3": ("fp8_per_tensor", 0.5),
    "sim-int8-token-head": ("int8_per_token_head", 0.53), "kivi4": ("kivi4", 0.32), "kivi2": ("kivi2", 0.19),
    "fp8-fnuz-head": ("fp8_e4m3fnuz_per_head", 0.5), "kvquant4": ("kvquant4", 0.28),
}  # fmt: skip
TASKS = ("multi_hop_qa", "summary", "retrieval_multi_point", "aggregation_keyword_aggregation")


def _write(path: Path, stage: str, **parts: Any) -> str:
    evidence.write(path, Evidence(stage=stage, platform="cpu", started_at="a", finished_at="b", **parts))  # type: ignore[arg-type]
    return str(path)


def _eval(path: Path, arm: str, loss: float, n: int) -> str:
    """Scores of 50 less ``loss``, the same for every sample."""
    tasks = {t: {"scores": [50.0 - loss] * n, "task": t, "length_tokens": 512} for t in TASKS}
    return _write(path, "eval", arm=arm, asked={"arm": {"name": arm}, "server": {}}, measured={"tasks": tasks})


@pytest.fixture
def spec(tmp_path: Path) -> Any:
    """``spec({"int8-head": 1.0}, arch="gfx942")``: losses in points by arm; arms that are not named are not there."""

    def make(losses: dict[str, float], arch: str = "x86_64", n: int = 400, outliers: float = 0.4) -> StrategySpec:
        arms = ["auto", *losses]
        layouts = {
            arm: {
                "scheme": ARMS[arm][0],
                "layout": {
                    "request_ratio": {"32768": ARMS[arm][1]},
                    "scale_bytes_per_token": 720.0 if "token" in arm else 0.0,
                    "wide_share": {"4096": 0.0625},
                },
                "pool": {"kind": "computed", "tokens": round(1000 / ARMS[arm][1]), "ratio": ARMS[arm][1]},
            }
            for arm in arms
        }
        paths = {arm: _eval(tmp_path / f"{arm}.json", arm, losses.get(arm, 0.0), n) for arm in arms}
        return parse_strategy(
            {
                "platform": "cpu", "decision": DECISION, "policy": "cpu", "baseline": "auto", "arch": arch,
                "arms": [{"name": arm, "baseline": arm == "auto", "scheme": ARMS[arm][0]} for arm in arms],
                "evidence": {
                    "eval": paths,
                    "memory": _write(tmp_path / "memory.json", "memory", measured={"arms": layouts}),
                    "calibrate": _write(
                        tmp_path / "calibrate.json", "calibrate", measured={"outliers": {"head_share": outliers}}
                    ),
                },
            }
        )  # fmt: skip

    return make


def scheme(found: Any, option: str) -> Any:
    return next(s for s in found.strategy.schemes if s.option == option)


def rule(found: Any, number: str) -> Any:
    return next(r for r in found.strategy.rules if r.id == number)


def test_the_required_scheme_wins_when_it_passes(spec: Any) -> None:
    found = judge(spec({"int8-head": 0.5, "kivi4": 0.0}))
    assert (found.status.word, found.status.option) == ("Accepted", "INT8 per-head")
    assert "L3" in found.status.text.en
    assert scheme(found, "KIVI-4").role == "stretch"


def test_stretch_wins_only_where_the_required_ones_fail(spec: Any) -> None:
    found = judge(spec({"int8-head": 9.0, "kivi4": 0.5, "kivi2": 1.0}))
    assert found.status.option == "KIVI-2"  # both pass: the one of less memory
    assert [scheme(found, name).rank for name in ("KIVI-4", "KIVI-2")] == [1, 2]


def test_an_undecided_required_scheme_leaves_it_open(spec: Any) -> None:
    found = judge(spec({"int8-head": 2.0, "kivi4": 0.0}, n=10))
    assert found.status.word == "Proposed"
    assert "INT8 per-head" in found.status.text.en
    assert any("more sample pairs" in item.en for item in found.missing)


@pytest.mark.parametrize("tried", [True, False])
def test_a_scheme_that_this_host_refuses_holds_nothing_up(spec: Any, tmp_path: Path, tried: bool) -> None:
    """No accuracy run of its arm can be made: to wait for one would be to wait for ever."""
    asked = spec({"int8-head": 9.0, "kivi4": 9.0, "fp8-e4m3": 0.0})
    said = "FP8 KV cache on CPU requires x86 with AVX-512"
    arms = [arm.model_copy(update={"expect_failure": said}) if arm.name == "fp8-e4m3" else arm for arm in asked.arms]
    written = _write(tmp_path / "refusal.json", "integrate", measured={"refused": True, "text": said})
    paths = asked.evidence.model_copy(
        update={
            "eval": {name: path for name, path in asked.evidence.eval.items() if name != "fp8-e4m3"},
            "integrate": {"refusal-fp8-e4m3": written if tried else str(tmp_path / "absent.json")},
        }
    )
    found = judge(asked.model_copy(update={"arms": arms, "evidence": paths}))
    option = next(o for o in found.options if o.arm == "fp8-e4m3")
    assert option.state == "blocked"
    assert option.reason.en.startswith("the server refused to start" if tried else "the server must refuse")
    assert said in option.reason.en
    assert scheme(found, option.name).reason == option.reason
    assert (found.status.word, found.status.option) == ("Accepted", "auto")
    assert not [item.en for item in found.missing if option.title.en in item.en]


def test_a_scheme_that_saves_too_little_memory_holds_nothing_up(spec: Any) -> None:
    """Its Δ is undecided at this number of samples, and no verdict on it would let it win."""
    asked = spec({"int8-head": 2.95, "kivi4": 0.5})
    assert judge(asked).status.word == "Proposed"
    strict = asked.decision.model_copy(update={"memory_at_most": 0.4})
    found = judge(asked.model_copy(update={"decision": strict}))
    assert scheme(found, "INT8 per-head").gate == "undecided"
    assert (found.status.word, found.status.option) == ("Accepted", "KIVI-4")
    assert not any("INT8 per-head" in item.en for item in found.missing)


def test_nothing_passing_keeps_16_bit(spec: Any) -> None:
    found = judge(spec({"int8-head": 9.0, "kivi4": 9.0}))
    assert (found.status.word, found.status.option) == ("Accepted", "auto")


def test_required_schemes_that_the_platform_cannot_measure_leave_it_open(spec: Any) -> None:
    found = judge(spec({"fp8-e4m3": 20.0}))
    assert found.status.word == "Proposed"
    assert "INT8 per-head" in found.status.text.en
    assert any(item.en == "INT8 per-head: an arm of this platform" for item in found.missing)


def test_no_arm_at_all_is_blocked(spec: Any) -> None:
    assert judge(spec({})).status.word == "Blocked"


def test_a_refuted_premise_lifts_the_exclusion(spec: Any) -> None:
    """Per-tensor loses nothing here, so G10 (it loses at least 3 points) does not exclude it."""
    found = judge(spec({"int8-head": 9.0, "fp8-e4m3": 0.0}))
    placed = scheme(found, "FP8 e4m3 per-tensor")
    assert (placed.excluded_by, placed.lifted) == ([], ["G10"])
    assert found.status.option == "FP8 e4m3 per-tensor"
    assert "kv-cache-dtype" in found.status.text.en


def test_a_premise_that_holds_excludes(spec: Any) -> None:
    found = judge(spec({"int8-head": 9.0, "fp8-e4m3": 20.0}))
    assert scheme(found, "FP8 e4m3 per-tensor").excluded_by == ["G10"]
    results = {r.option: r.verdict for r in rule(found, "G10").results}
    assert results["FP8 e4m3 per-tensor"] == "holds"
    assert results["INT8 per-tensor"] == "unmeasured"
    assert found.status.option == "auto"


def test_fp8_per_head_is_required_on_cdna3_only(spec: Any) -> None:
    losses = {"int8-head": 9.0, "fp8-fnuz-head": 0.0}
    assert rule(judge(spec(losses, arch="gfx942")), "G08").options == ["FP8 FNUZ per-head", "INT8 per-head"]
    assert rule(judge(spec(losses, arch="gfx936")), "G08").options == ["INT8 per-head"]


def test_kvquant_is_excluded_until_its_delta_says_otherwise(spec: Any) -> None:
    assert scheme(judge(spec({"kvquant4": 20.0})), "KVQuant-4").excluded_by == ["G08-INT4"]
    lifted = scheme(judge(spec({"kvquant4": 0.0})), "KVQuant-4")
    assert (lifted.role, lifted.lifted) == ("stretch", ["G08-INT4"])


def test_per_token_is_compared_with_per_head_pair_by_pair(spec: Any) -> None:
    """3 points better than per-head: the premise of G12 (at most one better) is refuted."""
    found = judge(spec({"int8-head": 3.5, "sim-int8-token-head": 0.5}))
    result = rule(found, "G12").results[0]
    assert result.value == pytest.approx(-3.0)
    assert result.verdict == "refuted"
    assert scheme(found, "INT8 per (token, head)").lifted == ["G12"]


def test_rules_about_the_model_read_calibration(spec: Any) -> None:
    assert rule(judge(spec({"kvquant4": 0.0}, outliers=0.05)), "G14").verdict == "holds"
    assert rule(judge(spec({"kvquant4": 0.0}, outliers=0.45)), "G14").verdict == "refuted"
    heads = {r.option: r.verdict for r in rule(judge(spec({"int8-head": 0.0})), "G11").results}
    assert heads == {"INT8 per-head": "holds", "FP8 FNUZ per-head": "unmeasured"}


def test_the_same_evidence_gives_the_same_document(spec: Any) -> None:
    made = spec({"int8-head": 0.5, "kivi4": 0.0})
    assert judge(made) == judge(made)


@pytest.mark.parametrize(
    ("interval", "sides", "expected"),
    [
        ((2.0, 1.0, 3.0), {"at_least": 1.0}, "holds"),
        ((2.0, 1.0, 3.0), {"at_least": 2.5}, "undecided"),
        ((2.0, 1.0, 3.0), {"at_least": 3.5}, "refuted"),
        ((2.0, 1.0, 3.0), {"at_most": 3.0}, "holds"),
        ((2.0, 1.0, 3.0), {"at_most": 0.5}, "refuted"),
        (None, {"at_most": 0.5}, "unmeasured"),
    ],
)
def test_a_premise_needs_its_whole_interval(interval: Any, sides: dict[str, float], expected: str) -> None:
    found = Found(*interval) if interval else None
    assert verdict(found, Premise(quantity="delta", text="x", **sides)) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"rules": [{"id": "G", "title": "x", "effect": "must", "options": ["INT9"]}]}, "INT9"),
        ({"cited": [{"option": "INT9", "figure": "x", "source": "x"}]}, "INT9"),
        ({"rules": [{"id": "G", "title": "x", "effect": "must"}]}, "exactly one of"),
        ({"rules": [{"id": "G", "title": "x", "effect": "must", "by_arch": {"gfx942": []}}]}, "default"),
    ],
)
def test_a_wrong_decision_file_names_what_is_wrong(change: dict[str, Any], named: str) -> None:
    assert model_of(DECISION) is Strategy
    with pytest.raises(ValueError, match=named):
        Strategy.model_validate(DECISION | {"resolutions": []} | change)


def test_a_premise_names_what_it_needs() -> None:
    with pytest.raises(ValueError, match="against"):
        TeamRule.model_validate(
            {"id": "G", "title": "x", "effect": "exclude", "options": ["a"],
             "premise": {"quantity": "delta_over", "at_least": 1.0, "text": "x"}}
        )  # fmt: skip


def test_a_wrong_specification_is_refused() -> None:
    with pytest.raises(JobError, match="policy"):
        parse_strategy({"platform": "cpu", "decision": DECISION})


def test_one_lucky_interval_among_many_schemes_does_not_win(spec: Any) -> None:
    """50 pairs a task decide INT8 per-head alone at 95 %; as one of seven statements they do not."""
    alone = judge(spec({"int8-head": 0.4}, n=n_that_just_passes(spec)))
    assert scheme(alone, "INT8 per-head").gate == "passed"
    others = {"fp8-e4m3": 2.9, "kivi4": 2.9, "kivi2": 2.9, "kvquant4": 2.9, "sim-int8-token-head": 2.9}
    together = judge(spec({"int8-head": 0.4} | others, n=n_that_just_passes(spec)))
    assert scheme(together, "INT8 per-head").gate == "undecided"
    assert together.status.word == "Proposed"
    gate = next(o for o in together.options if o.name == "INT8 per-head").gates[0]
    assert gate.high is not None
    assert gate.high <= gate.limit, "the interval alone decides"
    assert "Holm" in gate.needs.en if gate.needs else False
    assert together.strategy is not None
    assert together.strategy.statements > 6


def n_that_just_passes(spec: Any) -> int:
    """Least number of pairs a task at which a scheme of Δ 0.4 passes alone."""
    return next(
        n for n in range(20, 400, 5) if scheme(judge(spec({"int8-head": 0.4}, n=n)), "INT8 per-head").gate == "passed"
    )


def test_a_premise_is_refuted_only_if_it_survives_all_statements(spec: Any) -> None:
    """G10's exclusion of per-tensor is lifted by its Δ alone, not by the same Δ as one of many."""
    n = next(
        n for n in range(20, 400, 5)
        if scheme(judge(spec({"fp8-e4m3": 0.4}, n=n)), "FP8 e4m3 per-tensor").lifted == ["G10"]
    )  # fmt: skip
    others = {"int8-head": 2.9, "kivi4": 2.9, "kivi2": 2.9, "kvquant4": 2.9, "sim-int8-token-head": 2.9}
    found = judge(spec({"fp8-e4m3": 0.4} | others, n=n))
    assert scheme(found, "FP8 e4m3 per-tensor").excluded_by == ["G10"]
    result = next(r for r in rule(found, "G10").results if r.option == "FP8 e4m3 per-tensor")
    assert result.verdict == "undecided"
    assert result.p_value is not None
    assert result.p_value > 0.05


def test_a_premise_that_asks_what_the_gate_asks_is_one_statement(spec: Any) -> None:
    """KVQuant's Δ against 3 points is asked by its gate and by G08-INT4."""
    found = judge(spec({"kvquant4": 0.0})).strategy
    assert found is not None
    assert found.statements == 1
