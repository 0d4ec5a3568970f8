"""Figures over the example evidence: drawn where there is data, a reason where there is none."""

from __future__ import annotations

import csv
import json
import re
from html import escape
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from adrbench.evidence import canonical
from adrbench.report.figures import rows as figure_rows
from adrbench.report.figures.__main__ import MOST_ROWS, chart_svg, csv_text, thinned, write
from adrbench.report.figures.charts import specification
from adrbench.report.figures.names import FIGURES, SUFFIXES, files, texts
from adrbench.report.site import SiteSpec, load

MARKS = re.compile(r'class="mark-(?!group|text)\w+ role-mark')


@pytest.fixture(scope="module")
def drawn(page: Path) -> tuple[Path, dict[str, Any]]:
    folder = page.parent / "figures"
    figures = json.loads((folder / "figures.json").read_text(encoding="utf-8"))["figures"]
    return folder, {figure["name"]: figure for figure in figures}


def test_every_file_is_there(drawn: tuple[Path, dict[str, Any]]) -> None:
    assert sorted(path.name for path in drawn[0].iterdir()) == sorted(files())


@pytest.mark.parametrize("suffix", [".svg", ".zh.svg"])
@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_with_data_has_marks_and_its_words(drawn: tuple[Path, dict[str, Any]], name: str, suffix: str) -> None:
    folder, figures = drawn
    svg = (folder / f"{name}{suffix}").read_text(encoding="utf-8")
    assert figures[name]["reason"] is None
    assert MARKS.search(svg)
    with open(folder / f"{name}.csv", newline="", encoding="utf-8") as stream:
        assert len(list(csv.DictReader(stream))) == figures[name]["all_rows"] > 0


@pytest.fixture(scope="module")
def without_data(example: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Figures of a platform on which nothing was measured."""
    folder = tmp_path_factory.mktemp("empty")
    decision = {"adr": "adr0010", "decision": example.decision("adr0010")}
    platform = example.platform().model_dump(mode="json")
    write(load(SiteSpec.model_validate({"platform": platform, "decisions": [decision]})), folder)
    return folder


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_without_data_says_why(without_data: Path, name: str) -> None:
    for language, suffix in SUFFIXES.items():
        svg = (without_data / f"{name}{suffix}").read_text(encoding="utf-8")
        assert escape(texts()[f"{name}.none"][language][:20]) in svg
    assert (without_data / f"{name}.csv").read_text() == ""
    figures = json.loads((without_data / "figures.json").read_text(encoding="utf-8"))["figures"]
    assert next(figure for figure in figures if figure["name"] == name)["reason"] == texts()[f"{name}.none"]


def test_pareto_has_the_baseline_at_zero_and_the_range_over_rounds(site_spec: dict[str, Any]) -> None:
    rows = figure_rows.rows_of("pareto", load(SiteSpec.model_validate(site_spec)))
    base = next(row for row in rows if (row["arm"], row["tier"]) == ("auto", "short"))
    assert (base["delta"], base["delta_low"], base["rounds"]) == (0.0, None, 2)
    assert base["rate_low"] < base["output_tokens_per_s"] < base["rate_high"]


def test_tiers_and_arms_stand_in_the_platforms_order(site_spec: dict[str, Any]) -> None:
    """Not in the order of the evidence, which canonical JSON sorts by name."""
    rows = figure_rows.rows_of("latency_ttft", load(SiteSpec.model_validate(json.loads(canonical(site_spec)))))
    assert list(dict.fromkeys(row["tier"] for row in rows)) == ["short", "medium", "long"]
    assert list(dict.fromkeys(row["arm"] for row in rows)) == ["auto", "fp8-e4m3", "fp8-e5m2"]


def test_an_open_end_is_drawn_to_the_edge(site_spec: dict[str, Any]) -> None:
    site = load(SiteSpec.model_validate(site_spec))
    gate = site.decisions[0].store.documents["decide"].data["options"][2]["gates"][0]  # type: ignore[index]
    gate["high"] = None
    rows = [row for row in figure_rows.gates(site) if row["gate"] == gate["id"]]
    changed = next(row for row in rows if row["high"] is None)
    assert changed["shown_high"] > max(row["limit"] for row in rows)


def test_long_data_is_thinned_evenly_and_wholly_in_the_csv() -> None:
    rows = [{"n": n} for n in range(3 * MOST_ROWS)]
    assert [row["n"] for row in thinned(rows)[:3]] == [0, 3, 6]
    assert len(thinned(rows)) == MOST_ROWS
    assert csv_text(rows).count("\n") == len(rows) + 1


def test_texts_have_both_languages_and_none_is_left_over() -> None:
    source = "".join(path.read_text(encoding="utf-8") for path in Path(figure_rows.__file__).parent.glob("*.py"))
    for key, text in texts().items():
        assert set(text) == {"en", "zh"}
        stem, _, part = key.partition(".")
        known = stem in FIGURES and part in ("title", "caption", "none")
        assert known or f'"{key}"' in source or f'f"{stem}.{{' in source, key


@pytest.mark.parametrize("share", [0.9, 1.3])
def test_a_phase_above_the_roof_is_marked_in_figure_and_data(site_spec: dict[str, Any], share: float) -> None:
    site = load(SiteSpec.model_validate(site_spec))
    rate = site.ceiling["matmul_flop_per_s"]["bfloat16"]["median"]
    for measured in site.profiles.values():
        prefill = measured["bounds"]["prefill"]
        prefill |= {"matrix_dtype": "bfloat16", "flops_per_byte": 1e9, "flops": share * rate}
        prefill["seconds"] = {"median": 1.0, "low": 1.0, "high": 1.0}
    rows = figure_rows.rows_of("roofline", site)
    assert [row["of_roof"] for row in rows if row["phase"] == "prefill"] == [pytest.approx(share)]
    assert all(row["of_roof"] is None for row in rows if row["role"] == "roof")
    svg = chart_svg(specification("roofline", rows, "en"), rows)
    assert (">130%<" in svg) is (share > 1)
    assert "A ring marks a phase above its roof" in texts()["roofline.caption"]["en"]
