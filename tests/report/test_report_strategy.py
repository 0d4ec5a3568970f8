"""ADR 0009 and its figure from made-up evidence: every number looked up, both languages, no number where none is.

What it cannot prove: that the simulated schemes lose what they lose; the platform cpu-kv measures that.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from adrbench import evidence
from adrbench.config.platform import Platform
from adrbench.decide.strategy import judge
from adrbench.decide.strategy_spec import parse_strategy
from adrbench.evidence import Evidence, write_json
from adrbench.paths import ROOT
from adrbench.report import figures_kv
from adrbench.report.collect import collect, open_store
from adrbench.report.context import Context
from adrbench.report.markdown import render
from adrbench.report.spec import Spec
from adrbench.report.strategy import strategy

TASKS = ("multi_hop_qa", "summary", "retrieval_multi_point", "aggregation_keyword_aggregation")
# arm -> (bytes of a 32k request to 16 bit, loss in points, KL)
ARMS = {
    "auto": (1.0, 0.0, 2e-7), "fp8-e4m3": (0.5, 1.25, 0.0091), "int8-head": (0.5, 0.5, 0.0007),
    "sim-int8-token-head": (0.53125, 0.25, 0.0003), "kivi2": (0.19, 11.5, 0.31), "kvquant4": (0.28, 0.75, 0.0042),
}  # fmt: skip


def platform() -> Platform:
    return Platform.model_validate(yaml.safe_load((ROOT / "config/platforms/cpu-kv.yaml").read_text(encoding="utf-8")))


def _write(path: Path, stage: str, **parts: Any) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    document = Evidence(
        stage=stage, platform="cpu-kv", started_at="2026-11-29T01:00:00.000+00:00",  # type: ignore[arg-type]
        finished_at="2026-11-29T02:00:00.000+00:00", **parts,
    )  # fmt: skip
    evidence.write(path, document)
    return str(path)


def _interval(value: float) -> dict[str, float]:
    return {"value": value, "low": 0.9 * value, "high": 1.1 * value}


def _bucket(kl: float) -> dict[str, Any]:
    return {
        "positions": 9210, "agreement": _interval(0.9 - kl), "sure_positions": 4100,
        "sure_agreement": _interval(0.99 - kl), "kl_nats": _interval(kl), "lumped_probability": 0.0813,
        "perplexity": _interval(5.4 + kl), "baseline_perplexity": _interval(5.4), "perplexity_ratio": _interval(1 + kl),
    }  # fmt: skip


def _memory(arm: str) -> dict[str, Any]:
    ratio = ARMS[arm][0]
    stored = arm in ("auto", "fp8-e4m3")
    return {
        "scheme": arm, "summary": "x", "source": "",
        "layout": {
            "bytes_per_token": 23040 * ratio, "bits_per_value": 16 * ratio, "ratio": ratio,
            "scale_bytes_per_token": 0.0, "wide_share": {"4096": 0.03, "32768": 0.004},
            "request_ratio": {"4096": ratio + 0.01, "32768": ratio},
        },
        "pool": {
            "kind": "measured" if stored else "computed", "tokens": round(46592 / ratio), "blocks": 364,
            "block_size": 128, "bytes": 1073479680, "requests": 1.42 / ratio, "evidence": None, "ratio": ratio,
            "requests_ratio": 1 / ratio,
        },
        "cited": {"Qwen3.5-27B": {"ratio": ratio, "pool_request_ratio": ratio + 0.033}},
    }  # fmt: skip


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The specification of ADR 0009 over made-up evidence, without a language."""
    folder = tmp_path_factory.mktemp("strategy")
    declared = platform()
    decision = yaml.safe_load((ROOT / "config/decisions/adr0009.yaml").read_text(encoding="utf-8"))
    evals = {}
    for arm, (_, loss, _) in ARMS.items():
        tasks = {
            t: {"scores": [100.0 if i % 2 else 50.0 - loss for i in range(120)], "task": t, "length_tokens": 640,
                "metric": "F1", "samples": 120, "mean": 75.0 - loss / 2, "prompt_tokens": {"median": 611},
                "control": {"mean": 12.0, "difference": 60.0, "low": 50.0, "high": 70.0}}
            for t in TASKS
        }  # fmt: skip
        evals[arm] = _write(folder / f"eval/{arm}.json", "eval", arm=arm, measured={"tasks": tasks},
                            resolved={"vllm_version": "0.27.0", "opencompass_version": "0.5.4"})  # fmt: skip
    paths: dict[str, Any] = {
        "eval": evals,
        "memory": _write(folder / "memory.json", "memory",
                         asked={"lengths": [4096, 32768], "cited": {"Qwen3.5-27B": "x"}},
                         measured={"length": 32768, "arms": {arm: _memory(arm) for arm in ARMS}}),
        "agreement": _write(folder / "agreement.json", "agreement", tier="compare", measured={
            "baseline": "auto",
            "arms": {a: {"buckets": {"all": _bucket(v[2]), "1-512": _bucket(v[2] / 2), "513-1535": _bucket(v[2] * 2)}}
                     for a, v in ARMS.items()},
        }),
        "calibrate": _write(folder / "calibrate.json", "calibrate", measured={"outliers": {"head_share": 0.31}}),
    }  # fmt: skip
    verdict = judge(
        parse_strategy(
            {"platform": "cpu-kv", "decision": decision, "policy": "cpu", "baseline": "auto", "arch": "x86_64",
             "arms": [arm.model_dump(mode="json") for arm in declared.arms if arm.name in ARMS], "evidence": paths}
        )
    )  # fmt: skip
    write_json(folder / "decide.json", verdict.model_dump(mode="json"))
    return {
        "platform": declared.model_dump(mode="json"),
        "decision": decision,
        "adr": "adr0009",
        "evidence": paths | {"decide": str(folder / "decide.json")},
        "languages": ["en", "zh"],
    }


@pytest.fixture(params=["en", "zh"])
def spec(request: pytest.FixtureRequest, built: dict[str, Any]) -> Spec:
    return Spec.model_validate(built | {"language": request.param})


@pytest.fixture
def text(spec: Spec) -> str:
    return render(collect(spec, open_store(spec)), spec.language, Path("reports/cpu-kv/adr0009.md"), ["en", "zh"])


def row_of(text: str, start: str) -> str:
    return next(line for line in text.splitlines() if line.startswith(f"| {start} |"))


def test_the_required_scheme_is_accepted_and_needs_a_backend(text: str) -> None:
    assert "Accepted" in text
    assert "INT8 per-head" in text.split("##")[1]
    assert "L3" in text


def test_each_scheme_shows_its_place_memory_and_delta(text: str) -> None:
    assert "0.19×" in row_of(text, "KIVI-2")
    assert "0.50×" in row_of(text, "FP8 e4m3 per-tensor, scale 1.0")
    shown = row_of(text, "INT8 per (token, head)")
    assert "0.53×" in shown
    assert "+0.1" in shown


def test_unmeasured_schemes_say_so(text: str, spec: Spec) -> None:
    word = {"en": "unverified", "zh": "未验证"}[spec.language]
    assert word in row_of(text, "KIVI-4")


def test_the_control_stands_first_and_in_every_bucket(text: str, spec: Spec) -> None:
    name = {"en": "baseline again (A/A)", "zh": "baseline 重复 (A/A)"}[spec.language]
    assert text.count(f"| {name} |") == 3
    assert "0.00000" in row_of(text, name)
    assert "90.00 %" in row_of(text, name)
    assert "513-1535" in text


def test_measured_and_computed_pools_are_told_apart(text: str, spec: Spec) -> None:
    measured, computed = {"en": ("measured", "computed"), "zh": ("实测", "计算")}[spec.language]
    pool = [line for line in text.splitlines() if "93,184 tokens" in line]
    assert any(measured in line for line in pool)
    assert any(computed in line for line in pool)


def test_rules_show_premise_and_verdict(text: str, spec: Spec) -> None:
    refuted = {"en": "**refuted**", "zh": "**被推翻**"}[spec.language]
    outliers = next(line for line in text.splitlines() if line.startswith("| **G14**"))
    assert refuted in outliers
    assert "| 31 % |" in text  # the share of heads, in the details


def test_published_figures_stand_beside_ours(text: str) -> None:
    line = next(line for line in text.splitlines() if "2402.02750" in line and "42.43" in line)
    assert "+5." in line  # Δ of KIVI-2 as made up
    assert "0.3100" in line


def test_no_hole_and_no_other_language(text: str, spec: Spec) -> None:
    assert not re.search(r"\{[a-z_]+\}", text)
    if spec.language == "en":
        assert not re.search(r"[\u4e00-\u9fff]", text.replace("中文", ""))


def test_the_figure_has_a_point_and_a_label_for_each_measured_scheme(spec: Spec) -> None:
    view = strategy(Context(spec, open_store(spec)))
    assert view is not None
    values = figures_kv.rows(view, spec.language)
    assert {row["title"] for row in values} >= {"KIVI-2", "INT8 per-head"}
    assert len(values) == len(ARMS)
    drawn = figures_kv.svg(values, spec.language, 3.0)
    words = "".join(ElementTree.fromstring(drawn).itertext())
    assert all(row["title"] in words for row in values)
    assert {"en": "Δ in points", "zh": "Δ, 百分点"}[spec.language] in words


def test_a_figure_without_divergence_is_still_drawn(spec: Spec) -> None:
    view = strategy(Context(spec, open_store(spec)))
    assert view is not None
    values = [row | {"kl": None, "kl_low": None, "kl_high": None} for row in figures_kv.rows(view, spec.language)]
    assert figures_kv.svg(values, spec.language, None).startswith("<svg")
