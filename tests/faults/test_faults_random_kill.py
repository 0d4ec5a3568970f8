"""Twenty times ``kill -9`` at random moments of one run, each followed by a rerun: nothing is lost, nothing stays.

By turns only Snakemake is killed, and the whole process group with the jobs' shells and jobs in it: then nobody is
left who could clean up but the guardians. `--faults-seed N` chooses other moments.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from adrbench import evidence
from adrbench.archive.records import UNFINISHED, record_path
from adrbench.serve.guardian import descendants
from faults_configuration import TARGETS
from faults_memory import Segments
from faults_scene import R, become_reaper, cells, documents, environment, reap, start_seconds, wait_gone

pytestmark = pytest.mark.faults

KILLS = 20
# Seconds after the start of Snakemake; the finished run's own server start sets the scale.
EARLIEST_S = 1.0


def kept(folder: Path) -> dict[str, bytes]:
    """Evidence of jobs that ended: what a kill must neither lose nor change."""
    marks = folder / UNFINISHED  # outputs of jobs whose end Snakemake has not recorded: it makes them again
    names = [name for name in documents(folder) if not record_path(marks, name).is_file()]
    return {name: (folder / name).read_bytes() for name in names}


def half(folder: Path) -> list[str]:
    """Evidence that is not whole: no JSON of the schema, or raw files that are not those it was written with."""
    bad = []
    for path in (folder / R).rglob("*.json"):
        name = path.relative_to(folder).as_posix()
        is_target = any(name == f"{R}/{target}.json" for target in (*TARGETS, "device", "ceiling"))
        if is_target:
            try:
                bad += evidence.verify_files(path)
            except evidence.EvidenceError as error:
                bad.append(str(error))
    return bad


@pytest.mark.timeout(3600)
def test_twenty_random_kills(finished, work, workflow, segments: Segments, case, note, request):
    case(f"{KILLS} random kill -9 of Snakemake, alone and with its group", "workflow, all stages")
    (base, _), (folder, values) = finished, work
    seed = request.config.getoption("--faults-seed", 8)
    print(f"seed {seed}")
    choose = random.Random(seed)
    for target in TARGETS:  # all of the run is to be done again
        (folder / f"{R}/{target}.json").unlink(missing_ok=True)
    start_s = start_seconds(base)
    command = segments.command(workflow(folder, values, *(f"{R}/{target}.json" for target in TARGETS)))
    become_reaper()
    before, had = set(descendants(os.getpid())), {}
    for number in range(KILLS):
        moment = choose.uniform(EARLIEST_S, 2.0 * start_s)
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            process.wait(moment)
        except subprocess.TimeoutExpired:
            if number % 2:
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()
            process.wait()
        left = wait_gone(before, 60)
        reap(process.pid)
        assert left == [], f"kill {number} after {moment:.1f} s"
        locks = segments.command([sys.executable, "-m", "adrbench.locks"])
        subprocess.run(locks, cwd=folder, env=environment(), check=True)
        told = segments.free(early=True)
        assert half(folder) == [], f"kill {number} after {moment:.1f} s"
        now = kept(folder)
        assert {name: now.get(name) for name in had} == had, (
            f"kill {number} after {moment:.1f} s lost or changed a result"
        )
        had = now
    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=2000)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    assert documents(folder) == documents(base)
    for name in documents(base):
        assert evidence.verify_files(folder / name) == []
        if evidence.read(folder / name).stage != "profile" or "/profile/" in name:
            assert cells(folder / name) == cells(base / name), name
    assert wait_gone(before, 0) == []
    note("asserted", f"after each: no process, {told}, no half result, no result lost or changed")
    note("asserted", "at the end: same evidence, same deterministic cells as an undisturbed run")
