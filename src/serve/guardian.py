"""A supervisor that outlives its job by just long enough to leave nothing behind.

    python -m adrbench.serve.guardian --grace 15 [--scratch FOLDER --lock DESCRIPTOR] -- COMMAND...

runs COMMAND in a session of its own and ends it, with every descendant, when standard input
closes. The job holds the other end of that pipe, so *any* end of the job (return, exception,
signal, ``kill -9``) closes it. The guardian is a child subreaper: a vLLM EngineCore whose API
server was killed is re-parented here instead of to init, and so is always found.

It removes the command's scratch folder (``adrbench.scratch``) after the last process has ended.
The exit code is the command's (128 + signal number where a signal ended it). Standard library only.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from adrbench.job import PR_SET_CHILD_SUBREAPER, prctl
from adrbench.processes import stat

# Index of a process's number of threads in /proc/PID/stat, behind its name (proc(5): field 20).
THREADS = 17


# How long the guardian waits for a host that has no file or memory left to list its processes with.
UNREADABLE_S = 60.0


def _table() -> dict[int, list[int]]:
    """Parent -> living children, from /proc; a host in distress is asked again, as who is not listed is not ended.

    Raises:
        OSError: /proc could not be read for ``UNREADABLE_S`` seconds.
    """
    deadline = time.monotonic() + UNREADABLE_S
    while True:
        try:
            return _read_table()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _read_table() -> dict[int, list[int]]:
    table: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        fields = stat(name) if name.isdigit() else None
        # A leader whose other threads still end is a zombie already, yet holds its files, devices and memory.
        if fields and (fields[0] != "Z" or int(fields[THREADS]) > 1):
            table.setdefault(int(fields[1]), []).append(int(name))
    return table


def children(root: int) -> list[int]:
    """Process ids of the living children of ``root``."""
    return _table().get(root, [])


def descendants(root: int) -> list[int]:
    """Process ids below ``root``, children before grandchildren."""
    table = _table()
    found, queue = [], [root]
    while queue:
        below = table.get(queue.pop(0), [])
        found += below
        queue += below
    return found


# Python's process that unlinks the shared memory of its family once the last of it is gone.
TRACKER = b"multiprocessing.resource_tracker"
TRACKER_S = 5.0


def _trackers(pids: list[int]) -> set[int]:
    """Those of the processes that are resource trackers."""
    found = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            if TRACKER in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.add(pid)
    return found


def _kill_all(listed: Callable[[], list[int]], reap: Callable[[], None] = lambda: None) -> None:
    """KILL until ``listed`` names nobody. Resource trackers come last, after a while in which they end by themselves:
    killed beside an engine they would leave its segments (160 MB each for vLLM) in /dev/shm for ever."""
    deadline = time.monotonic() + TRACKER_S
    while left := listed():
        spared = _trackers(left) if time.monotonic() < deadline else set()
        _signal_all([pid for pid in left if pid not in spared], signal.SIGKILL)
        reap()
        time.sleep(0.05)


def _signal_all(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _reap() -> None:
    """Collect every zombie that was re-parented here."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def end_tree(root: int, leader: int | None, grace_s: float) -> None:
    """End all descendants of ``root``: TERM to ``leader`` (the server's main process, which knows how
    to stop its own workers), up to ``grace_s`` for all to go, then TERM and KILL for what is left."""
    if leader is not None:
        _signal_all([leader], signal.SIGTERM)
        deadline = time.monotonic() + grace_s
        while leader in descendants(root) and time.monotonic() < deadline:
            time.sleep(0.1)
    _signal_all(descendants(root), signal.SIGTERM)
    deadline = time.monotonic() + 2
    while descendants(root) and time.monotonic() < deadline:
        _reap()
        time.sleep(0.05)
    _kill_all(lambda: descendants(root), _reap)


def end_orphans(living: set[int]) -> None:
    """End every child of this process that is not in ``living``, with all below it.

    For a job whose guardian was killed: as the job is a child subreaper too, what was guarded is now its child.
    """

    def orphans() -> list[int]:
        found = [pid for pid in children(os.getpid()) if pid not in living]
        return [process for pid in found for process in (pid, *descendants(pid))]

    _kill_all(orphans)


def guard(command: list[str], grace_s: float, locks: tuple[int, ...] = ()) -> int:
    """Run ``command`` until it ends or standard input closes; then make sure that no process is left.

    Args:
        locks: descriptors that the command inherits, so that they stay locked while it lives, too.
    """
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    # Ctrl-C reaches the job, which closes the pipe: the one way in which this process is told to end.
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    told = {"end": False}
    signal.signal(signal.SIGTERM, lambda *_: told.update(end=True))
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, pass_fds=locks)
    while child.poll() is None and not told["end"]:
        ready, _, _ = select.select([0], [], [], 0.2)
        if ready and not os.read(0, 4096):
            break
    ended_by_itself = child.poll() is not None
    end_tree(os.getpid(), None if ended_by_itself else child.pid, grace_s)
    code = child.wait()
    return code if code >= 0 else 128 - code


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m adrbench.serve.guardian")
    parser.add_argument("--grace", type=float, default=15.0, help="seconds for the command to end by itself after TERM")
    parser.add_argument("--scratch", help="the command's scratch folder, removed after its last process has ended")
    parser.add_argument("--lock", type=int, help="inherited descriptor that keeps the scratch folder in use")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    try:
        code = guard(command, arguments.grace, () if arguments.lock is None else (arguments.lock,))
    finally:
        if arguments.scratch:
            shutil.rmtree(arguments.scratch, ignore_errors=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
