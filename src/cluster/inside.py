"""What a queued job's own Snakemake process does to end with its batch script.

    end_with_batch_script()

is called while the Snakefile is read. After ``scancel`` Slurm kills what it tracks; where it tracks by process tree
or group (no cgroups), a Snakemake that has lost its batch script's shell is out of reach and waits for ever.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path

from adrbench.job import PR_SET_PDEATHSIG, prctl


def end_with_batch_script(environment: Mapping[str, str] = os.environ) -> bool:
    """Ask the kernel to kill this process when its parent, a batch script's shell, ends; whether it was asked.

    Snakemake answers SIGTERM by waiting, so the signal is SIGKILL. A step's task is left alone: its parent is
    Slurm's own daemon, which ends it.
    """
    if "SLURM_JOB_ID" not in environment:
        return False
    parent = os.getppid()
    if parent == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        name = Path(f"/proc/{parent}/comm").read_bytes().strip()
    except OSError:
        return False
    if name.startswith(b"slurmstepd"):
        return False
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
    return True
