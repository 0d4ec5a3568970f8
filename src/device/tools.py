"""Outside programs and files as probes: each has a time limit, and none can stop the caller.

A vendor's management tool may be absent, hang on a sick driver (even unkillably), fail, or print
something that is not what its manual says. All of these are findings about the host, so they are
recorded, not raised.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Status = Literal["ok", "absent", "timeout", "malformed", "failed"]

# Where vendors install their tools; searched after PATH, because an interpreter that was started
# without sourcing the vendor's env.sh still runs on the vendor's host.
VENDOR_FOLDERS = ("opt/hyhal/bin", "usr/local/hyhal/bin", "opt/rocm/bin", "opt/dtk/bin", "usr/sbin", "sbin")

KILL_GRACE_S = 1.0


@dataclass(frozen=True)
class Output:
    """What a program left: ``status`` is ok, absent, timeout or failed (it ended with an error code)."""

    status: Status
    text: str = ""
    error: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Probe:
    """One finding about the host: ``facts`` is what was understood, ``raw`` what was said word for word."""

    name: str
    status: Status
    summary: str
    command: tuple[str, ...] = ()
    seconds: float = 0.0
    facts: dict[str, Any] = field(default_factory=dict)
    raw: str = ""

    def record(self) -> dict[str, Any]:
        """The probe as evidence; the raw text goes into a file of its own."""
        return {
            "name": self.name,
            "command": " ".join(self.command) or None,
            "status": self.status,
            "summary": self.summary,
            "seconds": round(self.seconds, 3),
            "facts": self.facts,
        }


def find(name: str, root: Path = Path("/")) -> str | None:
    """Absolute path of a program: on PATH, else in a vendor's folder below ``root``."""
    vendor = os.pathsep.join(str(root / folder) for folder in VENDOR_FOLDERS)
    return shutil.which(name) or shutil.which(name, path=vendor)


def end_group(process: subprocess.Popen[bytes], grace_s: float = KILL_GRACE_S) -> None:
    """Kill a process with the group it leads, and reap it if the kernel lets it go.

    A program stuck inside a driver ignores even SIGKILL until the driver returns; waiting for it
    would hang the caller as well.
    """
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(grace_s)


def call(
    command: Sequence[str], limit_s: float, environment: Mapping[str, str] | None = None, folder: Path | None = None
) -> Output:
    """Run a program (in ``folder``) to its end or to ``limit_s``; never raises for what the program does.

    Output goes through a file: a grandchild that keeps a pipe open cannot hold the caller.
    """
    started = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            process = subprocess.Popen(
                list(command), stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True,
                cwd=folder, env={**(os.environ if environment is None else environment), "LC_ALL": "C"},
            )  # fmt: skip
        except FileNotFoundError:
            return Output("absent", error=f"{command[0]}: not found")
        except OSError as error:
            return Output("failed", error=f"{command[0]}: {error.strerror}")
        try:
            code: int | None = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            if process.returncode is None:
                end_group(process)
        seconds = time.monotonic() - started
        text, error_text = (_read(f) for f in (out, err))
    if code is None:
        return Output("timeout", text, f"no end within {limit_s:g} s", seconds)
    if code != 0:
        return Output("failed", text, error_text.strip() or text.strip() or f"exit code {code}", seconds)
    return Output("ok", text, error_text, seconds)


def _read(file: Any) -> str:
    file.seek(0)
    return bytes(file.read()).decode(errors="replace")


def first_line(text: str, length: int = 160) -> str:
    """The first non-empty line, shortened: enough for a summary."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= length else line[: length - 3] + "..."


def unread(name: str, command: Sequence[str], output: Output) -> Probe:
    """The probe of a program that did not end well."""
    summary = {"absent": "not found on PATH or in a vendor folder"}.get(output.status) or first_line(output.error)
    return Probe(name, output.status, summary, tuple(command), output.seconds, raw=output.text + output.error)


def run_tool(name: str, arguments: Sequence[str], limit_s: float, root: Path) -> tuple[tuple[str, ...], Output]:
    """Find a program and run it: (command as run, output)."""
    path = find(name, root)
    if path is None:
        return (name, *arguments), Output("absent")
    return (path, *arguments), call([path, *arguments], limit_s)
