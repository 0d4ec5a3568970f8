"""The frame of a job: refusals are recorded, signals end it, a full disk is said, the workflow's end ends it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from adrbench.serve.process import job_environment
from waiting import until

PROGRAM = """
import sys, time
from adrbench import evidence
from adrbench.evidence import EvidenceError
from adrbench.job import JobError, run, say

def work(spec, output):
    say("working")
    if spec.get("refuse"):
        raise JobError("no-sense", "spec.refuse: true; leave it out")
    if spec.get("damaged"):
        raise EvidenceError("model.json: not valid JSON (...); delete it and rerun its job")
    if spec.get("fail"):
        raise ZeroDivisionError("oops")
    time.sleep(spec.get("sleep", 0))
    filler = {"x": "y" * spec.get("bytes", 10)}
    now = evidence.now()
    times = {"started_at": now, "finished_at": now}
    evidence.write(output, evidence.Evidence(stage="serve", platform="cpu", measured=filler, **times))

run("serve", work)
"""


def start(spec: dict, output: Path, **options) -> subprocess.Popen:
    command = [
        sys.executable,
        "-c",
        PROGRAM,
        "--spec",
        json.dumps({"platform": "cpu", **spec}),
        "--output",
        str(output),
    ]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=job_environment(), **options
    )


@pytest.fixture
def output(tmp_path) -> Path:
    return tmp_path / "results/cpu/serve/auto.json"


def rejected(tmp_path: Path) -> list[dict]:
    return [json.loads(path.read_text()) for path in (tmp_path / "results/cpu/rejected").glob("*.json")]


def test_success(output, tmp_path):
    process = start({"arm": {"name": "auto"}, "round": 2}, output)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "[serve auto 2] working" in out
    assert output.is_file()
    assert rejected(tmp_path) == []


def test_a_refusal_is_one_line_and_recorded(output, tmp_path):
    process = start({"refuse": True, "arm": {"name": "auto"}}, output)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert err.strip() == "adrbench serve: refused (no-sense): spec.refuse: true; leave it out"
    assert [(r["reason"], r["arm"]) for r in rejected(tmp_path)] == [("no-sense", "auto")]
    assert not output.exists()


def test_damaged_evidence_is_refused_in_one_line(output, tmp_path):
    process = start({"damaged": True}, output)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    text = "adrbench serve: refused (evidence): model.json: not valid JSON (...); delete it and rerun its job"
    assert err.strip() == text
    assert [r["reason"] for r in rejected(tmp_path)] == ["evidence"]


def test_an_unexpected_error_keeps_its_traceback(output, tmp_path):
    process = start({"fail": True}, output)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "ZeroDivisionError: oops" in err
    assert rejected(tmp_path)[0]["reason"] == "error"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_job_without_a_record(output, tmp_path, number):
    process = start({"sleep": 60}, output)
    process.stdout.readline()
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"interrupted by {number.name}" in err
    assert rejected(tmp_path) == []
    assert not output.exists()


@pytest.mark.parametrize(
    ("argv", "is_it"),
    [
        (["/usr/bin/python", "/env/bin/snakemake", "--cores", "1"], True),
        (["python", "-m", "snakemake", "--cores"], True),
        (["/usr/bin/bash", "-c", "PYTHONPATH=/home/me/snakemake-adr/pythonpath python -m adrbench.serve"], False),
        (["vim", "notes.md"], False),
    ],
)
def test_snakemake_is_told_from_a_shell_that_names_it(argv, is_it):
    from adrbench.job import _is_snakemake

    assert _is_snakemake(argv) == is_it


def test_a_missing_program_is_not_called_a_full_disk(output):
    from adrbench.job import _remedy

    assert "exists" in _remedy(FileNotFoundError(2, "No such file or directory"))
    assert "free space" in _remedy(OSError(28, "No space left on device"))


def test_the_end_of_the_workflow_ends_the_job(output):
    """kill -9 of Snakemake leaves its shell running; the job must notice by itself."""
    code = """
import subprocess, sys
child = subprocess.Popen(["sh", "-c", "exec 3>&1; true; " + sys.argv[1] + " ; true"])
print(child.pid, flush=True)
child.wait()
"""
    import shlex

    inner = shlex.join(
        [sys.executable, "-c", PROGRAM, "--spec", '{"platform":"cpu","sleep":60}', "--output", str(output)]
    )
    workflow = output.parent / "snakemake"
    workflow.parent.mkdir(parents=True)
    workflow.write_text(code)
    process = subprocess.Popen(
        [sys.executable, str(workflow), inner], stdout=subprocess.PIPE, text=True, env=job_environment()
    )
    assert process.stdout.readline().strip().isdigit()
    assert "working" in process.stdout.readline()
    process.kill()
    process.wait()
    named = ["pgrep", "-f", str(output)]
    assert until(lambda: not subprocess.run(named, capture_output=True).stdout), "the job, or its shell, goes on"


@pytest.mark.skipif(os.geteuid() != 0, reason="a small file system of its own needs root")
def test_a_full_disk_is_said_and_leaves_nothing_half_written(tmp_path):
    disk = tmp_path / "results"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"no tmpfs here: {mounted.stderr.strip()}")
    try:
        output = disk / "cpu/serve/auto.json"
        process = start({"bytes": 100_000}, output)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 1
        assert "No space left on device" in err
        assert "free space, then rerun" in err
        assert [p.name for p in disk.rglob("*") if p.is_file() and "rejected" not in str(p)] == []
        subprocess.run(["mount", "-o", "remount,size=1m", str(disk)], check=True)
        process = start({"bytes": 100_000}, output)
        process.communicate(timeout=60)
        assert process.returncode == 0
    finally:
        subprocess.run(["umount", str(disk)], check=True)
