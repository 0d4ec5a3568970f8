"""The frame of every measuring job: one JSON specification in, one evidence file out.

A rule calls ``python -m adrbench.<stage> --spec JSON --output FILE``. The frame turns errors into
one clear message, records a rejected measurement (so that the report can list it), and makes sure
that the job ends when the workflow that started it is gone, ``kill -9`` included: Snakemake's shell
would otherwise leave it running.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import json
import os
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from adrbench.device.lease import LeaseError, lease
from adrbench.evidence import EvidenceError, now, write_json
from adrbench.handover import received
from adrbench.processes import ancestors
from adrbench.redact import redact

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


class JobError(RuntimeError):
    """A measurement is refused. ``reason`` is a short stable word for counting, the text says what to do."""

    def __init__(self, reason: str, text: str):
        super().__init__(text)
        self.reason = reason


class Interrupted(BaseException):
    """A signal asked the job to end; BaseException, so that no ``except Exception`` swallows it."""


_label = ""


def say(text: str) -> None:
    """One progress line, with the time and the job's name, flushed at once so that a log can be followed."""
    print(f"{time.strftime('%H:%M:%S')} {_label}{text}", flush=True)


def prctl(option: int, value: int) -> None:
    """Linux process control; a no-op elsewhere."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def _ancestors(pid: int) -> Iterator[tuple[int, list[str]]]:
    """(pid, argv) of each ancestor, nearest first."""
    for above in ancestors(pid):
        try:
            yield above, Path(f"/proc/{above}/cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            return


def _is_snakemake(argv: list[str]) -> bool:
    """Whether a process is Snakemake itself; a shell whose command merely names a folder of that name is not."""
    return any(Path(word).name == "snakemake" for word in argv[:4]) and not any(word == "-c" for word in argv[:4])


def _end_with_workflow() -> None:
    """Send this process SIGTERM when the Snakemake process above it dies."""
    workflow = next((pid for pid, command in _ancestors(os.getpid()) if _is_snakemake(command)), None)
    watched = workflow or os.getppid()
    if watched <= 1:
        return
    try:
        handle = os.pidfd_open(watched)
    except (OSError, AttributeError):
        return

    def wait() -> None:
        select.select([handle], [], [])
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="workflow-watch", daemon=True).start()


def _raise_interrupted(number: int, _frame: Any) -> None:
    raise Interrupted(signal.Signals(number).name)


def _parse(stage: str) -> tuple[dict[str, Any], Path, tuple[str, int]]:
    parser = argparse.ArgumentParser(prog=f"python -m adrbench.{stage}")
    parser.add_argument("--spec", required=True, help="the job's specification as JSON, or @FILE")
    parser.add_argument("--output", required=True, type=Path, help="evidence file to write")
    parser.add_argument("--devices", type=int, default=0, help="devices to lease from the host for this job")
    parser.add_argument("--vendor", default="cpu", help="whose devices: nvidia, amd, hygon; cpu leases nothing")
    arguments = parser.parse_args()
    try:
        spec = json.loads(received(arguments.spec))
    except (OSError, ValueError) as error:
        parser.error(f"--spec: {error}")
    return spec, arguments.output, (arguments.vendor, arguments.devices)


def _results(spec: dict[str, Any], output: Path) -> Path:
    """``results/<platform>`` of a job's output; the output's own folder where it lies elsewhere."""
    platform, parts = str(spec.get("platform", "unknown")), output.parts
    return Path(*parts[: parts.index(platform) + 1]) if platform in parts else output.parent


def _provide(stage: str, spec: dict[str, Any], output: Path) -> None:
    """The model that a job serves: there, and the one that was measured (``model.provide``)."""
    if stage == "model" or not ("server" in spec or "model" in spec):
        return
    from adrbench.model.provide import provide  # imports this module, and numpy

    provide(spec, _results(spec, output))


def _reject(stage: str, spec: dict[str, Any], output: Path, reason: str, text: str) -> None:
    """Record a rejected measurement under ``results/<platform>/rejected/``; never fails the job twice."""
    base = _results(spec, output)
    record = {
        "stage": stage,
        "platform": str(spec.get("platform", "unknown")),
        "output": str(output),
        "arm": spec.get("arm", {}).get("name") if isinstance(spec.get("arm"), dict) else spec.get("arm"),
        "round": spec.get("round"),
        "reason": reason,
        "message": redact(text)[:2000],
        "at": now(),
    }
    try:
        write_json(base / "rejected" / f"{stage}-{time.time_ns()}.json", record)
    except OSError as error:
        print(f"(the rejection could not be recorded: {error})", file=sys.stderr)


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def _remedy(error: OSError) -> str:
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return "name a path that exists"
    if error.errno in FULL:
        return "free space"
    return "free space or fix permissions" if error.errno else "look into the log above"


def run(stage: str, work: Callable[[dict[str, Any], Path], None]) -> None:
    """Run one job and exit: 0 when ``work`` returned, 1 on a refusal or error, 130 when interrupted."""
    global _label
    spec, output, wanted = _parse(stage)
    arm = spec.get("arm")
    parts = [stage, spec.get("name") or (arm.get("name") if isinstance(arm, dict) else arm), spec.get("round")]
    _label = f"[{' '.join(str(part) for part in parts if part)}] "
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _raise_interrupted)
    # Nobody else may change what a job writes, whatever the shell's umask is.
    os.umask(os.umask(0o022) | 0o022)
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    _end_with_workflow()
    try:
        _provide(stage, spec, output)  # before devices are taken
        if devices := lease(*wanted, say=say):
            say(f"{devices.variable}={','.join(devices.devices)}")
        work(spec, output)
    except Interrupted as signal_name:
        print(
            f"adrbench {stage}: interrupted by {signal_name}; nothing was recorded, a rerun starts this job afresh",
            file=sys.stderr,
        )
        sys.exit(130)
    except LeaseError as error:
        _reject(stage, spec, output, "devices", str(error))
        print(f"adrbench {stage}: refused (devices): {error}", file=sys.stderr)
        sys.exit(1)
    except JobError as error:
        _reject(stage, spec, output, error.reason, str(error))
        print(f"adrbench {stage}: refused ({error.reason}): {redact(str(error))}", file=sys.stderr)
        sys.exit(1)
    except EvidenceError as error:
        _reject(stage, spec, output, "evidence", str(error))
        print(f"adrbench {stage}: refused (evidence): {redact(str(error))}", file=sys.stderr)
        sys.exit(1)
    except OSError as error:
        # A write on a full disk names no file: then the folder of the results is what is known.
        below = f" (writing below {output.parent})" if error.errno in FULL else ""
        where = f": {error.filename}" if error.filename else below
        _reject(stage, spec, output, "io", f"{error.strerror or error}{where}")
        print(f"adrbench {stage}: {error.strerror or error}{where}; {_remedy(error)}, then rerun", file=sys.stderr)
        sys.exit(1)
    except Exception as error:
        print(redact(traceback.format_exc()), end="", file=sys.stderr)
        _reject(stage, spec, output, "error", f"{type(error).__name__}: {error}")
        sys.exit(1)
    sys.exit(0)
