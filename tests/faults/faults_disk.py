"""A small file system of its own for a working folder's results, to fill or to make read-only."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SPARE_BYTES = 24 << 20


class Disk:
    """``results`` of a scene on a tmpfs."""

    def __init__(self, results: Path):
        self.results, self.filler = results, results / "filler"

    def fill(self) -> None:
        """Take every free byte."""
        with open(self.filler, "wb", buffering=0) as stream:
            block = b"\0" * 65536
            while block:
                try:
                    stream.write(block)
                except OSError:
                    block = block[: len(block) // 2]

    def free(self) -> None:
        self.filler.unlink()

    def read_only(self, wanted: bool) -> None:
        subprocess.run(["mount", "-o", f"remount,{'ro' if wanted else 'rw'}", str(self.results)], check=True)


@contextmanager
def own_disk(folder: Path) -> Iterator[Disk]:
    """Put ``folder/results`` on a tmpfs with some room to spare; skips the test where that cannot be done."""
    if os.geteuid() != 0:
        pytest.skip("a file system of its own needs root")
    results, aside = folder / "results", folder / "aside"
    results.rename(aside)
    results.mkdir()
    size = sum(path.stat().st_size + 8192 for path in aside.rglob("*")) + SPARE_BYTES
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(results)], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"no tmpfs here: {done.stderr.strip()}")
    try:
        shutil.copytree(aside, results, dirs_exist_ok=True)
        yield Disk(results)
    finally:
        subprocess.run(["umount", "-l", str(results)], check=True)
