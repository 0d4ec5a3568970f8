"""Faults that the workflow meets between jobs: damaged evidence, a second Snakemake. Real Snakemake, the real rules,
decide stage; the measuring jobs are those of the miniature (tests/workflow/miniature.py), whose evidence
is a function of the specification but for the time of its making."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from adrbench.paths import ROOT
from adrbench.serve.guardian import descendants
from faults_scene import R, become_reaper, cells, digests, environment, wait_gone

sys.path.insert(0, str(ROOT / "tests/workflow"))
from miniature import Miniature

DECIDED = f"{R}/decide/adr0010.json"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A finished miniature of two arms, up to the decision."""
    found = Miniature(tmp_path_factory.mktemp("miniature"), {"base": {}, "fast": {"rate": 62.0}}, rounds=1)
    found.decision("adr0010")
    done = found(DECIDED)
    assert done.returncode == 0, done.stderr[-4000:]
    return found


def evidence_digests(made: Miniature) -> dict[str, str]:
    """All evidence but what carries the time of its making."""
    return digests(made.work, (f"{R}/decide", f"{R}/noise_floor"))


CUT = {
    "serve": f"{R}/serve/fast/r1/short.json",
    "eval": f"{R}/eval/fast.json",
}
# One of them in every `make test`: each costs two runs of Snakemake.
STAGES = ["serve", *(pytest.param(stage, marks=pytest.mark.faults) for stage in ("eval",))]


@pytest.mark.parametrize("stage", STAGES)
def test_truncated_evidence(made, case, note, stage):
    """Cut in the middle; the job that reads it says which file, and the file's own job makes it again."""
    case("evidence truncated", f"after {stage}", "miniature")
    name, target = CUT[stage], DECIDED
    path, before = made.work / name, evidence_digests(made)
    whole, told = path.read_bytes(), cells(path)
    (made.work / target).unlink()
    path.write_bytes(whole[: len(whole) // 2])
    done = made(target)
    said = done.stdout + done.stderr
    assert done.returncode == 1
    assert f"{name}: not valid JSON" in said
    assert "delete it and rerun its job" in said
    note("said", said[said.find(name) :].splitlines()[0])
    assert not (made.work / target).exists()
    path.unlink()
    others = {key: value for key, value in before.items() if key != name}
    assert evidence_digests(made) == others
    made.started()
    assert made(target).returncode == 0
    note("asserted", "other results untouched; rerun: same evidence, same deterministic cells")
    assert made.started()[0].split()[0] == stage
    assert set(evidence_digests(made)) == set(before)
    assert cells(path) == told


@pytest.mark.faults
def test_two_snakemakes_at_once(made, case, note):
    """The second is refused by Snakemake's lock, and `make`'s unlocking leaves a living run's lock alone."""
    case("a second Snakemake in the folder", "workflow", "miniature")
    become_reaper()
    before, processes = evidence_digests(made), set(descendants(os.getpid()))
    (made.work / DECIDED).unlink()
    command = [sys.executable, "-m", "snakemake", "-s", str(ROOT / "Snakefile"), "-d", str(made.work), "--cores", "1"]
    values = ["--configfile", str(ROOT / "config/config.yaml"), str(made.folder / "values.yaml")]
    first = subprocess.Popen([*command, DECIDED, *values], cwd=ROOT, env=environment(), stderr=subprocess.DEVNULL)
    try:
        locks = made.work / ".snakemake/locks"
        while not (locks.is_dir() and any(locks.iterdir())):
            assert first.poll() is None
            time.sleep(0.01)
        first.send_signal(signal.SIGSTOP)
        second = made(DECIDED)
        assert second.returncode == 1
        assert "cannot be locked" in second.stderr
        free = subprocess.run(
            [sys.executable, "-m", "adrbench.locks"], cwd=made.work, env=environment(), capture_output=True, text=True
        )
        assert free.returncode == 1
        assert "is already running here; wait for it, or end it by Ctrl-C" in free.stderr
        note("said", free.stderr)
        assert any(locks.iterdir())
    finally:
        first.send_signal(signal.SIGCONT)
    assert first.wait(300) == 0
    assert (made.work / DECIDED).is_file()
    assert evidence_digests(made) == before
    assert wait_gone(processes, 0) == []
    note("asserted", "first run completes; same evidence; no process")
