"""The script of a visit to a GPU host, with a stand-in for the interpreter: what it calls, ends and packs.

What it cannot show: Snakemake's own end on SIGINT (tests/faults), and a GPU host.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from adrbench.paths import ROOT

STAND_IN = """#!/bin/sh
echo "$@" >> calls
case "$*" in
*snakemake*) {snakemake} ;;
*merge*) {merge} ;;
*pack*) echo packed > "$(echo "$*" | sed 's/.*--output //')" ;;
esac
"""
FAILED = """cat <<END
Error in rule serve:
    jobid: 3
    output: results/cpu/serve/auto/r1/short.json
    log: logs/cpu/serve/auto-r1.log (check log file(s) for error details)
END
exit 1"""
# Ends by itself on SIGINT, as Snakemake does; shells of a test may ignore the signal, so it is asked for.
WAITS = "trap 'echo interrupted; exit 1' INT; while :; do sleep 0.1; done"
DEAF = "trap '' INT; while :; do sleep 0.1; done"


@pytest.fixture
def visit(tmp_path: Path):
    """A project that holds the script, a platform and a log; a function that runs the script there."""
    for name in ("benchmarks/pipeline_visit.sh", "config/platforms/cpu.yaml"):
        (tmp_path / name).parent.mkdir(parents=True)
        shutil.copy(ROOT / name, tmp_path / name)
    log = tmp_path / "logs/cpu/serve/auto-r1.log"
    log.parent.mkdir(parents=True)
    log.write_text("one\nthe reason why\n")

    def run(*arguments: str, snakemake: str = "exit 0", merge: str = "exit 0", **env: str):
        python = tmp_path / "python"
        python.write_text(STAND_IN.format(snakemake=snakemake, merge=merge))
        python.chmod(0o755)
        done = subprocess.run(
            ["bash", str(tmp_path / "benchmarks/pipeline_visit.sh"), *arguments],
            env=os.environ | {"PYTHON": str(python), "OUT": str(tmp_path / "out"), "GRACE": "2", "CORES": "3"} | env,
            capture_output=True,
            text=True,
            timeout=300,
        )
        calls = tmp_path / "calls"
        return done, calls.read_text().splitlines() if calls.is_file() else []

    return run


def test_a_whole_visit(visit, tmp_path):
    done, calls = visit("cpu", "30", "a.json", "b.json", MERGE="one.tar.xz two.tar.xz", DEVICES="2")
    assert done.returncode == 0, done.stderr
    assert calls == [
        "-m adrbench.archive merge one.tar.xz",
        "-m adrbench.archive merge two.tar.xz",
        "-m adrbench.locks",
        "-m snakemake --cores 3 --resources device=2 --keep-going --config platform=cpu -- a.json b.json",
        "-m adrbench.archive pack --without-models --incomplete --platform cpu --piece-size 15MiB "
        f"--output {tmp_path}/out/evidence.tar.xz",
    ]
    assert (tmp_path / "out/evidence.tar.xz").read_text() == "packed\n"
    with tarfile.open(tmp_path / "out/logs.tgz") as logs:
        assert logs.getnames() == ["logs/cpu/serve/auto-r1.log"]


def test_the_end_of_a_failed_jobs_log_is_shown(visit):
    done, calls = visit("cpu", "30", "a.json", snakemake=FAILED)
    assert done.returncode == 1
    assert "=== failed: logs/cpu/serve/auto-r1.log ends:\none\nthe reason why" in done.stdout
    assert "pack" in calls[-1]


def test_the_time_limit_interrupts_and_what_is_finished_is_packed(visit):
    done, calls = visit("cpu", "1", "a.json", snakemake=WAITS)
    assert done.returncode == 124
    assert "interrupted" in done.stdout
    assert "pack" in calls[-1]


def test_one_that_does_not_end_is_killed(visit):
    done, calls = visit("cpu", "1", "a.json", snakemake=DEAF)
    assert done.returncode == 124, done.stdout
    assert "pack" in calls[-1]


def test_a_conflict_of_evidence_stops_before_anything_runs(visit):
    done, calls = visit("cpu", "30", "a.json", MERGE="one.tar.xz", merge="exit 1")
    assert done.returncode == 125
    assert "one.tar.xz was not merged" in done.stderr
    assert len(calls) == 1


def test_devices_are_those_that_are_visible(visit):
    _, calls = visit("cpu", "30", "a.json", CUDA_VISIBLE_DEVICES="1,3")
    assert any("device=2" in call for call in calls)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["cpu", "30"], "2 arguments were given"),
        (["h900", "30", "a"], "'h900': config/platforms/h900.yaml does not exist; there are cpu.yaml"),
        (["cpu", "ten", "a"], "SECONDS is 'ten'"),
        (["cpu", "0", "a"], "SECONDS is '0'"),
    ],
)
def test_bad_arguments_are_named(visit, arguments, words):
    done, calls = visit(*arguments)
    assert done.returncode == 125
    assert words in done.stderr
    assert calls == []
