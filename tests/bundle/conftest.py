"""A small bundle made by the project's own parts, and the program that installs it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(HERE), str(ROOT / "envs")]

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


@pytest.fixture(scope="session")
def target_folder(
    tmp_path_factory: pytest.TempPathFactory,
    install: Callable[..., subprocess.CompletedProcess[str]],
    no_network: tuple[str, ...],
) -> tuple[Path, str, Path]:
    """A working copy installed from a bundle of target `local`, without network: (folder, what was said, pieces)."""
    out, into = tmp_path_factory.mktemp("out") / "my pieces", tmp_path_factory.mktemp("host") / "a folder"
    model = tmp_path_factory.mktemp("models") / "small model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    made = subprocess.run(
        [sys.executable, ROOT / "envs/bundle.py", "make", "--target", "local", "--piece-size", "1MB",
         "--preset", "0", "--out", out, "--model", model],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    if made.returncode and "pip ended with code" in made.stderr:
        pytest.skip(f"the locked packages cannot be fetched here: {made.stderr.strip()[-300:]}")
    assert made.returncode == 0, made.stderr
    done = install(out, "--into", into, "--no-compile", prefix=no_network)
    assert done.returncode == 0, done.stderr
    return into, made.stdout + done.stdout, out
