"""Folders of our processes in the temporary folder, none of which outlives its users.

A folder is in use while its lock is held (an exclusive ``flock`` on the folder: the kernel drops it with the last
holder, however that ends), or while a process names it in its environment or works in it: a vLLM engine closes the
files that it inherits, so that nothing else tells of one whose guardian and API server were killed. Whoever makes a
folder removes it; what killed processes have left is removed by the next start, of the same user and host only: hosts
may share the folder's file system, and neither processes nor, on a folder of NFS or Lustre, locks of another are seen.

Standard library only.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

# Where vLLM puts the sockets between its processes (vllm/envs.py): the temporary folder, unless told otherwise. It
# leaves them there, even at an ordinary end; and leaves this variable out of the key of its compile cache
# (`compile_factors`).
VARIABLE = "VLLM_RPC_BASE_PATH"
# Where torch's compiler keeps what it compiled: below the temporary folder, unless told otherwise
# (torch/_inductor/runtime/cache_dir_utils.py). A cache that is cold at every start would be measured.
COMPILED = "TORCHINDUCTOR_CACHE_DIR"
HOST = hashlib.sha256(os.fsencode(os.uname().nodename)).hexdigest()[:6]
PREFIX = f"adrbench-tmp-{HOST}-"
# Folders that another program made (Snakemake's) carry a file of this name; those of runs that are not ours do not.
MARK = f".adrbench-{HOST}"
MARKED_PREFIXES = ("snakemake", "tmp")
# A Unix socket's path (108 bytes with its end) in such a folder: 8 characters of mkdtemp, and a UUID as its name.
PATH_BYTES, RANDOM_BYTES, SOCKET_BYTES = 107, 8, 36
SHORT = Path("/tmp")  # noqa: S108 (mkdtemp makes what is put there)

# Locks that this process holds until it ends.
_adopted: list[int] = []


def parent() -> Path:
    """The temporary folder, or ``/tmp`` where its path leaves no room for that of a socket and ``/tmp`` can be used."""
    found = _temporary()
    longest = len(os.fsencode(found)) + len(PREFIX) + RANDOM_BYTES + SOCKET_BYTES + 2
    return SHORT if longest > PATH_BYTES and os.access(SHORT, os.W_OK | os.X_OK) else found


def _temporary() -> Path:
    # Absolute: "." stays relative in `tempfile`, and the folder's users work elsewhere.
    return Path(tempfile.gettempdir()).absolute()


class Scratch:
    """A new folder of mode 700, and its lock.

    Attributes:
        descriptor: holds the lock; a child that inherits it keeps the folder in use.
    """

    def __init__(self) -> None:
        sweep()
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent()))
            with contextlib.suppress(FileNotFoundError):
                self.descriptor = _open(self.path)
                # A file system without locks: the folder is then never swept.
                with contextlib.suppress(OSError):
                    fcntl.flock(self.descriptor, fcntl.LOCK_EX)
                if _is(self.path, self.descriptor):
                    return
                # Another start swept it between the two calls.
                os.close(self.descriptor)

    def variables(self, environment: Mapping[str, str]) -> dict[str, str]:
        """What tells a command with this environment to put its temporary files here.

        All of them (torch's profiler leaves a trace that it could not write, of the size that a disk still holds)
        where compiled code has a place of its own and nobody chose another folder; else vLLM's sockets alone.
        """
        found = {VARIABLE: str(self.path)}
        chosen = environment.get("TMPDIR") != os.environ.get("TMPDIR")
        if environment.get(COMPILED) and not chosen and self.path.parent == _temporary():
            found["TMPDIR"] = str(self.path)
        return found

    def remove(self) -> None:
        """Give up the lock and remove the folder, unless a process still uses it."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
        remove_unused(self.path)


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """A scratch folder for the length of a block."""
    made = Scratch()
    try:
        yield made.path
    finally:
        shutil.rmtree(made.path, ignore_errors=True)
        made.remove()


def for_this_process() -> Path:
    """A scratch folder for the sockets of a vLLM engine in this process, which no guardian watches; it goes with it."""
    made = Scratch()
    os.environ[VARIABLE] = str(made.path)
    atexit.register(made.remove)
    return made.path


def _open(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)


def _is(path: Path, descriptor: int) -> bool:
    """Whether ``path`` still is the folder that was opened."""
    try:
        return os.path.samestat(os.lstat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _ours(name: str, descriptor: int) -> bool:
    """Whether an opened folder is of this user, made or marked by us, and open to nobody else, who could mark it."""
    found = os.fstat(descriptor)
    if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
        return False
    if name.startswith(PREFIX):
        return True
    try:
        return os.stat(MARK, dir_fd=descriptor, follow_symlinks=False).st_uid == os.geteuid()
    except OSError:
        return False


def users(path: Path) -> list[int]:
    """Processes that name the folder in their environment, or work in it."""
    # Its name is one of a kind; before it stands what another process's TMPDIR says, which may be a link.
    found, name = [], os.fsencode(f"/{path.name}")
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if name in (entry / "environ").read_bytes() or name in os.readlink(os.fsencode(entry / "cwd")):
                    found.append(int(entry.name))
    return found


def remove_unused(path: Path) -> bool:
    """Remove a folder of ours that nobody uses; whether it was removed. A link is never followed."""
    try:
        descriptor = _open(path)
    except OSError:
        return False
    try:
        if not _ours(path.name, descriptor):
            return False
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not _is(path, descriptor) or users(path):
            return False
        shutil.rmtree(path)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def sweep(*more: Path) -> list[Path]:
    """Remove what killed processes of this user have left in the temporary folders (and in ``more``); what it was."""
    removed = []
    places = {SHORT, *more}
    with contextlib.suppress(OSError):  # no temporary folder can be written to
        places.add(_temporary())
    for place in places:
        try:
            names = sorted(os.listdir(place))
        except OSError:
            continue
        candidates = [place / name for name in names if name.startswith((PREFIX, *MARKED_PREFIXES))]
        removed += [path for path in candidates if remove_unused(path)]
    return removed


def of_snakemake(workflow: Any) -> list[Path]:
    """Temporary folders of a Snakemake workflow.

    Private names of Snakemake (9.27: workflow.py, sourcecache.py): where a release has others, its folders merely stay.
    """
    cache = getattr(workflow, "sourcecache", None)
    made = (getattr(workflow, "_snakemake_tmp_dir", None), getattr(cache, "runtime_cache", None))
    return [Path(one.name) for one in made if one is not None]


def adopt(*paths: str | os.PathLike[str]) -> None:
    """Mark folders that another library made for this process, and hold their locks: they are ours to sweep.

    Snakemake's own temporary folders are removed by Snakemake at every end but ``kill -9``.
    """
    folders = [Path(path) for path in paths]
    for path in folders:
        with contextlib.suppress(OSError):
            descriptor = _open(path)
            _adopted.append(descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            (path / MARK).touch()
    sweep(*(path.parent for path in folders))
