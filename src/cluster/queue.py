"""What squeue and scancel say of one working folder's jobs."""

from __future__ import annotations

import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

# `slurm-jobname-prefix` of profiles/slurm/config.yaml.
PREFIX = "adrbench"
TIMEOUT_S = 30.0


class QueueError(RuntimeError):
    """The queue did not answer; the text says what was asked and what came back."""


@dataclass(frozen=True)
class Job:
    """One job of the queue."""

    id: str
    name: str
    state: str
    folder: str
    comment: str


def _run(*argv: str) -> str:
    try:
        # Names and folders of jobs are of any bytes; so escaped, a folder is found by its path.
        done = subprocess.run(argv, capture_output=True, text=True, errors="surrogateescape", timeout=TIMEOUT_S)
    except FileNotFoundError:
        raise QueueError(f"{argv[0]} is not on PATH: call this on a host of the queue, or load its module") from None
    except subprocess.TimeoutExpired:
        raise QueueError(f"{argv[0]} did not answer within {TIMEOUT_S:.0f} s") from None
    if done.returncode:
        raise QueueError(f"{' '.join(argv)} ended with code {done.returncode}: {done.stderr.strip()[:300]}")
    return done.stdout


def parse(text: str) -> list[Job]:
    """Lines of ``squeue --format '%i|%j|%T|%Z|%k'``; a folder or a comment may itself hold a bar."""
    found = []
    for line in text.splitlines():
        if line.count("|") < 4:
            continue
        job, name, state, rest = line.split("|", 3)
        folder, _, comment = rest.rpartition("|")
        found.append(Job(job.strip(), name.strip(), state.strip(), folder.strip(), comment.strip()))
    return found


def jobs(folder: Path) -> list[Job]:
    """This user's jobs that a run in ``folder`` submitted and that have not ended.

    Raises:
        QueueError: squeue failed.
    """
    text = _run("squeue", "--noheader", "--me", "--format", "%i|%j|%T|%Z|%k")
    real = folder.resolve()
    return [job for job in parse(text) if job.name.startswith(f"{PREFIX}_") and Path(job.folder).resolve() == real]


def cancel(folder: Path, limit_s: float = 90.0, poll_s: float = 1.0) -> list[Job]:
    """Cancel all jobs of ``folder`` and wait until the queue has ended them; returns those that were there.

    Raises:
        QueueError: the queue fails, or jobs are still there after ``limit_s``.
    """
    found = left = jobs(folder)
    deadline = time.monotonic() + limit_s
    while left:
        _run("scancel", *(job.id for job in left))
        time.sleep(poll_s)
        left = jobs(folder)
        if left and time.monotonic() > deadline:
            names = ", ".join(f"{job.id} ({job.state})" for job in left)
            raise QueueError(f"jobs {names} are still in the queue {limit_s:.0f} s after scancel; end them by hand")
    return found


def wait(folder: Path, limit_s: float, poll_s: float = 5.0) -> None:
    """Wait until no job of ``folder`` is left.

    Raises:
        QueueError: some are left after ``limit_s``, or the queue fails.
    """
    deadline = time.monotonic() + limit_s
    while left := jobs(folder):
        if time.monotonic() > deadline:
            raise QueueError(f"jobs {', '.join(job.id for job in left)} are still running after {limit_s:.0f} s")
        time.sleep(poll_s)
