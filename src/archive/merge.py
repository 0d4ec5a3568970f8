"""Merge an archive into a folder of results: what is missing is added, nothing is overwritten."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from adrbench.archive.read import archive_files, unpack
from adrbench.archive.records import RECORDS, ArchiveError, check_idle, moved, record_path, rewritten, unit_files
from adrbench.evidence import digest_file


@dataclass
class Merged:
    """What a merge did: names of units (evidence files, refusals, models)."""

    added: list[str] = field(default_factory=list)
    present: list[str] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)


def compare(base: Path, units: dict[str, dict[str, str]]) -> Merged:
    """Which units are new here, which are here already, which are here with another content."""
    result = Merged()
    for unit, digests in units.items():
        here = unit_files(base, unit)
        if not here and not (base / unit).exists():
            # Raw files without their evidence: an interrupted merge's are the archive's own.
            clash = [name for name in digests if os.path.lexists(base / name) and not _same(base / name, digests[name])]
            (result.conflicts if clash else result.added).append(unit)
        elif sorted(here) == sorted(digests) and all(_same(base / n, d) for n, d in digests.items()):
            result.present.append(unit)
        else:
            result.conflicts.append(unit)
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
        result = compare(base, manifest["units"])
        if result.conflicts:
            return result
        check_way(base, times)
        # The evidence file last: what an interrupted merge leaves is merged by the next one.
        for unit in result.added:
            for name in sorted(manifest["units"][unit], key=lambda name: name == unit):
                (base / name).parent.mkdir(parents=True, exist_ok=True)
                os.replace(work / name, base / name)
        _keep_times(base, times)
    places = moved(manifest, base)
    for unit in [*result.added, *result.present]:
        path = record_path(base / RECORDS, unit)
        if unit in manifest["records"] and (unit in result.added or not path.exists()):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(rewritten(manifest["records"][unit], places)))
    return result


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
    return f"{archive}: {len(result.added)} results merged, {len(result.present)} were here already"
