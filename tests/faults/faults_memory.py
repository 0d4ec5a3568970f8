"""Shared memory and a temporary folder that a case's processes alone see: what is left there is theirs alone."""

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
    """A folder in place of /dev/shm, in a mount namespace of the command that is started with it, and one as TMPDIR.

    Other runs on this host make and leave segments and sockets, too; which of them made one cannot be told afterwards.
    """

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="adrbench-faults-", dir=SHARED_MEMORY))
        # Short: a socket's path has 107 bytes, and vLLM's are to lie in this folder, not in /tmp.
        self.temporary = Path(tempfile.mkdtemp(prefix="faults-", dir="/tmp"))
        self.missing = ""  # why this host makes no namespace
        done = subprocess.run(self.command(["true"]), capture_output=True, text=True)
        self.missing = done.stderr.strip() if done.returncode else ""

    def command(self, argv: list[str]) -> list[str]:
        """``argv`` in the namespace; ``argv`` itself where this host lets nobody make one. Same process, same id."""
        argv = ["env", f"TMPDIR={self.temporary}", *argv]
        return argv if self.missing else [*UNSHARE, "sh", "-c", BIND, str(self.folder), *argv]

    def left(self) -> list[str]:
        """Names of the segments that are there now."""
        return sorted(path.name for path in self.folder.iterdir())

    def temporaries(self, early: bool) -> list[str]:
        """What is in the temporary folder; ``early``: but for Snakemake's, if it was killed before it read our file."""
        found = sorted(self.temporary.rglob("*"))
        if early:
            found = [path for path in found if not (path.name.startswith("snakemake") and not any(path.iterdir()))]
        return [str(path.relative_to(self.temporary)) for path in found]

    def free(self, early: bool = False) -> str:
        """Assert, once all processes have ended, that nothing is left; words for the report."""
        # pytest explains no assertion of a module that is no test's.
        assert self.left() == [], f"in shared memory: {self.left()}"
        assert self.temporaries(early) == [], f"in the temporary folder: {self.temporaries(early)}"
        memory = f"shared memory not looked at ({self.missing})" if self.missing else "shared memory free"
        return f"{memory}; temporary folder empty"

    def close(self) -> None:
        shutil.rmtree(self.folder)
        shutil.rmtree(self.temporary)
