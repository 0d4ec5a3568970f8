"""Pack the finished evidence of a folder into one archive, or into pieces of it."""

from __future__ import annotations

import io
import json
import os
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from adrbench.archive.records import (
    RECORDS,
    UNFINISHED,
    ArchiveError,
    check_idle,
    find_units,
    folder_of_model,
    is_document,
    is_evidence,
    listed_files,
    platform_folder,
    platforms_here,
    record_path,
    unit_files,
)
from adrbench.evidence import EvidenceError, digest_file, now, raw_folder, read
from adrbench.paths import ROOT

# 2: units may share files that lie outside their raw folders.
FORMAT = 2
MANIFEST = "adrbench-evidence.json"


@dataclass
class Collected:
    """``units``: digests of each one's files. ``left_out``, ``lacking``: lines that name units and reasons."""

    units: dict[str, dict[str, str]] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    lacking: list[str] = field(default_factory=list)


def collect(base: Path, platforms: list[str], *, models: bool, incomplete: bool = False) -> Collected:
    """Units to pack, what is left out, and with ``incomplete`` those that are packed without files that are lost."""
    found = Collected()
    digests: dict[str, str] = {}  # a file that several units share is read once

    def digest(name: str) -> str:
        if name not in digests:
            digests[name] = digest_file(base / name)
        return digests[name]

    for platform in platforms:
        for unit in find_units(base, platform):
            if unit.startswith("models/") and not models:
                continue
            try:
                if problem := _problem(base, unit):
                    found.left_out.append(problem)
                    continue
                missing, changed = _raw_files(base, unit, digest)
                files = unit_files(base, unit)
            except (ArchiveError, EvidenceError) as error:
                found.left_out.append(str(error))
                continue
            if changed or (missing and not incomplete):
                hint = "" if changed else "; --incomplete packs it all the same"
                found.left_out.append(f"{unit}: {[*changed, *missing][0]}{hint}")
                continue
            if missing:
                more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
                found.lacking.append(f"{unit}: {missing[0]}{more}")
            found.units[unit] = {name: digest(name) for name in files}
    return found


def _problem(base: Path, unit: str) -> str | None:
    """Why a unit must not travel, or None."""
    if record_path(base / UNFINISHED, unit).exists():
        return f"{unit}: its job is unfinished"
    path = base / unit
    if path.is_symlink():
        return f"{unit}: a link"
    folder = raw_folder(path) if is_document(unit) else path
    links = [p for p in folder.rglob("*") if p.is_symlink()]
    inside = base / platform_folder(unit)
    for name in listed_files(path, unit) if is_document(unit) else ():
        way = [base / name, *(base / name).parents]
        links += [p for p in way if p.is_relative_to(inside) and p != inside and p.is_symlink()]
    if links:
        return f"{unit}: {links[0].relative_to(base)} is a link, which cannot travel"
    return None


def _raw_files(base: Path, unit: str, digest: Callable[[str], str]) -> tuple[list[str], list[str]]:
    """What an evidence file lists and is missing, and what changed since it was measured.

    Raises:
        EvidenceError: it cannot be read.
    """
    if not is_document(unit) or not is_evidence(base / unit):
        return [], []
    read(base / unit)
    listed = listed_files(base / unit, unit)
    missing = [f"{name}: missing" for name in listed if not (base / name).is_file()]
    there = {name: said for name, said in listed.items() if (base / name).is_file()}
    return missing, [f"{name}: changed since it was measured" for name, said in there.items() if digest(name) != said]


def pack(
    base: Path,
    output: Path,
    platforms: list[str],
    *,
    models: bool = True,
    piece: int | None = None,
    incomplete: bool = False,
) -> list[str]:
    """Write the archive (in pieces where a size is given), atomically; lines that say what was packed.

    With ``incomplete`` results whose raw files are missing travel, too: a file that changed never does.

    Raises:
        ArchiveError: no results, or a run is going on in this folder.
    """
    check_idle(base)
    here = platforms_here(base)
    if unknown := sorted(set(platforms) - set(here)):
        raise ArchiveError(f"there are no results of platform {unknown[0]!r}; there are {', '.join(here) or 'none'}")
    found = collect(base, platforms or here, models=models, incomplete=incomplete)
    units = found.units
    if not units:
        reasons = "".join(f"\n  {text}" for text in found.left_out)
        raise ArchiveError(f"{base}/results holds no finished evidence to pack{reasons}")
    # A model's folder may stay behind: without its record Snakemake would not notice a change of the model's job.
    names = [*units, *filter(None, map(folder_of_model, units))]
    records = {name: json.loads(p.read_text()) for name in names if (p := record_path(base / RECORDS, name)).is_file()}
    manifest = {
        "format": FORMAT,
        "packed_at": now(),
        "root": str(ROOT),
        "folder": str(base),
        "units": units,
        "records": records,
    }
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output.parent, prefix=f".{output.name}.") as folder:
        archive = Path(folder) / output.name
        _write(archive, base, manifest)
        pieces = _split(archive, piece) if piece else [archive]
        (Path(folder) / "sums").write_text("".join(f"{digest_file(p)}  {p.name}\n" for p in pieces))
        for path in pieces:
            os.replace(path, output.with_name(path.name))
        os.replace(Path(folder) / "sums", output.with_name(output.name + ".sha256"))
    size = sum(output.with_name(p.name).stat().st_size for p in pieces)
    lines = [f"left out: {text}" for text in found.left_out]
    lines += [f"packed, but not whole: {text}" for text in found.lacking]
    files = len({name for digests in units.values() for name in digests})
    return [*lines, f"{output}: {len(units)} results, {files} files, {size / 1e6:.1f} MB in {len(pieces)} file(s)"]


def _write(archive: Path, base: Path, manifest: dict[str, Any]) -> None:
    with tarfile.open(archive, "w:xz", preset=3) as tar:
        data = json.dumps(manifest).encode()
        info = tarfile.TarInfo(MANIFEST)
        info.size = len(data)
        tar.addfile(info, io.BytesIO(data))
        written: set[str] = set()
        for unit, digests in manifest["units"].items():
            for name in digests:
                if name in written:
                    continue
                written.add(name)
                path = base / name
                info = tarfile.TarInfo(name)
                info.size, info.mtime, info.mode = path.stat().st_size, path.stat().st_mtime, 0o644
                info.pax_headers = {"mtime": repr(path.stat().st_mtime)}
                with open(path, "rb") as stream:
                    tar.addfile(info, stream)
            if unit.startswith("models/"):
                info = tarfile.TarInfo(f"{unit}/")
                info.type, info.mtime, info.mode = tarfile.DIRTYPE, (base / unit).stat().st_mtime, 0o755
                tar.addfile(info)


def _split(archive: Path, size: int) -> list[Path]:
    """Cut a file into NAME.000, NAME.001, ... of at most ``size`` bytes."""
    paths: list[Path] = []
    with open(archive, "rb") as stream:
        while data := stream.read(size):
            paths.append(archive.with_name(f"{archive.name}.{len(paths):03d}"))
            paths[-1].write_bytes(data)
    return paths
