"""The catalogue and the templates: both languages, no typed number, nothing unused."""

from __future__ import annotations

import re
import string
from pathlib import Path

import pytest
from adrbench.report import team
from adrbench.report.markdown import FOLDER, catalogue

TEXTS = catalogue()
TEMPLATES = sorted((FOLDER / "templates").glob("*.j2"))
CODE = sorted(FOLDER.glob("*.py"))
# Names with digits that are no measurement: ADRs, levels, phases, gates, percentiles, formats, constraints.
NAMES = re.compile(
    r"ADR \d{4}|adr\d{4}|context\.\d{4}|\bL[123]\b|\bl3_\w+|P0-P3"
    r"|P(50|90|99)|\.p99\b|\bE2EL\b|^\d\. |\bg06\b|\bG06\b|\bC0[23]\b"
    r"|\b27B\b|\bkv_32k\b|16[- ]bit|\bfp32\b"
    r"|\bSHA-256\b|\.j2\b|loads\[0\]|(?:window|cpu)_shares\[-?\d\]|check\.l[13]\w*",
    re.MULTILINE,
)
# Keys that are put together at run time: `t("verdict." ~ word)`.
RUN_TIME = (
    "status verdict state expect check checks g06 phase checklist claim metric noise sources accuracy ceiling decision"
    " stack lock dissent turning bound lever prediction checked strategy granularity integration effect"
    " premise memory pareto class factor"
)
DYNAMIC = tuple(f"{name}." for name in RUN_TIME.split())


def placeholders(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


@pytest.mark.parametrize("key", TEXTS)
def test_both_languages_take_the_same_values(key: str) -> None:
    text = TEXTS[key]
    assert set(text) == {"en", "zh"}
    assert placeholders(text["en"]) == placeholders(text["zh"])


def test_sentences_are_translated() -> None:
    same = [
        key for key, text in TEXTS.items() if text["en"] == text["zh"] and len(re.sub(r"\{\w+\}", "", text["en"])) > 24
    ]
    assert [key for key in same if not key.startswith("integrate.flag")] == []


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_no_number_is_typed_in_a_template(path: Path) -> None:
    left = NAMES.sub("", re.sub(r"\{[{%].*?[}%]\}", "", path.read_text(encoding="utf-8"), flags=re.DOTALL))
    assert re.findall(r".*\d.*", left) == []


def test_no_number_is_typed_in_a_sentence() -> None:
    typed = {key: text for key, text in TEXTS.items() if re.search(r"\d", NAMES.sub("", text["en"] + text["zh"]))}
    # "vLLM source", "tier" and the like have no digits; arithmetic belongs into `derive`.
    assert typed == {}


@pytest.mark.parametrize("path", CODE, ids=lambda path: path.name)
def test_no_cell_is_made_of_a_literal(path: Path) -> None:
    assert re.findall(r"\bCell\(\s*[-\d.]+", path.read_text(encoding="utf-8")) == []


def test_every_sentence_is_used() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in [*TEMPLATES, *CODE])
    unused = [key for key in TEXTS if f'"{key}"' not in text and not key.startswith(DYNAMIC)]
    assert unused == []


def test_a_statement_of_the_team_has_a_known_fact_beside_it() -> None:
    for row in team.document("adr0011").device_rows:
        assert row.source
        assert row.fact.zh != row.fact.en
    assert len(team.document("adr0011").schemes) == 6
    assert len(team.document("adr0011").checklist) == 7
    assert len(team.document("adr0010").checklist) == 4


def test_an_adr_without_tables_has_the_common_sections() -> None:
    found = team.document("adr9999")
    assert found.sections == team.SECTIONS
    assert all((FOLDER / "templates" / f"_{name}.md.j2").is_file() for name in found.sections)


@pytest.mark.parametrize("path", sorted((FOLDER / "tables").glob("*.yaml")), ids=lambda path: path.stem)
def test_sections_of_a_table_file_are_templates(path: Path) -> None:
    for name in team.document(path.stem).sections:
        assert (FOLDER / "templates" / f"_{name}.md.j2").is_file(), name
