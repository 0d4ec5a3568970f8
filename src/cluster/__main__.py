"""Run the workflow on a queue, and stay with it.

    python -m adrbench.cluster [--orphans cancel|wait] [--profile FOLDER] TARGET... [-- SNAKEMAKE OPTIONS]

Snakemake's Slurm executor cancels its jobs on Ctrl-C only: SIGTERM waits, SIGHUP and SIGKILL leave them running,
and a rerun submits duplicates that write the same files. When its status command fails once too often it forgets
its jobs and waits for ever. So this process

* ends, or waits for, what an earlier run of this folder left in the queue, and only then frees the folder's lock;
* turns SIGINT, SIGTERM and SIGHUP into the one signal that cancels, and then asks the queue what is left;
* ends Snakemake when it is itself killed (the kernel signals it), and cancels when Snakemake is;
* notices when Snakemake waits for jobs that the queue no longer has, ends it and starts again where it was.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from adrbench import locks
from adrbench.cluster import queue
from adrbench.job import PR_SET_PDEATHSIG, prctl
from adrbench.paths import ROOT
from adrbench.serve.guardian import children

POLL_S = 2.0
# Snakemake cancels its jobs within ten seconds of SIGINT.
GRACE_S = 60.0
HANG_S = 180.0


def tell(text: str) -> None:
    print(f"cluster: {text}", file=sys.stderr, flush=True)


def clear(folder: Path, orphans: str, wait_s: float) -> None:
    """Deal with what an earlier run left: its jobs first, its lock after that.

    Raises:
        QueueError: jobs cannot be ended, or do not end in time.
        SystemExit: another run works in this folder.
    """
    locks.refuse_if_used(folder)
    if found := queue.jobs(folder):
        names = ", ".join(f"{job.id} ({job.comment or job.name}, {job.state})" for job in found)
        tell(f"an earlier run left {len(found)} jobs in the queue: {names}")
        if orphans == "wait":
            tell("waiting for them")
            queue.wait(folder, wait_s)
        else:
            queue.cancel(folder)
            tell("they are cancelled")
    locks.free(folder)


def command(arguments: argparse.Namespace) -> list[str]:
    """The argv of Snakemake."""
    return [
        sys.executable, "-m", "snakemake", "-s", str(arguments.snakefile),
        "--workflow-profile", str(arguments.profile), *arguments.targets, *arguments.snakemake,
    ]  # fmt: skip


def swallowed(words: Sequence[str]) -> list[str]:
    """Words that Snakemake would take for entries of ``--config``: it ends in a traceback over a target among them."""
    found, inside = [], False
    for word in words:
        if word == "--":
            break
        if word.startswith("-"):
            inside = word in ("--config", "-C")
        elif inside and "=" not in word:
            found.append(word)
    return found


class Watch:
    """Whether Snakemake waits in silence for jobs that the queue no longer has."""

    def __init__(self, folder: Path, pid: int, limit_s: float):
        self.folder, self.pid, self.limit_s = folder, pid, limit_s
        self.since: float | None = None
        self.seen: tuple[str, int] | None = None

    def _log(self) -> tuple[str, int]:
        """Name and size of Snakemake's newest log: it grows whenever anything happens."""
        logs = sorted((self.folder / ".snakemake/log").glob("*.snakemake.log"))
        return (logs[-1].name, logs[-1].stat().st_size) if logs else ("", 0)

    def hangs(self, now: float) -> bool:
        """True when for ``limit_s`` seconds no job was queued, no child ran and the log did not grow."""
        try:
            busy = bool(queue.jobs(self.folder)) or bool(children(self.pid))
        except queue.QueueError as error:
            tell(f"{error}; asking again")
            busy = True
        log = self._log()
        if busy or log != self.seen or self.since is None:
            self.since, self.seen = now, log
        return now - self.since > self.limit_s


def end(process: subprocess.Popen[Any]) -> None:
    """SIGINT, which makes Snakemake cancel its jobs; SIGKILL when that does not end it."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        tell(f"Snakemake did not end within {GRACE_S:.0f} s of SIGINT: killed")
        process.kill()
        process.wait()


def watched(argv: list[str], folder: Path, hang_s: float) -> tuple[int, bool]:
    """Run Snakemake to its end: (its exit code, whether it hung). A signal to this process ends it first."""
    told: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: told.append(number))
    process = subprocess.Popen(
        argv, cwd=folder, start_new_session=True, preexec_fn=lambda: prctl(PR_SET_PDEATHSIG, signal.SIGINT)
    )
    watch = Watch(folder, process.pid, hang_s)
    while process.poll() is None:
        locks.own(folder)
        if told:
            tell(f"{signal.Signals(told[0]).name}: ending the run and its jobs")
            end(process)
            return 128 + told[0], False
        if watch.hangs(time.monotonic()):
            end(process)
            return 75, True
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(POLL_S)
    return process.returncode, False


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m adrbench.cluster", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("targets", nargs="*", help="targets of the workflow; none: the default ones")
    parser.add_argument("--orphans", choices=["cancel", "wait"], default="cancel", help="jobs of an earlier run")
    parser.add_argument("--wait-minutes", type=float, default=240, help="longest wait for them")
    parser.add_argument("--snakefile", type=Path, default=ROOT / "Snakefile")
    parser.add_argument("--profile", type=Path, default=ROOT / "profiles/slurm")
    parser.add_argument("--hang-seconds", type=float, default=HANG_S, help="silence that counts as a hang")
    parser.add_argument("--restarts", type=int, default=1, help="new starts after a hang")
    words, extra = sys.argv[1:], []
    if "--" in words:
        cut = words.index("--")
        words, extra = words[:cut], words[cut + 1 :]
    if taken := swallowed(extra):
        parser.error(
            f"{taken[0]!r} would be read as an entry of --config, which are name=value; name targets before ` -- `: "
            f"python -m adrbench.cluster {taken[0]} -- --config name=value"
        )
    arguments = parser.parse_args(words)
    arguments.snakemake = extra
    folder = Path.cwd()
    try:
        for start in range(arguments.restarts + 1):
            clear(folder, arguments.orphans, arguments.wait_minutes * 60)
            code, hung = watched(command(arguments), folder, arguments.hang_seconds)
            if not hung:
                break
            tell(f"Snakemake waited for jobs that the queue no longer has (start {start + 1}): ended")
        if left := queue.cancel(folder):
            tell(f"cancelled {len(left)} jobs that the run left: {', '.join(job.id for job in left)}")
        locks.free(folder)
    except queue.QueueError as error:
        sys.exit(f"cluster: {error}")
    if code < 0:
        tell(f"Snakemake was ended by {signal.Signals(-code).name}; call this again to go on")
        code = 128 - code
    sys.exit(code)


if __name__ == "__main__":
    main()
