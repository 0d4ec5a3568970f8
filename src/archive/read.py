"""Read an archive of evidence: nothing in it is trusted before it is checked."""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import tarfile
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from adrbench.archive.pack import FORMAT, MANIFEST
from adrbench.archive.records import PLATFORM_NAME, ArchiveError, is_document, listed_files, platform_folder
from adrbench.evidence import digest_file, raw_folder

READABLE = range(1, FORMAT + 1)
LARGEST_MANIFEST = 256 << 20
HEADERS = 4 << 20
LATEST = 1 << 36  # seconds: what os.utime takes on any file system


class Chained(io.RawIOBase):
    """Several files read as one."""

    def __init__(self, paths: list[Path]):
        self.paths = list(paths)
        self.current: IO[bytes] | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while True:
            if self.current is None:
                if not self.paths:
                    return 0
                self.current = open(self.paths.pop(0), "rb")  # noqa: SIM115 - closed below
            data = self.current.read(len(buffer))
            if data:
                buffer[: len(data)] = data
                return len(data)
            self.current.close()
            self.current = None


class Bounded:
    """A stream that gives no more bytes than were allowed: a header of gigabytes must not fill the memory."""

    def __init__(self, stream: IO[bytes]):
        self.stream, self.left = stream, HEADERS

    def read(self, size: int) -> bytes:
        data = self.stream.read(size)
        self.left -= len(data)
        if self.left < 0:
            raise ArchiveError(f"the archive holds a header of more than {HEADERS >> 20} MiB; refused")
        return data

    def allow(self, size: int) -> None:
        """Allow a member's content, and the headers of the next one."""
        self.left = HEADERS + size


def archive_files(archive: Path) -> list[Path]:
    """The archive's file or its pieces, each checked against NAME.sha256 where that is there.

    Raises:
        ArchiveError: naming what is missing or damaged.
    """
    sums = archive.with_name(archive.name + ".sha256")
    if not sums.is_file():
        if not archive.is_file():
            raise ArchiveError(f"{archive}: no such archive (and no {sums.name} that names its pieces)")
        return [archive]
    paths, problems = [], []
    for line in sums.read_text(encoding="utf-8").splitlines():
        digest, _, name = line.partition("  ")
        if Path(name).name != name or not name.startswith(archive.name):
            raise ArchiveError(f"{sums}: names {name!r}, which is not a piece of {archive.name}")
        path = archive.with_name(name)
        if not path.is_file():
            problems.append(f"{path}: missing")
        elif digest_file(path) != digest:
            problems.append(f"{path}: damaged (its SHA-256 is another one)")
        paths.append(path)
    if problems:
        raise ArchiveError("carry these over again, the others are whole:\n  " + "\n  ".join(problems))
    return paths


def check_name(name: str) -> None:
    """Only files of results and models below the current folder.

    Raises:
        ArchiveError: naming the member.
    """
    path = PurePosixPath(name)
    parts = path.parts
    plain = not path.is_absolute() and ".." not in parts and name == path.as_posix() and "\0" not in name
    if not plain or len(parts) < 2 or parts[0] not in ("results", "models") or not PLATFORM_NAME.fullmatch(parts[1]):
        raise ArchiveError(f"the archive holds {name!r}, which is not a file of results/ or models/; refused")


def check_manifest(value: Any) -> dict[str, Any]:
    """Refuse a manifest of another shape or format.

    Raises:
        ArchiveError: saying what is wrong.
    """
    if not isinstance(value, dict) or value.get("format") not in READABLE:
        found = value.get("format") if isinstance(value, dict) else value
        known = " and ".join(map(str, READABLE))
        raise ArchiveError(f"archive format {found!r}, this version reads {known}; use the adrbench that packed it")
    for key in ("units", "records"):
        if not isinstance(value.get(key), dict) or not all(isinstance(item, dict) for item in value[key].values()):
            raise ArchiveError(f"{MANIFEST} is damaged: units and records are needed")
    if not all(isinstance(value.get(key), str) and value[key].startswith("/") for key in ("root", "folder")):
        raise ArchiveError(f"{MANIFEST} is damaged: root and folder are needed")
    said: dict[str, str] = {}
    for unit, digests in value["units"].items():
        check_name(unit)
        for name, digest in digests.items():
            check_name(name)
            if not _own(unit, name) and not _may_list(unit, name, digests):
                raise ArchiveError(f"{MANIFEST}: {name!r} is no file of {unit!r}; refused")
            if said.setdefault(name, digest) != digest:
                raise ArchiveError(f"{MANIFEST}: {name!r} has two contents; refused")
    return value


def _own(unit: str, name: str) -> bool:
    """Whether a file is the unit itself, or lies in its raw folder or in the folder that it is."""
    return name == unit or name.startswith((f"{raw_folder(Path(unit))}/", f"{unit}/"))


def _may_list(unit: str, name: str, digests: dict[str, str]) -> bool:
    """Whether a unit's evidence, which is in the archive, may list a file elsewhere in its platform's results."""
    return (
        is_document(unit)
        and unit.startswith("results/")
        and unit in digests
        and name.startswith(f"{platform_folder(unit)}/")
    )


def check_listed(manifest: dict[str, Any], folder: Path) -> None:
    """Refuse files outside a unit's raw folder that its evidence, unpacked in ``folder``, does not list.

    Raises:
        ArchiveError: naming the file.
    """
    for unit, digests in manifest["units"].items():
        elsewhere = {name: digest for name, digest in digests.items() if not _own(unit, name)}
        listed = listed_files(folder / unit, unit) if elsewhere else {}
        for name, digest in elsewhere.items():
            if listed.get(name) != digest:
                raise ArchiveError(f"{MANIFEST}: {name!r} is no file of {unit!r}; refused")


def unpack(paths: list[Path], folder: Path, limit: int) -> tuple[dict[str, Any], dict[str, float]]:
    """Extract an archive into an empty folder: the manifest, and the modification time of each member.

    Plain files that the manifest names, nothing else: no link, no device, no path outside, no second copy, not more
    than ``limit`` bytes. Each is checked against its digest.

    Raises:
        ArchiveError: naming the first member that is refused.
    """
    manifest: dict[str, Any] | None = None
    expected: dict[str, str] = {}
    times: dict[str, float] = {}
    total = 0
    try:
        with lzma.open(io.BufferedReader(Chained(paths))) as plain:
            bounded = Bounded(plain)
            tar = tarfile.open(fileobj=cast("IO[bytes]", bounded), mode="r|")  # noqa: SIM115 - holds nothing open
            for member in tar:
                bounded.allow(min(member.size, max(limit, LARGEST_MANIFEST)))
                if not 0 <= member.mtime < LATEST:
                    raise ArchiveError(f"{member.name!r} has the time {member.mtime!r}; refused")
                if manifest is None:
                    manifest, expected = _read_manifest(tar, member)
                    continue
                check_name(member.name)
                if member.isdir() and member.name in manifest["units"]:
                    times[member.name] = member.mtime
                    continue
                if not member.isreg() or member.name not in expected or member.name in times:
                    raise ArchiveError(f"the archive holds {member.name!r}, which its manifest does not name; refused")
                total += member.size
                if total > limit:
                    raise ArchiveError(f"the archive unpacks to more than {limit} bytes; raise --limit if it should")
                _extract(tar, member, folder / member.name, expected[member.name])
                times[member.name] = member.mtime
            # To the end, so that a lost tail is noticed although every member was whole.
            bounded.allow(0)
            while bounded.read(1 << 20):
                pass
    except (tarfile.TarError, lzma.LZMAError, EOFError, UnicodeDecodeError) as error:
        raise ArchiveError(f"{paths[0]}: damaged or cut short ({error}); carry it over again") from None
    if manifest is None:
        raise ArchiveError(f"{paths[0]}: empty")
    if missing := sorted(set(expected) - set(times)):
        raise ArchiveError(f"{paths[0]}: {missing[0]} and {len(missing) - 1} more files are missing in it")
    check_listed(manifest, folder)
    return manifest, times


def _read_manifest(tar: tarfile.TarFile, member: tarfile.TarInfo) -> tuple[dict[str, Any], dict[str, str]]:
    stream = tar.extractfile(member) if member.isreg() and member.name == MANIFEST else None
    if stream is None or member.size > LARGEST_MANIFEST:
        raise ArchiveError(f"not an archive of evidence: it begins with {member.name!r}, not with {MANIFEST}")
    try:
        manifest = check_manifest(json.loads(stream.read()))
    except (ValueError, RecursionError) as error:
        raise ArchiveError(f"{MANIFEST} is damaged ({error})") from None
    return manifest, {name: digest for digests in manifest["units"].values() for name, digest in digests.items()}


def _extract(tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path, digest: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    stream, found = tar.extractfile(member), hashlib.sha256()
    assert stream is not None
    with open(path, "xb") as out:
        while block := stream.read(1 << 20):
            found.update(block)
            out.write(block)
    if found.hexdigest() != digest:
        raise ArchiveError(f"{member.name}: its content is not what the manifest says; carry the archive over again")
