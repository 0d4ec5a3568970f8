"""Shared memory that a case's processes alone see, so that what they leave in it is theirs and nobody else's."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")
UNSHARE = ("unshare", "--mount")
# A folder of the host's shared memory instead of all of it; $0 is the folder, the rest the command.
BIND = f'mount --bind "$0" {SHARED_MEMORY} && exec "$@"'


class Segments:
    """A folder in place of /dev/shm, in a mount namespace of the command that is started with it.

    Other runs on this host make and leave segments, too; which of them made one cannot be told afterwards.
    """

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="adrbench-faults-", dir=SHARED_MEMORY))
        self.missing = ""  # why this host makes no namespace
        done = subprocess.run(self.command(["true"]), capture_output=True, text=True)
        self.missing = done.stderr.strip() if done.returncode else ""

    def command(self, argv: list[str]) -> list[str]:
        """``argv`` in the namespace; ``argv`` itself where this host lets nobody make one. Same process, same id."""
        return argv if self.missing else [*UNSHARE, "sh", "-c", BIND, str(self.folder), *argv]

    def left(self) -> list[str]:
        """Names of the segments that are there now."""
        return sorted(path.name for path in self.folder.iterdir())

    def free(self) -> str:
        """Assert, once all processes have ended, that nothing is left; words for the report."""
        assert self.left() == []
        return f"shared memory not looked at ({self.missing})" if self.missing else "shared memory free"

    def close(self) -> None:
        shutil.rmtree(self.folder)
