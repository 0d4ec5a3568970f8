"""Free the working folder of a run that was killed: Snakemake's lock outlives ``kill -9``.

    python -m adrbench.locks

unlocks when a lock is there and no Snakemake process works in this folder any more; it leaves the lock
of a living run alone and says so.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def living_runs(folder: Path) -> list[int]:
    """Process ids of Snakemake runs whose working folder is ``folder`` (this process's ancestors excluded)."""
    found, ancestor, ancestors = [], os.getpid(), set()
    while ancestor > 1:
        ancestors.add(ancestor)
        ancestor = int(Path(f"/proc/{ancestor}/stat").read_text().rpartition(")")[2].split()[1])
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) in ancestors:
            continue
        try:
            command = (entry / "cmdline").read_bytes().split(b"\0")
            works_here = Path(os.readlink(entry / "cwd")) == folder
        except OSError:
            continue
        if works_here and any(part.endswith(b"snakemake") for part in command[:4]):
            found.append(int(entry.name))
    return found


def main() -> None:
    folder = Path.cwd()
    locks = [path for path in (folder / ".snakemake" / "locks").glob("*") if path.is_file()]
    if not locks:
        return
    if runs := living_runs(folder):
        sys.exit(f"{folder}: Snakemake (process {runs[0]}) is already running here; wait for it, or end it by Ctrl-C")
    print("an earlier run was killed: freeing its lock")
    for path in locks:
        path.unlink()


if __name__ == "__main__":
    main()
