"""Merge an archive into a folder of results: what is missing is added, nothing is overwritten."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from adrbench.archive.read import archive_files, unpack
from adrbench.archive.records import (
    RECORDS,
    ArchiveError,
    check_idle,
    folder_of_model,
    is_derived,
    is_document,
    listed_files,
    moved,
    record_path,
    rewritten,
    unit_files,
)
from adrbench.evidence import digest_file

# Snakemake's own file in a folder that a job made; a folder that was made again without it has none.
TIMESTAMP = ".snakemake_timestamp"


@dataclass
class Merged:
    """What a merge did: names of units (evidence files, refusals, models).

    ``completed``: here already, and got files that were missing here. ``lacking``: still without files that they
    list, with the first of these; the archive has them no more than this folder.
    """

    added: list[str] = field(default_factory=list)
    completed: list[str] = field(default_factory=list)
    present: list[str] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)
    lacking: dict[str, str] = field(default_factory=dict)


def compare(base: Path, units: dict[str, dict[str, str]], listed: dict[str, dict[str, str]]) -> Merged:
    """Which units are new here, which are here (and lack files that the archive has), which have another content.

    Args:
        units: digests of each one's files in the archive.
        listed: digests of what its evidence lists; the archive may lack some of it.
    """
    result = Merged()
    seen: dict[str, bool | None] = {}  # of a file that several units share

    def same(name: str, digest: str) -> bool | None:
        """None where the file is not here."""
        if name not in seen:
            seen[name] = _same(base / name, digest) if os.path.lexists(base / name) else None
        return seen[name]

    for unit, digests in units.items():
        here = {name: same(name, digest) for name, digest in digests.items()}
        # A folder is what all its files are; of a measurement, evidence and digests name what belongs to it.
        more = set() if is_document(unit) else set(unit_files(base, unit)) - {*digests, f"{unit}/{TIMESTAMP}"}
        beyond = {name: digest for name, digest in listed.get(unit, {}).items() if name not in digests}
        if more or False in [*here.values(), *(same(name, digest) for name, digest in beyond.items())]:
            result.conflicts.append(unit)
        elif not all(here.values()):
            known = is_document(unit) and here.get(unit)
            (result.completed if known else result.added).append(unit)
        else:
            result.present.append(unit)
    return result


def _same(path: Path, digest: str) -> bool:
    return path.is_file() and not path.is_symlink() and digest_file(path) == digest


def check_way(base: Path, names: Iterable[str]) -> None:
    """Refuse to write through a link that leads out of the folder.

    Raises:
        ArchiveError: naming the path.
    """
    real = base.resolve()
    for name in names:
        above = (base / name).parent
        if not above.resolve().is_relative_to(real / PurePosixPath(name).parts[0]):
            raise ArchiveError(f"{above} leads out of {base} by a link; merge where the results really are")


def merge(base: Path, archive: Path, *, limit: int) -> Merged:
    """Merge an archive into a folder: all of it or nothing.

    Raises:
        ArchiveError: damaged, unsafe, conflicting, or a run is going on; nothing was changed.
    """
    check_idle(base)
    paths = archive_files(archive)
    base.mkdir(parents=True, exist_ok=True)
    (base / ".cache").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=base / ".cache", prefix="merge-") as folder:
        work = Path(folder)
        manifest, times = unpack(paths, work, limit)
        # Packed by an older version, what is derived would stand against this folder's own.
        units = {unit: digests for unit, digests in manifest["units"].items() if not is_derived(unit)}
        times = {name: seconds for name, seconds in times.items() if not is_derived(name)}
        listed = {unit: listed_files(work / unit, unit) for unit in units if is_document(unit)}
        result = compare(base, units, listed)
        if result.conflicts:
            return result
        check_way(base, times)
        for unit in [*result.added, *result.completed]:
            _move(work, base, unit, units[unit])
        _keep_times(base, times)
    places = moved(manifest, base)
    for unit in [*result.added, *result.completed, *result.present]:
        for name in filter(None, (unit, folder_of_model(unit))):
            path = record_path(base / RECORDS, name)
            if name in manifest["records"] and (name in result.added or not path.exists()):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(json.dumps(rewritten(manifest["records"][name], places)))
        if missing := [name for name in listed.get(unit, {}) if not (base / name).is_file()]:
            result.lacking[unit] = missing[0]
    return result


def _move(work: Path, base: Path, unit: str, names: Iterable[str]) -> None:
    """Move what is not here yet from the unpacked archive: a shared file once, a folder in one step where it is new.

    The evidence file goes last: what an interrupted merge leaves is merged by the next one.
    """
    if not is_document(unit) and (work / unit).is_dir() and not os.path.lexists(base / unit):
        (base / unit).parent.mkdir(parents=True, exist_ok=True)
        os.replace(work / unit, base / unit)
        return
    for name in sorted(names, key=lambda name: name == unit):
        if not os.path.lexists(base / name):
            (base / name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(work / name, base / name)


def _keep_times(base: Path, times: dict[str, float]) -> None:
    """Times as they were measured, the earlier one for what was here: Snakemake compares them with those of inputs."""
    for name, seconds in times.items():
        path = base / name
        if path.exists():
            earlier = min(seconds, path.stat().st_mtime)
            os.utime(path, (earlier, earlier))


def describe(result: Merged, archive: Path) -> str:
    if result.conflicts:
        names = "\n  ".join(result.conflicts)
        return (
            f"{len(result.conflicts)} of its results are here with another content; nothing was merged. Decide which "
            f"measurement counts: move yours away to take the archive's, or pack without it:\n  {names}"
        )
    completed = f", {len(result.completed)} completed" if result.completed else ""
    text = f"{archive}: {len(result.added)} results merged{completed}, {len(result.present)} were here already"
    if not result.lacking:
        return text
    names = "\n  ".join(f"{unit}: {missing}: missing" for unit, missing in result.lacking.items())
    return (
        f"{text}\n{len(result.lacking)} of them lack raw files that they list: their numbers count, what audits "
        "these files cannot. An archive packed where they were measured completes them; to pack them on from here, "
        f"`pack --incomplete`:\n  {names}"
    )
