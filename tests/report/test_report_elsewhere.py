"""Another model's accuracy in a record of random weights: shown as that, with intervals, everywhere it is told."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from adrbench.report.collect import collect, open_store
from adrbench.report.figures.__main__ import write as write_figures
from adrbench.report.markdown import render
from adrbench.report.page.__main__ import write as write_page
from adrbench.report.site import SiteSpec, load
from adrbench.report.spec import Spec

DELTA = "+0.4 [−0.3, +1.1]"
OTHER = {
    "en": ["**Another model's accuracy", "no gate here reads it", "A small model (platform `h200-small`)"],
    "zh": ["**另一模型的精度", "此处没有 gate 使用它", "小模型 (平台 `h200-small`)"],
}
SUMMARY = {"en": "another model's, on `h200-small`: ", "zh": "另一模型, 平台 `h200-small`: "}
NEXT = {"en": "informs, but decides no gate here", "zh": "仅供参考, 不判定此处的 gate"}


def found(*same: str) -> dict[str, Any]:
    """``elsewhere`` of a decide document: two arms, the second of which runs here, too."""

    def accuracy(delta: float) -> dict[str, Any]:
        difference = {"delta": delta, "low": delta - 0.7, "high": delta + 0.7}
        return {
            "tasks": {"multi_hop_qa-long": {"baseline": 40.0, "arm": 39.0, "n": 300, **difference}},
            "mean": difference | {"pairs": 2200},
            "more_pairs": None,
            "exact_agreement": 0.98,
        }

    return {
        "platform": "h200-small",
        "title": {"en": "A small model", "zh": "小模型"},
        "baseline": "auto",
        "titles": {"custom-int4": {"en": "INT4 by CUSTOM", "zh": "CUSTOM 的 INT4"}},
        "same": list(same),
        "accuracy": {"custom-int4": accuracy(3.9), "fp8-e4m3": accuracy(0.4)},
        "refused": {"fp8": {"en": "the samples do not pair", "zh": "样本无法配对"}},
    }


def with_random_weights(spec: dict[str, Any]) -> dict[str, Any]:
    changed = copy.deepcopy(spec)
    changed["platform"]["model"] |= {"source": "shape", "shape": "qwen3-8b"}
    changed["platform"] |= {"eval": {}, "agreement": None, "calibrate": None, "accuracy_platform": "h200-small"}
    for part in changed.get("decisions", [changed]):
        part["evidence"]["eval"] = {}
    return changed


@pytest.fixture
def said(built: dict[str, dict[str, Any]], language: str) -> str:
    return text_of(built, language, "auto", "fp8-e4m3")


def text_of(built: dict[str, dict[str, Any]], language: str, *same: str) -> str:
    spec = Spec.model_validate(with_random_weights(built["adr0011"]) | {"language": language})
    store = open_store(spec)
    decide = copy.deepcopy(store.documents["decide"].data)
    assert decide is not None
    for option in decide["options"]:
        for gate in option["gates"]:
            if gate["metric"] == "accuracy_delta":
                gate |= {"value": None, "low": None, "high": None, "verdict": "undecided", "pairs_needed": None}
    store.documents["decide"].data = decide | {"accuracy": {}, "elsewhere": found(*same)}
    return render(collect(spec, store), spec.language, Path("reports/cpu/adr.md"), ["en", "zh"])


def test_the_accuracy_section_shows_it_as_another_models(said: str, language: str) -> None:
    assert [words for words in OTHER[language] if words not in said] == []
    rows = [line for line in said.splitlines() if line.startswith("| ") and "2,200" in line]
    assert [DELTA in row for row in rows] == [True, False]  # the arm that runs here comes first
    assert {"en": "declared alike", "zh": "声明相同"}[language] in rows[0]
    assert {"en": "INT4 by CUSTOM", "zh": "CUSTOM 的 INT4"}[language] in rows[1]
    assert {"en": "fp8: not compared; needed: the samples", "zh": "fp8: 未比较; 需要: 样本"}[language] in said
    assert "| multi_hop_qa-long |" in said
    assert "`elsewhere.accuracy." in said


def test_in_short_and_next_step_say_whose_it_is(said: str, language: str) -> None:
    assert f"{SUMMARY[language]}{DELTA}" in said
    assert NEXT[language] in said
    # An arm that this platform does not have is in no line of the summary.
    assert "+3.9" not in said[: said.index("## Context")]


def test_an_arm_that_is_declared_otherwise_lends_no_number_to_the_summary(
    built: dict[str, dict[str, Any]], language: str
) -> None:
    said = text_of(built, language)
    assert SUMMARY[language] not in said
    assert DELTA in said
    assert "alike" not in said
    assert "声明相同" not in said


def test_another_baseline_lends_no_number_to_the_summary(built: dict[str, dict[str, Any]], language: str) -> None:
    """Δ there is to that platform's baseline; in the summary it stands beside gains over this one's."""
    said = text_of(built, language, "fp8-e4m3")
    assert SUMMARY[language] not in said
    assert DELTA in said


def test_the_page_shows_it_too(example: ModuleType, tmp_path: Path) -> None:
    spec = with_random_weights(example.site(tmp_path))
    path = Path(spec["decisions"][0]["evidence"]["decide"])
    decide = example.json.loads(path.read_text(encoding="utf-8"))
    example.write_json(path, decide | {"accuracy": {}, "elsewhere": found("auto", "fp8-e4m3")})
    site = SiteSpec.model_validate(spec)
    write_figures(load(site), tmp_path / "reports/cpu/figures")
    write_page(site, tmp_path / "reports/cpu/index.html")
    page = (tmp_path / "reports/cpu/index.html").read_text(encoding="utf-8")
    section = re.sub(r"<[^>]+>", "", page[page.index('id="accuracy"') : page.index('id="claims"')])
    assert "Another model's accuracy" in section.replace("&#39;", "'")
    assert section.count(DELTA) == 1
    assert "reports/h200-small/" not in section
