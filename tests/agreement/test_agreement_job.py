"""The two jobs over a server that answers like vLLM: what they write, and what they refuse."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from adrbench import evidence
from adrbench.agreement import __main__ as job
from adrbench.agreement import compare, text
from adrbench.agreement.replay import Replay, ask, parse_positions
from adrbench.agreement.spec import CompareSpec, ReplaySpec, parse_spec
from adrbench.audit.stages import Options, measured
from adrbench.job import JobError


def encode(words: str) -> list[int]:
    return [ord(c) for c in words]


@pytest.fixture
def replayed(tmp_path: Path, fake_server: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Replays one arm: ``replayed("auto", 1, shift=0.0)`` gives the path of its evidence."""
    monkeypatch.setattr(job, "encoder", lambda model: encode)

    def make(arm: str, round_number: int, shift: float = 0.0, **changes: Any) -> Path:
        seen: dict[str, Any] = {}

        @contextmanager
        def open_server(spec: Any, folder: Path, extra: list[str]) -> Iterator[Any]:
            seen["extra"] = extra
            yield fake_server(shift=shift)

        raw = {
            "platform": "cpu", "arm": {"name": arm}, "round": round_number, "server": {}, "model": str(tmp_path),
            "text": {"segments": 3, "tokens": 96, "seed": 5}, "top": 8,
        } | changes  # fmt: skip
        output = tmp_path / "agreement" / arm / f"r{round_number}.json"
        job.measure(raw, output, open_server)
        assert seen["extra"] == (["--max-num-batched-tokens", "64"] if changes.get("chunk_tokens") else [])
        return output

    return make


def test_a_replay_is_kept_with_its_digest(replayed: Any) -> None:
    path = replayed("auto", 1, chunk_tokens=64)
    document = evidence.read(path)
    assert document.stage == "agreement"
    assert document.measured["positions"] == 3 * 95
    assert evidence.verify_files(path) == []
    kept = Replay.load(evidence.raw_folder(path) / job.RAW)
    assert kept.top.shape == (3, 95, 8)
    assert any("max-num-batched-tokens 64" in note for note in document.notes)


def test_the_comparison_shows_the_control_and_the_arm(replayed: Any, tmp_path: Path) -> None:
    paths = {"auto": {1: replayed("auto", 1), 2: replayed("auto", 2)}, "odd": {1: replayed("odd", 1, shift=3.0)}}
    raw = {
        "platform": "cpu", "baseline": "auto", "edges": [32],
        "replays": {arm: {k: str(p) for k, p in rounds.items()} for arm, rounds in paths.items()},
    }  # fmt: skip
    output = tmp_path / "compare.json"
    compare.work(raw, output)
    arms = evidence.read(output).measured["arms"]
    assert arms["auto"]["buckets"]["all"]["kl_nats"]["value"] < 1e-6
    assert arms["odd"]["buckets"]["all"]["kl_nats"]["low"] > 0
    assert arms["odd"]["buckets"]["33-95"]["agreement"]["value"] < 1


@pytest.mark.parametrize(
    ("change", "named"),
    [({"top": 9}, "top"), ({"chunk_tokens": 64}, "chunk_tokens"), ({"text": {"segments": 3, "tokens": 96}}, "text")],
)
def test_replays_under_other_conditions_are_not_compared(replayed: Any, change: dict[str, Any], named: str) -> None:
    replays = {"auto": {1: str(replayed("auto", 1))}, "odd": {1: str(replayed("odd", 1, **change))}}
    with pytest.raises(JobError, match=named) as refused:
        compare.compared(CompareSpec(platform="cpu", baseline="auto", replays=replays))
    assert refused.value.reason == "not-comparable"


def test_changed_arrays_are_refused(replayed: Any) -> None:
    first, other = replayed("auto", 1), replayed("odd", 1)
    shutil.copy(evidence.raw_folder(first) / job.RAW, evidence.raw_folder(other) / job.RAW)
    other_text = json.loads(other.read_text())
    other_text["files"][job.RAW] = "0" * 64
    other.write_text(json.dumps(other_text))
    with pytest.raises(JobError, match="changed since it was measured"):
        compare.load(other)


def test_a_missing_token_is_refused(fake_server: Any) -> None:
    with pytest.raises(JobError, match="position 1: token"):
        ask(fake_server(drop=True), [1, 2, 3], 5, 10)


def test_a_shortened_prompt_is_refused(fake_server: Any) -> None:
    with pytest.raises(JobError, match="counted 2 prompt tokens, 3 were sent"):
        ask(fake_server(short=1), [1, 2, 3], 5, 10)


def test_infinite_values_are_refused() -> None:
    entry = {"2": {"logprob": float("-inf")}, "3": {"logprob": -1.0}}
    with pytest.raises(JobError, match="not finite"):
        parse_positions([None, entry], [1, 2], 1)


@pytest.mark.parametrize(("raw", "named"), [({"text": {"segments": 1, "tokens": 96}}, "text.segments"), ({}, "text")])
def test_a_bad_specification_names_its_key(raw: dict[str, Any], named: str) -> None:
    base = {"platform": "cpu", "arm": {"name": "a"}, "round": 1, "server": {}, "model": "m"}
    with pytest.raises(JobError, match=named):
        parse_spec(ReplaySpec, base | raw)


def test_the_text_is_the_same_every_time_and_grows_at_its_end() -> None:
    few, more = text.segments(5, 2, 300, encode), text.segments(5, 3, 300, encode)
    assert more[:2] == few
    assert [len(ids) for ids in more] == [300, 300, 300]
    assert text.segments(5, 1, 500, encode)[0][:300] == few[0]
    assert text.digest(few) != text.digest(more)


def test_told_facts_come_back_far_away() -> None:
    """A repeated sentence is there twice, and some stand more than half a segment apart."""
    words = "".join(map(chr, text.segments(5, 1, 12_000, encode)[0]))
    apart = []
    for paragraph in words.split("\n\n"):
        if "As was written above: " in paragraph:
            for sentence in paragraph.partition("above: ")[2].split(". "):
                apart.append(words.rfind(sentence.rstrip(".")) - words.find(sentence.rstrip(".")))
    assert len(apart) > 20
    assert max(apart) > 6_000
    assert min(apart) >= 0


def test_an_audit_computes_replays_and_comparison_again(replayed: Any, tmp_path: Path) -> None:
    """Right figures pass; one that was changed by hand is found."""
    first, other, output = replayed("auto", 1), replayed("odd", 1, shift=3.0), tmp_path / "compare.json"
    compare.work(
        {"platform": "cpu", "baseline": "auto", "replays": {"auto": {1: str(first)}, "odd": {1: str(other)}}}, output
    )
    for path in (first, other, output):
        checked = measured(path, Options())
        assert checked.findings == []
        assert checked.values >= 3
    document = json.loads(output.read_text())
    document["measured"]["arms"]["odd"]["buckets"]["all"]["kl_nats"]["value"] += 0.01
    output.write_text(json.dumps(document))
    assert "kl_nats" in str(measured(output, Options()).findings[0])
