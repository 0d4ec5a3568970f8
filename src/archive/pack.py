"""Pack the finished evidence of a folder into one archive, or into pieces of it."""

from __future__ import annotations

import io
import json
import os
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from adrbench.archive.records import (
    RECORDS,
    UNFINISHED,
    ArchiveError,
    check_idle,
    find_units,
    is_evidence,
    platforms_here,
    record_path,
    unit_files,
)
from adrbench.evidence import EvidenceError, digest_file, now, raw_folder, verify_files
from adrbench.paths import ROOT

FORMAT = 1
MANIFEST = "adrbench-evidence.json"


def collect(base: Path, platforms: list[str], *, models: bool) -> tuple[dict[str, dict[str, str]], list[str]]:
    """Units to pack with the digests of their files, and what is left out, with the reason."""
    units: dict[str, dict[str, str]] = {}
    out: list[str] = []
    for platform in platforms:
        for unit in find_units(base, platform):
            if unit.startswith("models/") and not models:
                continue
            if problem := _problem(base, unit):
                out.append(problem)
                continue
            units[unit] = {name: digest_file(base / name) for name in unit_files(base, unit)}
    return units, out


def _problem(base: Path, unit: str) -> str | None:
    """Why a unit must not travel, or None."""
    if record_path(base / UNFINISHED, unit).exists():
        return f"{unit}: its job is unfinished"
    path = base / unit
    if path.is_symlink():
        return f"{unit}: a link"
    folder = raw_folder(path) if path.suffix == ".json" else path
    if links := [p for p in folder.rglob("*") if p.is_symlink()]:
        return f"{unit}: {links[0].relative_to(base)} is a link, which cannot travel"
    if path.suffix != ".json" or not is_evidence(path):
        return None
    try:
        bad = verify_files(path)
    except EvidenceError as error:
        return str(error)
    return f"{unit}: {bad[0]}" if bad else None


def pack(base: Path, output: Path, platforms: list[str], *, models: bool = True, piece: int | None = None) -> list[str]:
    """Write the archive (in pieces where a size is given), atomically; lines that say what was packed.

    Raises:
        ArchiveError: no results, or a run is going on in this folder.
    """
    check_idle(base)
    here = platforms_here(base)
    if unknown := sorted(set(platforms) - set(here)):
        raise ArchiveError(f"there are no results of platform {unknown[0]!r}; there are {', '.join(here) or 'none'}")
    units, left_out = collect(base, platforms or here, models=models)
    if not units:
        raise ArchiveError(f"{base}/results holds no finished evidence to pack" + "".join(f"\n  {t}" for t in left_out))
    records = {unit: json.loads(p.read_text()) for unit in units if (p := record_path(base / RECORDS, unit)).is_file()}
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
        names = _split(archive, piece) if piece else [archive]
        (Path(folder) / "sums").write_text("".join(f"{digest_file(p)}  {p.name}\n" for p in names))
        for path in names:
            os.replace(path, output.with_name(path.name))
        os.replace(Path(folder) / "sums", output.with_name(output.name + ".sha256"))
    size = sum(output.with_name(p.name).stat().st_size for p in names)
    lines = [f"left out: {text}" for text in left_out]
    files = sum(len(digests) for digests in units.values())
    return [*lines, f"{output}: {len(units)} results, {files} files, {size / 1e6:.1f} MB in {len(names)} file(s)"]


def _write(archive: Path, base: Path, manifest: dict[str, Any]) -> None:
    with tarfile.open(archive, "w:xz", preset=3) as tar:
        data = json.dumps(manifest).encode()
        info = tarfile.TarInfo(MANIFEST)
        info.size = len(data)
        tar.addfile(info, io.BytesIO(data))
        for unit, digests in manifest["units"].items():
            for name in digests:
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
