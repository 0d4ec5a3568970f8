"""A run is interrupted at every stage, by Ctrl-C, by SIGTERM and by kill -9, on real servers: nothing stays.

SIGINT and SIGTERM go to the whole process group, as a terminal and a batch system send them; SIGKILL to Snakemake
alone, whose shells and jobs then live on. The run that completes what all of these left is the one at the end of
test_faults_random_kill.py. Run by ``make test-faults``; two of its cases are in tests/e2e, so in every ``make test``.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from adrbench.serve.guardian import descendants
from faults_memory import Segments
from faults_scene import Job, R, become_reaper, digests, environment, reap, wait_gone

pytestmark = pytest.mark.faults

# (target, log of its job, file to watch, text that says how far the job is)
STARTING = "Initializing a V1 LLM"
# From the last stage of the workflow to the first: a case removes what its job made, and what others rest on it would
# be made again in their runs, beside their own results.
STAGES = {
    "profile, in a window": (f"{R}/profile/auto.json", "profile/auto", "logs/cpu/profile/auto.log", "ready after"),
    "eval, before ready": (f"{R}/eval/auto.json", "eval/auto", f"{R}/eval/auto/server/server.log", STARTING),
    "eval, while asking": (f"{R}/eval/auto.json", "eval/auto", "logs/cpu/eval/auto.log", "questions of"),
    "integrate, before ready": (
        f"{R}/integrate/L3.json",
        "integrate/L3",
        f"{R}/integrate/L3/server/server.log",
        STARTING,
    ),
    "serve, before ready": (
        f"{R}/serve/auto/r1/short.json",
        "serve/auto-r1",
        f"{R}/serve/auto/r1/server/server.log",
        STARTING,
    ),
    "serve, while loading": (
        f"{R}/serve/auto/r1/short.json",
        "serve/auto-r1",
        f"{R}/serve/auto/r1/server/client.log",
        "--- short",
    ),
    "ceiling": (f"{R}/ceiling.json", "ceiling", "logs/cpu/ceiling.log", "working sets"),
    "model": (f"{R}/model.json", "model", "logs/cpu/model.log", "converted"),
    "kernels": (f"{R}/kernels.json", "kernels", "logs/cpu/kernels.log", "proved"),
    "device": (f"{R}/device.json", "device", "logs/cpu/device.log", "asking"),
}
SIGNALS = {
    "Snakemake SIGINT (Ctrl-C)": (signal.SIGINT, True),
    "Snakemake SIGTERM": (signal.SIGTERM, True),
    "Snakemake SIGKILL": (signal.SIGKILL, False),
}


def heed_ctrl_c() -> None:
    """A shell ignores SIGINT for what it starts in the background, these tests perhaps, and so would Snakemake."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def unlock(folder: Path, segments: Segments) -> None:
    """As the start of the next run does, which also sweeps what a killed Snakemake left in the temporary folder."""
    command = segments.command([sys.executable, "-m", "adrbench.locks"])
    subprocess.run(command, cwd=folder, env=environment(), check=True)


@pytest.mark.parametrize("fault", SIGNALS)
@pytest.mark.parametrize("stage", STAGES)
def test_interrupted_stage_leaves_nothing(work, workflow, segments: Segments, case, note, stage, fault):
    folder, values = work
    case(fault, stage)
    target, log, watched, text = STAGES[stage]
    number, group = SIGNALS[fault]
    own = (target.removesuffix(".json"), *(("models/",) if stage == "model" else ()))
    own = (f"{R}/serve/auto/r1",) if stage.startswith("serve") else own
    (folder / target).unlink(missing_ok=True)
    (folder / watched).unlink(missing_ok=True)
    become_reaper()
    before, others = set(descendants(os.getpid())), digests(folder, own)
    said = folder / "snakemake.log"
    with open(said, "wb") as stream:
        command = segments.command(workflow(folder, values, target))
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment(),
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=heed_ctrl_c,
        )
    job = Job(process, said)
    job.wait_for(folder / watched, re.escape(text))
    if group:
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    job.finish(120)
    left = wait_gone(before, 60)
    reap(process.pid)
    assert left == []
    unlock(folder, segments)
    note("asserted", f"no process; {segments.free()}")
    assert not (folder / target).exists()
    assert digests(folder, own) == others
    note("asserted", "other results untouched")
    if number != signal.SIGTERM:  # it ends the `tee` that keeps the log, too
        told = (folder / f"logs/cpu/{log}.log").read_text(errors="replace")
        line = re.search(
            r"adrbench [\w.]+: interrupted by \w+; nothing was recorded, a rerun starts this job afresh", told
        )
        assert line, told[-2000:]
        note("said", line[0])
    note("asserted", "rerun: one on what all interrupts left (random kills)")
