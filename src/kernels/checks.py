"""Drives the worker: restarts it past a case that kills or hangs it, and collects every outcome."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from adrbench.job import JobError
from adrbench.kernels.case import Case, Outcome, judge

CASE_TIMEOUT_S = 120.0
"""A case compiles one small kernel; the worker's imports, seconds on a warm disk, count too."""

WORKER = "adrbench.kernels.worker"


def _never(_device: str) -> float:
    """Stands in for a case's function in the process that does not run it."""
    raise NotImplementedError


@dataclass
class Checked:
    """What the workers reported. ``host``: mode, device, triton, torch; ``current``: the case that runs."""

    host: dict[str, str] = field(default_factory=dict)
    plan: list[list[Any]] = field(default_factory=list)
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    current: str | None = None
    ended: bool = False

    def add(self, outcome: Outcome, progress: Callable[[str], None]) -> None:
        self.outcomes[outcome.id] = outcome
        self.current = None
        progress(f"{outcome.status:<13} {outcome.op}, {outcome.format}: {outcome.case}")


def _messages(process: subprocess.Popen[bytes], timeout_s: float) -> Iterator[dict[str, Any] | None]:
    """The worker's messages; None once when it is silent for ``timeout_s``. Ends with its output."""
    assert process.stdout is not None
    handle, pending = process.stdout.fileno(), b""
    while True:
        ready, _, _ = select.select([handle], [], [], timeout_s)
        if not ready:
            yield None
            return
        block = os.read(handle, 1 << 16)
        if not block:
            return
        *lines, pending = (pending + block).split(b"\n")
        for line in lines:
            if line.startswith(b'{"kind"'):
                yield json.loads(line)


def _death(process: subprocess.Popen[bytes], hung: bool, timeout_s: float) -> str:
    if hung:
        return f"no answer for {timeout_s:g} s; the process was killed"
    code = process.wait()
    if code < 0:
        return f"the process died of {signal.Signals(-code).name}"
    return f"the process exited with code {code}"


def _absorb(checked: Checked, message: dict[str, Any], progress: Callable[[str], None]) -> None:
    """Take one message of the worker into ``checked``."""
    kind = message.pop("kind")
    if kind == "host":
        checked.host = {key: str(value) for key, value in message.items()}
    elif kind == "plan":
        checked.plan = message["cases"]
    elif kind == "start":
        checked.current = message["id"]
    elif kind == "outcome":
        checked.add(Outcome(**message["outcome"]), progress)
    elif kind == "end":
        checked.ended = True


def _run_worker(
    checked: Checked, mode: str, seed: int, timeout_s: float, progress: Callable[[str], None], worker: str
) -> None:
    """One worker's life; adds its outcomes, and that of the case it died in."""
    done = {name: outcome.as_json() for name, outcome in checked.outcomes.items()}
    hung = False
    with tempfile.TemporaryFile() as errors:
        command = [sys.executable, "-m", worker]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
        try:
            assert process.stdin is not None
            process.stdin.write(json.dumps({"mode": mode, "seed": seed, "done": done}).encode())
            process.stdin.close()
            for message in _messages(process, timeout_s):
                if message is None:
                    hung = True
                else:
                    _absorb(checked, message, progress)
        finally:
            # A worker that closed its output is ending by itself, so its exit code tells what happened.
            if hung or sys.exc_info()[0] is not None:
                process.kill()
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if checked.ended:
            return
        death = _death(process, hung, timeout_s)
        errors.seek(0)
        tail = [line for line in errors.read().decode(errors="replace").splitlines() if line.strip()]
    fatal = next(
        (line.strip() for line in tail if "LLVM ERROR" in line or "Assertion" in line), tail[-1] if tail else ""
    )
    if checked.current is None:
        raise JobError("kernel-worker", f"the kernel check could not run: {death}; {' | '.join(tail[-5:])}")
    op, number_format, name, tolerance = next(row for row in checked.plan if ":".join(row[:3]) == checked.current)
    case = Case(op, number_format, name, _never, tolerance)
    interpreted = checked.host.get("mode") == "interpreter"
    checked.add(judge(case, None, f"{death}: {fatal[:300]}", interpreted), progress)


def run_checks(
    mode: str,
    seed: int,
    progress: Callable[[str], None],
    timeout_s: float = CASE_TIMEOUT_S,
    worker: str = WORKER,
) -> Checked:
    """Every case's outcome.

    Raises:
        JobError: the worker cannot run at all (``kernel-worker``): no torch, no triton, no accelerator
            where one was asked for.
    """
    checked = Checked()
    started = time.monotonic()
    while not checked.ended:
        _run_worker(checked, mode, seed, timeout_s, progress, worker)
    progress(f"{len(checked.outcomes)} cases in {time.monotonic() - started:.0f} s")
    return checked
