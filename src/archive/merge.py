"""Merge an archive into a folder of results: what is missing is added, nothing is overwritten."""

from __future__ import annotations

import functools
import json
import os
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from adrbench.archive import computed, hosts
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
    platform_folder,
    read_record,
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
    list, with the first of these; the archive has them no more than this folder. ``computed``: computed from other
    results and here otherwise, or from others than there are here: not taken. ``aside``: checks of another host of this
    kind, with where they were put; ours stay. ``stale``: what this folder computed before from another content.
    """

    added: list[str] = field(default_factory=list)
    completed: list[str] = field(default_factory=list)
    present: list[str] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)
    computed: list[str] = field(default_factory=list)
    aside: dict[str, str] = field(default_factory=dict)
    lacking: dict[str, str] = field(default_factory=dict)
    stale: list[str] = field(default_factory=list)


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


@dataclass(frozen=True)
class Unpacked:
    """An archive in the folder ``work``, to be merged into ``base``. ``units``: digests of each one's files."""

    base: Path
    work: Path
    units: dict[str, dict[str, str]]
    records: dict[str, Any]
    places: list[tuple[str, str]]


def settle(archive: Unpacked, result: Merged, several: Callable[[str], bool]) -> None:
    """Take from the conflicts, and from what is new, what needs no decision: computed results, and checks of hosts.

    Args:
        several: whether a platform is several hosts of one kind.
    """
    for unit in list(result.conflicts):
        ours, theirs = archive.base / unit, archive.work / unit
        if computed.is_computed(archive.records.get(unit), read_record(archive.base / RECORDS, unit)):
            result.computed.append(unit)
            result.conflicts.remove(unit)
            continue
        same = is_document(unit) and _whole(archive, unit) and hosts.says_the_same(ours, theirs)
        place = _aside(archive, unit) if same or several(platform_folder(unit).partition("/")[2]) else None
        if place:
            result.aside[unit] = place
        elif same:
            result.present.append(unit)
        else:
            continue
        result.conflicts.remove(unit)
    _leave_out(archive, result)


def _whole(archive: Unpacked, unit: str) -> bool:
    """Whether of a unit that is here otherwise its raw files are here as in the archive."""
    raw = {name: digest for name, digest in archive.units[unit].items() if name != unit}
    return all(_same(archive.base / name, digest) for name, digest in raw.items())


def _aside(archive: Unpacked, unit: str) -> str | None:
    """Where a check of another host of the same kind goes; None of anything else."""
    place = hosts.aside(unit, archive.units[unit].get(unit, "")) if hosts.is_of_host(unit) else None
    if place is None or not hosts.of_one_kind(archive.base / unit, archive.work / unit):
        return None
    return place if all(hosts.moved_aside(unit, place, name) for name in archive.units[unit]) else None


def _leave_out(archive: Unpacked, result: Merged) -> None:
    """Do not add what was computed from others than will be here: Snakemake would take it for complete."""
    new = [unit for unit in result.added if computed.is_computed(archive.records.get(unit))]
    packed = {name: digest for digests in archive.units.values() for name, digest in digests.items()}
    arriving = {name for unit in [*result.added, *result.completed] if unit not in new for name in archive.units[unit]}

    def here(name: str) -> str | None:
        # Named by the archive's record: nothing outside the results is read for it.
        path = archive.base / name if PurePosixPath(name).parts[:1] == ("results",) and ".." not in name else None
        if path and path.is_file():
            return digest_file(path)
        return packed[name] if name in arriving else None

    kept = computed.resting(new, archive.records, here, packed)
    left = [unit for unit in new if unit not in kept]
    result.added = [unit for unit in result.added if unit not in left]
    result.computed += left


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


def merge(base: Path, archive: Path, *, limit: int, platforms: Path | None = None) -> Merged:
    """Merge an archive into a folder: all measurements of it or nothing.

    Args:
        limit: bytes that it may unpack to.
        platforms: folder of platform files; None: the one that config/config.yaml names.

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
        unpacked = Unpacked(base, work, units, manifest["records"], moved(manifest, base))
        listed = {unit: listed_files(work / unit, unit) for unit in units if is_document(unit)}
        result = compare(base, units, listed)
        settle(unpacked, result, functools.partial(hosts.several, platforms=platforms))
        if result.conflicts:
            return result
        names = {name for unit in units if unit not in result.computed for name in (unit, *units[unit])}
        times = {name: seconds for name, seconds in times.items() if name in names}
        kept = [str(hosts.moved_aside(u, place, name)) for u, place in result.aside.items() for name in units[u]]
        check_way(base, [*times, *kept])
        arriving = {name: digest for unit in (*result.added, *result.completed) for name, digest in units[unit].items()}
        missing = {name: digest for name, digest in arriving.items() if not os.path.lexists(base / name)}
        # Before anything arrives: whoever ends this in the middle leaves nothing that Snakemake takes for complete.
        result.stale = computed.make_stale(base, missing, times)
        _keep_records(unpacked, result)
        for unit, place in result.aside.items():
            _set_aside(unpacked, unit, place, times)
        for unit in [*result.added, *result.completed]:
            _move(work, base, unit, units[unit])
        _keep_times(base, times)
    for unit in [*result.added, *result.completed, *result.present]:
        if lost := [name for name in listed.get(unit, {}) if not (base / name).is_file()]:
            result.lacking[unit] = lost[0]
    return result


def _keep_records(archive: Unpacked, result: Merged) -> None:
    """Snakemake's records of what was merged, with this folder's paths; ours stay where there are any."""
    names = {name: name for unit in (*result.added, *result.completed, *result.present)
             for name in (unit, folder_of_model(unit)) if name}  # fmt: skip
    for name, place in {**names, **result.aside}.items():
        path = record_path(archive.base / RECORDS, place)
        if name in archive.records and (name in result.added or not path.exists()):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(rewritten(archive.records[name], archive.places)))


def _set_aside(archive: Unpacked, unit: str, place: str, times: dict[str, float]) -> None:
    """Put another host's check beside ours, its evidence file last; ours keeps its time or gets the earlier one."""
    for name in sorted(archive.units[unit], key=lambda name: name == unit):
        target = archive.base / str(hosts.moved_aside(unit, place, name))
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(archive.work / name, target)
            os.utime(target, (times[name], times[name]))


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
        return _described_conflicts(result.conflicts)
    completed = f", {len(result.completed)} completed" if result.completed else ""
    parts = [f"{archive}: {len(result.added)} results merged{completed}, {len(result.present)} were here already"]
    if result.aside:
        parts.append(
            f"{len(result.aside)} checks of another host or visit: yours stay where they were, and its own, which "
            "its rounds rest on, are kept beside them:"
            + _lines(f"{unit} -> {place}" for unit, place in result.aside.items())
        )
    if result.computed:
        parts.append(
            f"{len(result.computed)} results that are computed from others were not taken: Snakemake computes them "
            "here, where they are missing or what they rest on changed:" + _lines(result.computed)
        )
    if result.stale:
        parts.append(
            f"{len(result.stale)} files here were made from others than were merged now; Snakemake makes them again:"
            + _lines(result.stale)
        )
    if result.lacking:
        parts.append(
            f"{len(result.lacking)} of them lack raw files that they list: their numbers count, what audits these "
            "files cannot. An archive packed where they were measured completes them; to pack them on from here, "
            "`pack --incomplete`:" + _lines(f"{unit}: {missing}: missing" for unit, missing in result.lacking.items())
        )
    return "\n".join(parts)


def _lines(names: Iterable[str]) -> str:
    return "".join(f"\n  {name}" for name in names)


def _described_conflicts(conflicts: list[str]) -> str:
    text = (
        f"{len(conflicts)} of its results are here with another content; nothing was merged. Decide which "
        "measurement counts: move yours away to take the archive's, or pack without it:" + _lines(conflicts)
    )
    checks = [unit for unit in conflicts if hosts.is_of_host(unit)]
    if names := sorted({platform_folder(unit).partition("/")[2] for unit in checks}):
        text += (
            f"\nA host's own checks are among them. Both are kept, and rounds of both count, where the platform file "
            f"of {', '.join(names)} says `device.hosts: several` and both were asked the same: of one device, one "
            "vLLM, one model"
        )
    return text
