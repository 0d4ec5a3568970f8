"""The profile that an H200 took of a served Qwen3-8B shape, read again with today's code from its committed trace.

Random weights, one arm, one profile: cannot prove anything about answers or other backends.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from adrbench.evidence import Evidence, read
from adrbench.model import shapes
from adrbench.profile.read_again import NOTE, main, read_again

FOLDER = Path(__file__).parents[2] / "docs/evidence/h200/profile"


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    model = shapes.write("qwen3-8b", tmp_path_factory.mktemp("model") / "qwen3-8b")
    return read_again(FOLDER / "triton-attn.json", model, FOLDER / "ceiling.json")


def test_steps_and_shares_of_the_phases(found: Evidence) -> None:
    phases = found.measured["phases"]
    assert {name: row["steps"] for name, row in phases.items()} == {"prefill": 2, "mixed": 8, "decode": 63}
    assert {name: row["share"] for name, row in phases.items()} == pytest.approx(
        {"prefill": 0.120, "mixed": 0.739, "decode": 0.141}, abs=0.001
    )
    assert found.measured["between_steps_s"] < 0.01, "the device's steps follow each other"


def test_graphs_keep_the_device_busy_in_decode(found: Evidence) -> None:
    device = found.measured["phases"]["decode"]["device"]
    assert device["busy_share"] == pytest.approx(0.968, abs=0.001)
    assert (device["kernels"], device["launches"]["graph"]) == (33235, 63)
    assert device["cycle"]["steps"] == 55


def test_launching_is_no_more_than_the_device_idled(found: Evidence) -> None:
    """As measured the evidence says 35 %: kernels x launch latency."""
    measured = read(FOLDER / "triton-attn.json").measured["bounds"]["decode"]["shares"]["launch"]
    assert measured["median"] == pytest.approx(0.351, abs=0.001)
    shares = found.measured["bounds"]["decode"]["shares"]
    assert 0.015 < shares["launch"]["low"] < shares["launch"]["high"] < 0.032
    assert shares["host"]["high"] < 0.002
    assert "launch and host by the device's idle time" in found.measured["bounds"]["decode"]["rule"]


def test_the_counters_agree_once_both_count_alike(found: Evidence) -> None:
    checks = {row["check"]: row for row in found.measured["checks"]}
    assert {row["verdict"] for row in checks.values()} == {"within"}
    assert checks["prefill"]["ratio"] == pytest.approx(1, abs=0.002)
    assert checks["decode"]["ratio"] == pytest.approx(1, abs=0.002)


def test_verdicts_name_the_attention_kernels(found: Evidence) -> None:
    """Products run at their ceiling in prefill; attention at a tenth of it takes most of the time."""
    bounds = found.measured["bounds"]
    assert {phase: row["bound"] for phase, row in bounds.items()} == {"prefill": "none", "decode": "none"}
    assert bounds["decode"]["shares"]["bandwidth"]["median"] == pytest.approx(0.576, abs=0.001)
    prefill = {row["class"]: row for row in bounds["prefill"]["classes"]}
    assert prefill["attention"]["share"] == pytest.approx(0.633, abs=0.001)
    assert prefill["attention"]["reached"]["median"] == pytest.approx(0.091, abs=0.001)
    assert prefill["gemm"]["reached"]["median"] == pytest.approx(1.016, abs=0.001)
    assert all("another attention backend" in row["rule"] for row in bounds.values())


def test_every_kernel_that_takes_time_has_a_class(found: Evidence) -> None:
    for row in found.measured["phases"].values():
        assert row["device"]["classes"].get("other", 0.0) == 0.0, row["device"]["biggest_other"]


def test_the_committed_reading_is_todays(found: Evidence) -> None:
    committed = read(FOLDER / "read_again.json")
    assert NOTE in committed.notes
    assert same(committed.measured, json.loads(json.dumps(found.measured))) == []


def same(one: Any, other: Any, where: str = "") -> list[str]:
    """Where two readings differ, beyond the last digits of a sum."""
    if isinstance(one, dict) and isinstance(other, dict):
        keys = sorted(one.keys() | other.keys())
        return [line for key in keys for line in same(one.get(key), other.get(key), f"{where}.{key}")]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return [line for i, pair in enumerate(zip(one, other, strict=True)) for line in same(*pair, f"{where}[{i}]")]
    if isinstance(one, float) and isinstance(other, (float, int)):
        return [] if one == pytest.approx(other, rel=1e-9, abs=1e-9) else [f"{where}: {one} and {other}"]
    return [] if one == other else [f"{where}: {one} and {other}"]


def test_the_command_reads_the_committed_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output, model = tmp_path / "again.json", tmp_path / "model"
    shapes.write("qwen3-8b", model)
    words = ["read_again", str(FOLDER / "triton-attn.json"), str(output), "--model", str(model)]
    monkeypatch.setattr("sys.argv", [*words, "--ceiling", str(FOLDER / "ceiling.json")])
    main()
    assert read(output).measured["phases"]["decode"]["steps"] == 63


def test_a_changed_raw_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "triton-attn.json").write_bytes((FOLDER / "triton-attn.json").read_bytes())
    monkeypatch.setattr("sys.argv", ["read_again", str(tmp_path / "triton-attn.json"), str(tmp_path / "out.json")])
    with pytest.raises(SystemExit, match=r"windows\.json: missing"):
        main()
    assert not (tmp_path / "out.json").exists()
