"""Claim files that cannot be used: every error names the file, the entry and what is allowed."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from adrbench.claims.guide import guide
from adrbench.claims.registry import CHECKS
from adrbench.claims.schema import ClaimError, load

ROOT = Path(__file__).resolve().parents[2]
FILES = [ROOT / "config" / "claims" / f"{name}.yaml" for name in ("adr0010", "adr0011", "learning", "rules")]

GOOD: dict[str, Any] = {
    "id": "X-1",
    "place": {"document": "x", "section": "A"},
    "statement": {"en": "two", "zh": "二"},
    "kind": "source",
    "check": {"name": "enum-members", "path": "vllm/a.py", "symbol": "E"},
    "expect": {"count": 2},
}


def write(folder: Path, *entries: dict[str, Any], name: str = "x.yaml") -> Path:
    path = folder / name
    path.write_text(yaml.safe_dump({"claims": list(entries)}, allow_unicode=True), encoding="utf-8")
    return path


def changed(**changes: Any) -> dict[str, Any]:
    return copy.deepcopy(GOOD) | changes


def test_a_good_entry_loads(tmp_path: Path) -> None:
    (claim,) = load([write(tmp_path, GOOD)])
    assert (claim.id, claim.statement.zh, len(claim.parts)) == ("X-1", "二", 1)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"check": {"name": "no-such-check"}}, "unknown check 'no-such-check'; known: .*enum-members"),
        (
            {"check": {"name": "enum-members", "path": "a", "symbol": "E", "depth": 3}},
            "'depth'.*arguments: path, symbol",
        ),
        ({"check": {"name": "enum-members", "path": "a"}}, "'symbol'.*Field required"),
        (
            {"check": {"name": "grep-window", "path": "a", "symbol": "E", "after": "many"}, "expect": {"needed": 3}},
            "'after'.*integer",
        ),
        ({"expect": {"size": 2}}, "gives no 'size'; it gives: .*count"),
        ({"expect": {}}, "could not fail"),
        ({"expect": {"count": {"near": 2}}}, "count: .*one operator"),
        ({"kind": "derived"}, "is 'derived', but check 'enum-members' is of kind 'source'"),
        ({"kind": "rumour"}, "kind: Input should be"),
        ({"colour": "red"}, "colour: Extra inputs are not permitted"),
        ({"statement": {"en": "two"}}, "statement.zh: Field required"),
        ({"correction": {"en": "{size}", "zh": "{size}"}}, r"correction: \{size\} is not given"),
        ({"also": [{"check": {"name": "nope"}, "expect": {"a": 1}}]}, "also.0: check: unknown check 'nope'"),
    ],
)
def test_an_entry_that_cannot_be_used(tmp_path: Path, change: dict[str, Any], text: str) -> None:
    path = write(tmp_path, changed(**change))
    with pytest.raises(ClaimError, match=text) as error:
        load([path])
    assert str(error.value).startswith(f"{path}: X-1: ")


def test_an_id_used_twice_names_both_files(tmp_path: Path) -> None:
    first, second = write(tmp_path, GOOD), write(tmp_path, GOOD, name="y.yaml")
    with pytest.raises(ClaimError, match=f"{second}: X-1: this id is already used in {first}"):
        load([first, second])


@pytest.mark.parametrize("text", ["claims: 3", "[]", "claims: [1]", "a: [b", "other: []", ""])
def test_a_file_that_is_no_claim_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ClaimError, match=str(path)):
        load([path])


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ClaimError, match="no such claim file"):
        load([tmp_path / "none.yaml"])


def test_the_projects_files_load_with_every_kind_and_both_languages() -> None:
    claims = load(FILES)
    assert {c.kind for c in claims} == {check.kind for check in CHECKS.values()}
    assert {c.place.document for c in claims} == {"adr-0010", "adr-0011", "learning", "rules"}
    assert [c.id for c in claims if not c.statement.en.strip() or not c.statement.zh.strip()] == []


def test_every_check_is_used_by_a_claim() -> None:
    used = {part.check["name"] for claim in load(FILES) for part in claim.parts}
    assert sorted(CHECKS.keys() - used) == []


def test_the_guide_is_in_step_with_the_checks() -> None:
    text = (ROOT / "config" / "claims" / "README.md").read_text(encoding="utf-8")
    assert text == guide(), "run `python -m adrbench.claims.guide > config/claims/README.md`"
    assert [name for name, check in CHECKS.items() if not check.function.__doc__] == []
