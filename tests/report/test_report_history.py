"""The history of verdicts, the mark of staleness, and the status command.

What this cannot prove: that a whole workflow marks what it made; tests/e2e runs one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from adrbench.decide.verdict import Verdict
from adrbench.evidence import EvidenceError, digest_file, write_json
from adrbench.paths import PYTHONPATH
from adrbench.report import history, stale, status
from adrbench.report.seal import SealSpec, seal


def verdict(example: ModuleType, word: str = "Proposed", digest: str = "1") -> Verdict:
    data = example.verdict("adr0011") | {"evidence": {"a.json": digest * 64}}
    data["status"] = {"word": word, "option": None, "text": {"en": word, "zh": word}}
    return Verdict.model_validate(data)


class TestHistory:
    def test_a_changed_verdict_keeps_the_earlier_one(self, example: ModuleType, tmp_path: Path) -> None:
        first = history.record(verdict(example), tmp_path)
        both = history.record(verdict(example, "Blocked", "2"), tmp_path)
        assert [entry.status.word for entry in both.entries] == ["Proposed", "Blocked"]
        assert both.entries[0] == first.entries[0]
        assert len({entry.evidence_digest for entry in both.entries}) == 2
        kept = json.loads((tmp_path / "adr0011/0001.json").read_text())
        assert kept["verdict"]["status"]["word"] == "Proposed"

    def test_the_same_verdict_is_not_repeated(self, example: ModuleType, tmp_path: Path) -> None:
        once = history.record(verdict(example), tmp_path)
        assert history.record(verdict(example), tmp_path) == once

    def test_new_evidence_for_the_same_status_is_an_entry(self, example: ModuleType, tmp_path: Path) -> None:
        history.record(verdict(example), tmp_path)
        assert len(history.record(verdict(example, digest="2"), tmp_path).entries) == 2

    def test_a_damaged_entry_is_named_and_kept(self, example: ModuleType, tmp_path: Path) -> None:
        history.record(verdict(example), tmp_path)
        damaged = tmp_path / "adr0011/0001.json"
        damaged.write_text("{")
        with pytest.raises(EvidenceError, match=r"0001.json: not an entry of a history .*move it away"):
            history.record(verdict(example, digest="2"), tmp_path)
        assert damaged.read_text() == "{"

    def test_the_command_writes_the_table(self, example: ModuleType, tmp_path: Path) -> None:
        write_json(tmp_path / "decide.json", verdict(example).model_dump(mode="json"))
        argv = [sys.executable, "-m", "adrbench.report.history", str(tmp_path / "decide.json")]
        argv += ["--store", str(tmp_path / "history"), "--output", str(tmp_path / "out.json")]
        subprocess.run(argv, check=True, env=os.environ | {"PYTHONPATH": str(PYTHONPATH)})
        assert history.read_history(tmp_path / "out.json")["entries"][0]["number"] == 1


TEXT = "# ADR 0011: x\n\n| a |\n|---|\n\ntext\n"


class TestMark:
    @pytest.mark.parametrize(("language", "word"), [("en", "**Stale.**"), ("zh", "已过期")])
    def test_a_mark_stands_below_the_title_and_comes_off(self, language: str, word: str) -> None:
        text = stale.marked(TEXT, ["a.json changed"], language)
        assert text.splitlines()[3].startswith(f"> {word}" if language == "en" else "> **Stale")
        assert "a.json changed" in text
        assert stale.unmarked(text) == TEXT
        assert stale.marked(text, [], language) == TEXT

    def test_a_mark_is_replaced_not_repeated(self) -> None:
        twice = stale.marked(stale.marked(TEXT, ["a"], "en"), ["b"], "en")
        assert twice.count(stale.BEGIN) == 1

    def test_many_changes_are_counted(self) -> None:
        assert "; 2 more" in stale.marked(TEXT, list("abcde"), "en")

    def test_the_time_of_the_file_stays(self, tmp_path: Path) -> None:
        path = tmp_path / "a.md"
        path.write_text(TEXT)
        os.utime(path, (1000, 1000))
        assert stale.mark_file(path, ["x changed"])
        assert path.stat().st_mtime == 1000
        assert not stale.mark_file(path, ["x changed"])


@pytest.fixture
def built(example: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Reports of one platform with their seal, and their published copies, made by the commands themselves."""
    monkeypatch.chdir(tmp_path)
    reports, specs = tmp_path / "reports/cpu", {}
    environment = os.environ | {"PYTHONPATH": str(PYTHONPATH)}
    for language, name in (("en", "adr0011.md"), ("zh", "adr0011.zh.md")):
        specs[language] = example.build(tmp_path, "adr0011", language)
        path = Path(specs["en"]["evidence"]["decide"])
        data = json.loads(path.read_text())
        evidence = [str(p) for p in (tmp_path / "results/cpu").rglob("*.json") if p.parent.name == "short"]
        evidence += [specs["en"]["evidence"]["device"], specs["en"]["evidence"]["eval"]["auto"]]
        data["evidence"] = {name: digest_file(Path(name)) for name in evidence}
        write_json(path, data)
    for language, name in (("en", "adr0011.md"), ("zh", "adr0011.zh.md")):
        argv = ["--spec", json.dumps(specs[language]), "--output", str(reports / name)]
        subprocess.run([sys.executable, "-m", "adrbench.report", *argv], check=True, env=environment)
    decision = tmp_path / "adr0011.yaml"
    decision.write_text("id: adr0011\n")
    parts = {"platform": "cpu", "adr": "adr0011", "decision_file": decision, "decide": {}, "lock": {}, "reports": specs}
    made = seal(SealSpec.model_validate(parts), reports)
    write_json(reports / "adr0011.seal.json", made.model_dump(mode="json"))
    texts = [str(reports / name) for name in made.texts]
    argv = [sys.executable, "-m", "adrbench.report.publish", *texts, "--to", str(tmp_path / "reports")]
    subprocess.run(argv, check=True, env=environment)
    return {"folder": tmp_path, "decision": decision, "device": Path(specs["en"]["evidence"]["device"])}


class TestStatus:
    def files(self, folder: Path) -> list[Path]:
        return [folder / "reports" / part / name for part in ("", "cpu") for name in ("adr0011.md", "adr0011.zh.md")]

    def test_unchanged_evidence_is_not_stale(self, built: dict[str, Any]) -> None:
        (found,) = status.refresh(Path("reports"))
        assert (found.word, found.changes) == ("Proposed", [])
        assert not [path for path in self.files(built["folder"]) if stale.BEGIN in path.read_text()]

    def test_changed_evidence_marks_every_copy_until_it_is_restored(self, built: dict[str, Any]) -> None:
        before = {path: path.read_text() for path in self.files(built["folder"])}
        original = built["device"].read_text()
        built["device"].write_text(original.replace("Example", "Another"))
        (found,) = status.refresh(Path("reports"))
        assert found.word == "Stale (was Proposed)"
        assert found.changes == [f"{built['device']} changed"]
        for path in before:
            assert "device.json changed" in path.read_text()
        built["device"].write_text(original)
        assert status.refresh(Path("reports"))[0].changes == []
        assert {path: path.read_text() for path in before} == before

    def test_missing_evidence_and_another_rule_are_changes(self, built: dict[str, Any]) -> None:
        built["device"].unlink()
        built["decision"].write_text("id: adr0011\nconfidence: 0.9\n")
        (found,) = status.states(Path("reports"))
        assert [text.rpartition("/")[2] for text in found.changes] == ["device.json is missing", "adr0011.yaml changed"]

    def test_a_published_report_of_another_platform_is_left_alone(self, built: dict[str, Any]) -> None:
        other = built["folder"] / "reports/adr0011.md"
        other.write_text(other.read_text().replace("`cpu`", "`h200`"))
        built["device"].unlink()
        status.refresh(Path("reports"))
        assert stale.BEGIN not in other.read_text()

    def test_the_command_lists_every_report(self, built: dict[str, Any]) -> None:
        built["device"].unlink()
        argv = [sys.executable, "-m", "adrbench.report.status"]
        done = subprocess.run(argv, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(PYTHONPATH)})
        assert done.returncode == 0, done.stderr
        assert "cpu       adr0011  Stale (was Proposed)" in done.stdout
        assert "device.json is missing" in done.stdout

    def test_locks_that_differ_are_told(self, built: dict[str, Any], example: ModuleType) -> None:
        folder = built["folder"] / "reports/cpu"
        data = json.loads((folder / "adr0011.seal.json").read_text())
        write_json(folder / "adr0010.seal.json", data | {"adr": "adr0010"})
        for adr, mechanism in (("adr0010", "priority"), ("adr0011", "flag")):
            write_json(folder / "lock" / adr / "lock.json", example.lock(adr) | {"mechanism": mechanism})
        (told,) = status.conflicts(status.states(Path("reports")))
        assert "adr0010 by priority CPU_ATTN, adr0011 by flag CPU_ATTN" in told
        assert "C14" in told

    def test_a_damaged_seal_is_named(self, built: dict[str, Any]) -> None:
        (built["folder"] / "reports/cpu/adr0011.seal.json").write_text("{")
        with pytest.raises(EvidenceError, match=r"adr0011.seal.json: not a seal"):
            status.states(Path("reports"))
