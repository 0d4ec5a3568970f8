"""Evidence: written whole or not at all, refused when damaged or unknown, and tied to its raw files."""

from __future__ import annotations

import json

import pytest
from adrbench import evidence
from adrbench.evidence import Evidence, EvidenceError

DOCUMENT = Evidence(stage="serve", platform="cpu", arm="auto", round=1, started_at="a", finished_at="b")


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "short.json"
    folder = evidence.raw_folder(file)
    folder.mkdir()
    (folder / "bench.json").write_text("{}")
    evidence.write(file, DOCUMENT.model_copy(update={"files": evidence.digest_raw(file, ["bench.json"])}))
    return file


def test_round_trip(path):
    document = evidence.read(path)
    assert document.model_copy(update={"files": {}}) == DOCUMENT
    assert evidence.verify_files(path) == []


def test_one_flipped_byte_in_a_raw_file_is_named(path):
    raw = evidence.raw_folder(path) / "bench.json"
    raw.write_text("[}")
    assert evidence.verify_files(path) == [f"{raw}: changed since it was measured"]
    raw.unlink()
    assert evidence.verify_files(path) == [f"{raw}: missing"]


DAMAGED = {
    "truncated": (lambda t: t[: len(t) // 2], "not valid JSON"),
    "newer": (lambda t: t.replace('"schema_version": 1', '"schema_version": 2'), "schema_version is 2"),
    "no-version": (lambda t: "[]", "schema_version is None"),
    "unknown-key": (lambda t: json.dumps({**json.loads(t), "winner": "us"}), "winner"),
    "unknown-stage": (lambda t: t.replace('"serve"', '"guess"'), "stage"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_evidence_is_refused(path, case):
    damage, text = DAMAGED[case]
    path.write_text(damage(path.read_text()))
    with pytest.raises(EvidenceError, match=text) as caught:
        evidence.read(path)
    assert str(path) in str(caught.value)


def test_missing_evidence_is_named(tmp_path):
    with pytest.raises(EvidenceError, match=r"nothing.json: no such evidence"):
        evidence.read(tmp_path / "nothing.json")


def test_not_a_number_is_never_written(tmp_path):
    measured = {"a": [1.0, {"x": float("nan")}], "b": float("inf")}
    with pytest.raises(EvidenceError, match=r"a\.json: measured\.a\.1\.x is nan: not JSON compliant"):
        evidence.write(tmp_path / "a.json", DOCUMENT.model_copy(update={"measured": measured}))
    assert list(tmp_path.iterdir()) == []


def test_a_wall_clock_that_is_set_does_not_end_a_job_before_it_began(monkeypatch):
    from datetime import datetime, timedelta

    class Set(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz) - timedelta(hours=2)

    began = evidence.now()
    monkeypatch.setattr(evidence, "datetime", Set)
    assert datetime.fromisoformat(evidence.now()) >= datetime.fromisoformat(began)


def test_canonical_text_does_not_depend_on_the_order_of_keys():
    assert evidence.canonical({"b": 1, "a": [1, 2]}) == evidence.canonical({"a": [1, 2], "b": 1})
    assert evidence.canonical([1, 2]) != evidence.canonical([2, 1])


def test_digest_of_code_sees_contents_and_names(tmp_path):
    (tmp_path / "a.py").write_text("x = 1")
    first = evidence.digest_tree(tmp_path)
    (tmp_path / "notes.md").write_text("not code")
    assert evidence.digest_tree(tmp_path) == first
    (tmp_path / "a.py").write_text("x = 2")
    second = evidence.digest_tree(tmp_path)
    (tmp_path / "a.py").rename(tmp_path / "b.py")
    assert len({first, second, evidence.digest_tree(tmp_path)}) == 3
