"""A small bundle made by the project's own parts, and the program that installs it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent.parent / "envs")]

from bundle_tiny import make_tiny  # noqa: E402 (found by the line above)


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """The folder of a small bundle's pieces."""
    make_tiny(tmp_path / "source", tmp_path / "pieces")
    return tmp_path / "pieces"


@pytest.fixture(scope="session")
def install() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a bundle's own install.py; ``prefix`` words come before the interpreter."""

    def run(
        folder: Path, *arguments: str | Path, python: str = sys.executable, prefix: tuple[str, ...] = ()
    ) -> subprocess.CompletedProcess[str]:
        command = [*prefix, python, str(folder / "install.py"), *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=300)

    return run


@pytest.fixture(scope="session")
def no_network() -> tuple[str, ...]:
    """Words before a command that runs it in a network namespace of its own, in which nothing can be reached."""
    for words in (("unshare", "-n"), ("unshare", "-rn")):
        if subprocess.run([*words, "true"], capture_output=True, check=False).returncode == 0:
            return words
    pytest.skip("this host gives no network namespace (unshare -n)")
