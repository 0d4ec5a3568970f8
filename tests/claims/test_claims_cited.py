"""Cited values and evidence: what may give a verdict, and what stays unverified."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from adrbench import evidence
from adrbench.claims.cited import CitedError, load_table
from adrbench.claims.registry import CHECKS, Context, Unverifiable

DATA = Path(__file__).resolve().parents[2] / "config" / "claims" / "data"
NEEDS = {"en": "x", "zh": "甲"}
CARDS = """\
A: {maker: {value: X, trust: published, source: s}, speed: {value: 4, trust: published, source: s}}
B: {maker: {value: X, trust: published, source: s}, speed: {value: 2, trust: quoted, source: s}}
C: {maker: {value: Y, trust: published, source: s}, speed: {value: 2, trust: inferred, source: why}}
D: {maker: {value: Y, trust: published, source: s}, speed: {value: null, trust: not found, source: why}}
E: {maker: {value: Y, trust: published, source: s}, speed: {value: 9, trust: general knowledge, source: why}}
"""


@pytest.fixture
def context(tmp_path: Path) -> Context:
    (tmp_path / "hardware.yaml").write_text(CARDS, encoding="utf-8")
    return Context(data=tmp_path)


def run(context: Context, name: str, **arguments: Any) -> dict[str, Any]:
    return CHECKS[name].run(context, arguments).values


def test_published_and_quoted_values_are_usable(context: Context) -> None:
    assert run(context, "datasheet", card="A", quantity="speed")["value"] == 4
    assert run(context, "datasheet", card="B", quantity="speed")["value"] == 2
    assert run(context, "datasheet-ratio", quantity="speed", of="A", to="B")["value"] == 2


@pytest.mark.parametrize(
    ("card", "text"), [("C", "2 is inferred"), ("D", "proves no absence"), ("E", "general knowledge")]
)
def test_other_values_leave_the_claim_unverified(context: Context, card: str, text: str) -> None:
    with pytest.raises(Unverifiable, match=text):
        run(context, "datasheet", card=card, quantity="speed")
    with pytest.raises(Unverifiable):
        run(context, "datasheet-ratio", quantity="speed", of="A", to=card)


def test_cards_with_a_value_count_only_what_can_be_trusted(context: Context) -> None:
    assert run(context, "cards-with", quantity="speed", equal=2) == {"value": ["B"], "count": 1}
    assert run(context, "cards-with", quantity="speed", equal=2, maker="Y") == {"value": [], "count": 0}


@pytest.mark.parametrize(
    ("card", "quantity", "text"),
    [("Z", "speed", "no row 'Z'; known: A, B"), ("A", "mass", "A has no 'mass'; known: maker, speed")],
)
def test_an_unknown_row_or_column_lists_the_known(context: Context, card: str, quantity: str, text: str) -> None:
    with pytest.raises(CitedError, match=text):
        run(context, "datasheet", card=card, quantity=quantity)


@pytest.mark.parametrize(
    "text", ["A: 3", "A: {x: {value: 1, trust: sure, source: s}}", "A: {x: {value: 1}}", "[", "- 1"]
)
def test_a_damaged_table_names_the_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "table.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(CitedError, match=str(path)):
        load_table(path)


@pytest.mark.parametrize("name", ["hardware", "literature"])
def test_every_value_of_the_shipped_tables_names_a_source(name: str) -> None:
    table = load_table(DATA / f"{name}.yaml")
    assert [
        f"{row}.{column}" for row, cells in table.items() for column, r in cells.items() if not r.source.strip()
    ] == []


def document(root: Path, name: str, *, measured: dict[str, Any], stage: str = "serve", **resolved: Any) -> None:
    when = evidence.now()
    evidence.write(
        root / name,
        evidence.Evidence(
            stage=stage, platform="p", measured=measured, resolved=resolved, started_at=when, finished_at=when
        ),  # type: ignore[arg-type]
    )


@pytest.fixture
def results(tmp_path: Path) -> Context:
    """Two rounds of two arms on a gfx936."""
    document(tmp_path, "device.json", measured={}, stage="device", arch="gfx936")
    for arm, speeds in {"fast": (10.0, 14.0), "slow": (20.0, 28.0)}.items():
        for number, speed in enumerate(speeds, 1):
            document(tmp_path, f"serve/{arm}/r{number}/t.json", measured={"ttft_ms": {"p50": speed}, "word": arm})
    return Context(data=DATA, evidence_root=tmp_path)


def test_evidence_gives_median_and_range(results: Context) -> None:
    found = run(results, "evidence", files="serve/fast/*/t.json", key="measured.ttft_ms.p50", needs=NEEDS)
    assert found == {"value": 12.0, "least": 10.0, "most": 14.0, "count": 2}
    arguments = {"files": "serve/fast/*/t.json", "baseline_files": "serve/slow/*/t.json", "needs": NEEDS}
    assert run(results, "evidence-ratio", key="measured.ttft_ms.p50", **arguments)["value"] == 0.5
    assert run(results, "evidence-difference", key="measured.ttft_ms.p50", **arguments)["value"] == 12.0
    assert run(results, "evidence-word", files="serve/*/r1/t.json", key="measured.word", needs=NEEDS)["words"] == [
        "fast",
        "slow",
    ]


@pytest.mark.parametrize(
    ("files", "key", "text"),
    [
        ("serve/none/*.json", "measured.x", "needs the run$"),
        ("serve/fast/*/t.json", "measured.nothing", r"2 evidence files, none with measured\.nothing"),
    ],
)
def test_missing_evidence_says_what_is_needed(results: Context, files: str, key: str, text: str) -> None:
    with pytest.raises(Unverifiable, match=text):
        run(results, "evidence", files=files, key=key, needs={"en": "the run", "zh": "运行"})


def test_evidence_of_another_kind_of_device_does_not_count(results: Context, tmp_path: Path) -> None:
    document(tmp_path, "device.json", measured={}, stage="device", arch="x86_64")
    with pytest.raises(Unverifiable, match="this platform is x86_64"):
        run(results, "evidence", files="serve/fast/*/t.json", key="measured.ttft_ms.p50", needs=NEEDS)
    (tmp_path / "device.json").unlink()
    with pytest.raises(Unverifiable, match="not identified"):
        run(results, "evidence", files="serve/fast/*/t.json", key="measured.ttft_ms.p50", needs=NEEDS)


def test_an_undecided_gate_gives_no_verdict(results: Context, tmp_path: Path) -> None:
    document(tmp_path, "profile/a.json", measured={"g06": {"verdict": "undecided"}}, stage="profile")
    with pytest.raises(Unverifiable, match="undecided"):
        run(results, "evidence-word", files="profile/*.json", key="measured.g06.verdict", needs=NEEDS)


def test_without_results_a_claim_says_what_it_needs() -> None:
    for name, extra in (("evidence", {"files": "*", "key": "k"}), ("needs-measurement", {})):
        with pytest.raises(Unverifiable, match=r"^needs a run$"):
            run(Context(data=DATA), name, needs={"en": "a run", "zh": "运行"}, **extra)
