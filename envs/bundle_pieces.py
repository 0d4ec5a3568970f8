"""Files into pieces: one tar stream a component, cut into blocks, each compressed by itself and digested."""

from __future__ import annotations

import hashlib
import io
import lzma
import os
import stat
import tarfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bundle_install import BundleError, digest_file

BLOCK = 16 << 20
SMALLEST_PIECE = 1_000_000
EPOCH = 946684800  # 2000-01-01: the same content gives the same pieces
PROBE = 256 << 10


class Blocks(io.RawIOBase):
    """A writable stream that is cut into blocks; each is compressed in a thread and handed on in order."""

    def __init__(self, size: int, threads: int, preset: int, take: Callable[[bytes, dict[str, Any]], None]):
        self.size, self.threads, self.preset, self.take = size, threads, preset, take
        self.buffer = bytearray()
        self.waiting: deque[Future[tuple[bytes, dict[str, Any]]]] = deque()
        self.pool = ThreadPoolExecutor(threads)

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.buffer += data
        while len(self.buffer) >= self.size:
            self._hand_on(bytes(self.buffer[: self.size]))
            del self.buffer[: self.size]
        return len(data)

    def _hand_on(self, data: bytes) -> None:
        while len(self.waiting) > self.threads:
            self.take(*self.waiting.popleft().result())
        self.waiting.append(self.pool.submit(compress, data, self.preset))

    def finish(self) -> None:
        if self.buffer:
            self._hand_on(bytes(self.buffer))
            self.buffer.clear()
        while self.waiting:
            self.take(*self.waiting.popleft().result())
        self.pool.shutdown()


def compress(data: bytes, preset: int) -> tuple[bytes, dict[str, Any]]:
    """A block as it is stored, and its entry in the manifest; what does not shrink is stored as it is."""
    entry = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    middle = data[len(data) // 2 :][:PROBE]
    if len(lzma.compress(middle, preset=0)) < 0.97 * len(middle):
        packed = lzma.compress(data, preset=preset)
        if len(packed) < len(data):
            return packed, entry | {"xz": True, "length": len(packed)}
    return data, entry | {"xz": False, "length": len(data)}


class Pieces:
    """Writes blocks into numbered files, none larger than ``size`` bytes."""

    def __init__(self, folder: Path, stem: str, size: int):
        self.folder, self.stem, self.size = folder, stem, size
        self.written: list[dict[str, Any]] = []
        self.used = size
        self.stream: Any = None

    def add(self, data: bytes, entry: dict[str, Any]) -> dict[str, Any]:
        if self.used + len(data) > self.size:
            self._next()
        entry = entry | {"piece": len(self.written) - 1, "offset": self.used}
        self.stream.write(data)
        self.used += len(data)
        return entry

    def _next(self) -> None:
        self._close()
        name = f"{self.stem}.{len(self.written):03d}.piece"
        self.written.append({"name": name})
        self.stream, self.used = open(self.folder / name, "wb"), 0  # noqa: SIM115 - closed by _close

    def _close(self) -> None:
        if self.stream:
            self.stream.close()

    def finish(self) -> list[dict[str, Any]]:
        self._close()
        paths = [self.folder / str(piece["name"]) for piece in self.written]
        return [{"name": path.name, "size": path.stat().st_size, "sha256": digest_file(path)} for path in paths]


def tar_member(path: Path, name: str) -> tarfile.TarInfo:
    """A member without owner or time, so that equal content gives equal bytes.

    Raises:
        BundleError: it is neither file, folder nor link.
    """
    info, mode = tarfile.TarInfo(name), path.lstat().st_mode
    info.mtime = EPOCH
    if stat.S_ISLNK(mode):
        info.type, info.linkname, info.mode = tarfile.SYMTYPE, os.readlink(path), 0o777
    elif stat.S_ISREG(mode):
        info.size, info.mode = path.stat().st_size, 0o755 if mode & 0o100 else 0o644
    else:
        raise BundleError(f"{path}: neither a file nor a link; it cannot travel")
    return info


def tree_members(folder: Path) -> Iterator[tuple[Path, str]]:
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not path.is_dir():
            yield path, path.relative_to(folder).as_posix()


def write_component(
    members: Iterable[tuple[Path, str]], pieces: Pieces, threads: int, preset: int
) -> list[dict[str, Any]]:
    """Write files (path, name in the archive) as one tar stream; the manifest's blocks."""
    entries: list[dict[str, Any]] = []
    size = min(BLOCK, pieces.size * 9 // 10)
    sink = Blocks(size, threads, preset, lambda data, entry: entries.append(pieces.add(data, entry)))
    with tarfile.open(fileobj=sink, mode="w|", format=tarfile.PAX_FORMAT, bufsize=1 << 20) as tar:
        for path, name in members:
            info = tar_member(path, name)
            if info.isreg():
                with open(path, "rb") as stream:
                    tar.addfile(info, stream)
            else:
                tar.addfile(info)
    sink.finish()
    return entries
