"""Marks on the cells of the team's tables.

Cannot prove: that a cell's claims are all that can be said of it; a new claim has to be named in cells.yaml.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from adrbench.paths import ROOT
from adrbench.report import team
from adrbench.report.cells import SIGNS, declared
from adrbench.report.collect import collect, open_store
from adrbench.report.lookup import Store
from adrbench.report.markdown import render
from adrbench.report.spec import Spec

CLAIMS = {
    entry["id"]
    for name in ("adr0010", "adr0011", "learning", "rules")
    for entry in yaml.safe_load((ROOT / f"config/claims/{name}.yaml").read_text(encoding="utf-8"))["claims"]
}
CELLS = {cell: claims for cells in declared().values() for cell, claims in cells.items()}


def cells_of_the_tables() -> set[str]:
    """Names of all cells that the team wrote, from the tables themselves."""
    first, second = team.document("adr0011"), team.document("adr0010")
    columns = ("memory", "delta", "support", "cost")
    return (
        {f"layers.{row.name}.{column}" for row in first.layers for column in ("trigger", "note", "risk")}
        | {f"device_rows.{row.measured}.team" for row in first.device_rows}
        | {f"schemes.{row.id}.{column}" for row in first.schemes for column in columns}
        | {f"candidates.{name}.team" for name in second.candidates}
        | {f"ways.{way.name}.team" for way in second.ways}
        | {"bottleneck.team"}
    )


def test_every_cell_says_which_claims_it_rests_on() -> None:
    assert set(CELLS) == cells_of_the_tables()


@pytest.mark.parametrize("cell", sorted(CELLS))
def test_a_cells_claims_exist(cell: str) -> None:
    assert set(CELLS[cell]) <= CLAIMS


def test_every_statement_of_the_tables_marks_a_cell() -> None:
    """A claim about blocks A, B, C that marks no cell would be checked and then shown in the long list only."""
    shown = {claim for claims in CELLS.values() for claim in claims}
    assert {claim for claim in CLAIMS if re.match(r"ADR0011-[ABC]-", claim)} - shown == set()


def text_of(spec: Spec, store: Store) -> str:
    return render(collect(spec, store), spec.language, Path("reports/cpu/adr.md"), spec.languages)


def with_verdict(spec: Spec, **entry: Any) -> str:
    store = open_store(spec)
    data = store.documents["claims"].data
    assert data is not None
    base = {"verdict": "holds", "found": "", "where": "", "corrected": None, "values": {}}
    data["measured"]["verdicts"]["ADR0011-B-bandwidth-cdna3"] = base | entry
    return text_of(spec, store)


def row(text: str, start: str) -> str:
    return next(line for line in text.splitlines() if line.startswith(start))


@pytest.mark.parametrize("adr", ["adr0011"], indirect=True)
@pytest.mark.parametrize("language", ["en"], indirect=True)
class TestMarks:
    def test_a_false_statement_has_the_right_value_beside_it(self, spec: Spec) -> None:
        corrected = {"en": "5.3 TB/s | per card", "zh": "5.3 TB/s"}
        text = with_verdict(spec, verdict="false", corrected=corrected, where="hardware.yaml")
        line = row(text, "| Memory bandwidth |")
        assert "3.2 TB/s per GPU (instead: 5.3 TB/s \\| per card) <sup>" in line
        number = re.search(r"\[✗(\d+)\]\(#s\1\)", line)
        assert number is not None
        footnote = row(text, f'<a id="s{number[1]}"></a>')
        assert footnote.startswith(f'<a id="s{number[1]}"></a>✗{number[1]} ADR0011-B-bandwidth-cdna3: false (5.3 TB/s')
        assert "`hardware.yaml`" in footnote

    def test_a_statement_that_holds_is_marked_and_not_corrected(self, spec: Spec) -> None:
        line = row(with_verdict(spec, verdict="holds"), "| Memory bandwidth |")
        assert "instead" not in line
        assert re.search(r"\[✓\d+\]", line)

    @pytest.mark.parametrize(("verdict", "sign"), sorted(SIGNS.items()))
    def test_every_verdict_has_its_sign(self, spec: Spec, verdict: str, sign: str) -> None:
        needs = {"needs": {"en": "needs a card", "zh": "需要加速卡"}}
        assert f"[{sign}" in row(with_verdict(spec, verdict=verdict, **needs), "| Memory bandwidth |")

    def test_an_unverified_statement_says_what_it_needs(self, spec: Spec) -> None:
        text = with_verdict(spec, verdict="unverified", needs={"en": "needs a card", "zh": "需要加速卡"})
        assert "ADR0011-B-bandwidth-cdna3: unverified (needs a card)" in text

    def test_without_the_claims_evidence_nothing_is_marked_as_right(self, spec: Spec) -> None:
        store = open_store(spec)
        store.documents["claims"].data = None
        marks = set(re.findall(r"\[(.)\d+\]\(#s\d+\)", text_of(spec, store)))
        assert marks == {"?"}


def test_marks_are_no_escaped_markup(spec: Spec) -> None:
    text = text_of(spec, open_store(spec))
    assert "&lt;sup" not in text
    assert "&lt;a id" not in text


@pytest.mark.parametrize("adr", ["adr0010", "adr0011"], indirect=True)
def test_each_statement_has_one_number_and_one_footnote(spec: Spec) -> None:
    text = text_of(spec, open_store(spec))
    marked = set(re.findall(r"\(#s(\d+)\)", text))
    listed = re.findall(r'<a id="s(\d+)"></a>', text)
    assert sorted(marked, key=int) == listed
    assert len(listed) > 5
