"""Free the working folder of a run that was killed: Snakemake's lock outlives ``kill -9``.

    python -m adrbench.locks

unlocks when a lock is there and no Snakemake process works in this folder any more; it leaves the lock
of a living run alone and says so. A run on another host that shares the folder is seen by the file that
``adrbench.cluster`` keeps fresh while it works. What killed processes of this user have left in the
temporary folder is removed as well.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import sys
import time
from pathlib import Path

from adrbench.processes import ancestors
from adrbench.scratch import sweep

OWNER = Path(".snakemake/adrbench-owner.json")
# An owner touches its file every few seconds.
FRESH_S = 120.0


def living_runs(folder: Path) -> list[int]:
    """Process ids of Snakemake runs whose working folder is ``folder`` (this process's ancestors excluded)."""
    found, own_line = [], {os.getpid(), *ancestors(os.getpid())}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) in own_line:
            continue
        try:
            command = (entry / "cmdline").read_bytes().split(b"\0")
            works_here = Path(os.readlink(entry / "cwd")) == folder
        except OSError:
            continue
        # A queued job's own Snakemake is not a run: it may be what a killed run has left.
        main = not any(word in command for word in (b"remote", b"subprocess"))
        if works_here and main and any(part.endswith(b"snakemake") for part in command[:4]):
            found.append(int(entry.name))
    return found


def own(folder: Path) -> None:
    """Say that a run of this process works in ``folder``; called again and again while it does."""
    file = folder / OWNER
    if file.is_file():
        os.utime(file)
        return
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({"host": platform.node(), "pid": os.getpid()}))


def other_host(folder: Path) -> str | None:
    """The other host whose run works in ``folder``; None when there is none."""
    file = folder / OWNER
    try:
        host, age = str(json.loads(file.read_bytes())["host"]), time.time() - file.stat().st_mtime
    except (OSError, ValueError, KeyError, TypeError):
        return None  # none, or cut off by a full disk
    return host if host != platform.node() and age < FRESH_S else None


def refuse_if_used(folder: Path) -> None:
    """Exit with a message when a run works in ``folder``, here or on another host."""
    if runs := living_runs(folder):
        sys.exit(f"{folder}: Snakemake (process {runs[0]}) is already running here; wait for it, or end it by Ctrl-C")
    if host := other_host(folder):
        sys.exit(f"{folder}: a run on host {host} works here; wait for it, or end it there")


def free(folder: Path) -> bool:
    """Remove the locks of ``folder``; whether there were any. The caller knows that no run is alive."""
    with contextlib.suppress(FileNotFoundError):
        (folder / OWNER).unlink()
    found = [path for path in (folder / ".snakemake" / "locks").glob("*") if path.is_file()]
    for path in found:
        path.unlink()
    return bool(found)


def main() -> None:
    folder = Path.cwd()
    sweep()
    if not any(path.is_file() for path in (folder / ".snakemake" / "locks").glob("*")):
        return
    refuse_if_used(folder)
    print("an earlier run was killed: freeing its lock")
    free(folder)


if __name__ == "__main__":
    main()
