"""The dry run: what it plans on every platform, what it refuses, and that its shutdown check sees what is left.

The run itself is `make dry-run`; these tests start no server.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from adrbench import dry_run, evidence
from adrbench.evidence import Evidence
from adrbench.paths import ROOT

PLATFORMS = sorted(path.stem for path in (ROOT / "config/platforms").glob("*.yaml"))


@pytest.mark.parametrize("name", PLATFORMS)
def test_one_job_of_each_step_is_planned(name, tmp_path):
    folder = tmp_path / "dry run"
    targets = dry_run.prepare(name, folder)
    environment = os.environ | {"PYTHONPATH": str(ROOT / "pythonpath")}
    command = dry_run.workflow(targets, "-n", "--quiet", "rules", folder=folder)
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT, env=environment)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    jobs = {m[1]: int(m[2]) for m in re.finditer(r"^(\w+)\s+(\d+)$", done.stdout, re.MULTILINE)}
    # A shape's random weights have no accuracy to rehearse.
    wanted = ["device", "kernels", "model", "serve"] + ["eval"] * (len(targets) == 2)
    assert {rule: jobs[rule] for rule in (*wanted, "eval") if rule in jobs} == dict.fromkeys(wanted, 1)
    assert ("eval" in wanted) == (name not in ("h200-8b", "h200-27b"))


def test_the_folder_is_made_afresh(tmp_path):
    folder = tmp_path / "dry-run"
    dry_run.prepare("cpu", folder)
    (folder / "results").mkdir()
    dry_run.prepare("cpu", folder)
    assert not (folder / "results").exists()


def test_a_folder_of_somebody_else_is_left_alone(tmp_path):
    (tmp_path / "dry-run").mkdir()
    (tmp_path / "dry-run/thesis.txt").write_text("mine")
    with pytest.raises(SystemExit, match="was not made by a dry run"):
        dry_run.prepare("cpu", tmp_path / "dry-run")
    assert (tmp_path / "dry-run/thesis.txt").is_file()


def test_an_unknown_platform_is_named_with_those_that_exist(tmp_path):
    with pytest.raises(SystemExit, match=r"--platform dcu:.*dcu-bw"):
        dry_run.prepare("dcu", tmp_path / "dry-run")
    with pytest.raises(SystemExit, match=r"--platform H200:.*did you mean `h200`.*dcu-bw"):
        dry_run.prepare("H200", tmp_path / "dry-run")


@pytest.mark.parametrize("how", ["folder", "argument", "environment"])
def test_a_process_that_is_left_is_seen(how, tmp_path):
    folder = tmp_path / "dry-run"
    folder.mkdir()
    sleep = [sys.executable, "-c", "import time; print(1, flush=True); time.sleep(60)"]
    left = subprocess.Popen(
        [*sleep, str(folder)] if how == "argument" else sleep,
        cwd=folder if how == "folder" else Path("/"),
        env={"CACHE": str(folder)} if how == "environment" else {},
        stdout=subprocess.PIPE,
    )
    try:
        assert left.stdout
        assert left.stdout.readline()
        assert [line.partition(":")[0] for line in dry_run.left_behind(folder)] == [str(left.pid)]
    finally:
        left.kill()
        left.communicate()
    assert dry_run.left_behind(folder) == []


def test_steps_that_left_nothing_have_failed(tmp_path):
    found = dry_run.steps(["results/cpu/serve/auto/r1/short.json", "results/cpu/eval/auto.json"], tmp_path)
    assert found == dict.fromkeys(("clean build", "serve", "bench", "accuracy"))


def test_steps_speak_from_whole_evidence_only(tmp_path):
    targets = ["results/cpu/serve/auto/r1/short.json", "results/cpu/eval/auto.json"]
    when = {"started_at": evidence.now(), "finished_at": evidence.now()}
    contents = [
        {"resolved": {"vllm_version": "1.2", "attention_backend": "A"}, "measured": {"completed": 4}},
        {"resolved": {}, "measured": {"tasks": {"one": {}, "two": {}}}},
    ]
    for target, stage, content in zip(targets, ("serve", "eval"), contents, strict=True):
        path = tmp_path / target
        raw = evidence.raw_folder(path) / "raw.txt"
        raw.parent.mkdir(parents=True)
        raw.write_text("raw")
        files = evidence.digest_raw(path, ["raw.txt"])
        evidence.write(path, Evidence(stage=stage, platform="cpu", files=files, **content, **when))
    (tmp_path / "results/cpu/model.json").write_text("{}")
    found = dry_run.steps(targets, tmp_path)
    assert found["serve"] == "vLLM 1.2, A"
    assert (found["bench"], found["accuracy"]) == ("4 requests, all complete", "2 tasks, all answered")
    assert found["clean build"]
    raw.write_text("another")
    assert dry_run.steps(targets, tmp_path) == found | {"accuracy": None}


def test_random_weights_are_no_missing_accuracy(tmp_path):
    found = dry_run.steps(["results/h200-8b/serve/triton-attn/r1/1k-4k.json"], tmp_path)
    assert found["accuracy"] == "not asked: random weights"
    assert found["serve"] is None
