"""Every command of the documents is run, planned, or run by a test that is named: document_commands.yaml says which.

A command that the table does not know fails, and so does an entry that no document has. What needs an accelerator, a
download or hours says so in the table; of it only program and options are looked at (test_docs.py).
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from adrbench.config.files import read_yaml
from adrbench.paths import ROOT

sys.path.append(str(Path(__file__).parent))
from document_commands import ALL, COMMAND, DOCUMENTS, code_lines

TABLE: dict[str, dict] = read_yaml(Path(__file__).parent / "document_commands.yaml")
KEYS = {"plan", "run", "suite", "tests", "with", "exit", "unverified"}
# Code lines that are no commands: a drawing, a formula, an error's text.
PROSE = {
    "docs/architecture.md": r"[│┌└►┴┬]|validate, |build job specs|serve  +eval",
    "docs/profile.md": " Σ ",
    "config/claims/README.md": "ValueError: ",
}


def asked(key: str) -> list[str]:
    return [command for command, how in TABLE.items() if how.get(key)]


def as_run(command: str) -> str:
    """A command with what the table says in place of a reader's words."""
    for word, value in TABLE[command].get("with", {}).items():
        command = command.replace(word, value)
    return command


def test_every_command_is_in_the_table() -> None:
    assert sorted({f"{path.relative_to(ROOT)}: {c}" for path, c in ALL if c not in TABLE}) == []


def test_every_entry_is_a_command_of_a_document() -> None:
    assert sorted(set(TABLE) - {command for _, command in ALL}) == []


def test_every_entry_says_how() -> None:
    for command, how in TABLE.items():
        assert set(how) <= KEYS, command
        assert {"plan", "run", "suite", "tests", "unverified"} & set(how), command
        # What cannot be run is not called tested.
        assert not {"run", "suite"} & set(how) or "unverified" not in how, command


def test_no_line_of_code_is_skipped() -> None:
    """A code line whose program the collector does not know would be in no table."""
    for path in DOCUMENTS:
        name = str(path.relative_to(ROOT))
        unknown = [line for line in code_lines(path) if not COMMAND.match(line)]
        assert [line for line in unknown if not re.search(PROSE.get(name, r"(?!)"), line)] == [], name


def test_named_tests_exist() -> None:
    nodes = sorted({node for how in TABLE.values() for node in how.get("tests", [])})
    argv = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "", *nodes]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=ROOT, timeout=600)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]


@pytest.mark.parametrize("command", [c for c in asked("plan") if not c.startswith("make ")])
def test_command_is_planned(command: str, snakemake, tmp_path: Path) -> None:
    program, *words = shlex.split(as_run(command))
    assert Path(program).name == "snakemake"
    end = next((number for number, word in enumerate(words) if word in ("--config", "--")), len(words))
    done = snakemake(tmp_path, *words[:end], "-n", "--quiet", "all", *words[end:])
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]


@pytest.mark.parametrize("command", [c for c in asked("plan") if c.startswith("make ")])
def test_make_knows_what_to_do(command: str) -> None:
    done = subprocess.run(["make", "-n", *shlex.split(command)[1:]], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert re.search(r"\S+ (-m \S+|--cores \S+|\S+/?\S+)", done.stdout), done.stdout


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project without what runs left, on the same environments."""
    folder = tmp_path_factory.mktemp("copy") / "project"
    made = (".git", ".envs", ".snakemake", ".cache", "results", "reports", "logs", "models", "history", "dry-run")
    left = {str(ROOT / name) for name in made}

    def outside(parent: str, names: list[str]) -> set[str]:
        return {n for n in names if str(Path(parent, n)) in left or n in ("__pycache__", ".pytest_cache")}

    shutil.copytree(ROOT, folder, ignore=outside, symlinks=True)
    (folder / ".envs").symlink_to(ROOT / ".envs")
    return folder


def run(command: str, folder: Path, seconds: float) -> None:
    """A command as it is written, but for `make setup`, which the environments at hand stand for."""
    line = re.sub(r"^make ", "make -o setup ", as_run(command))
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "PYTHONPATH"))}
    environment["PATH"] = f"{folder}/.envs/analysis/bin:{os.environ['PATH']}"
    if command.startswith(("python", "make documents")):
        environment["PYTHONPATH"] = "pythonpath"
    done = subprocess.run(
        ["bash", "-ec", line], cwd=folder, env=environment, capture_output=True, text=True, timeout=seconds
    )
    expected = TABLE[command].get("exit", 0)
    assert done.returncode == expected, f"{line}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"


@pytest.mark.parametrize("command", asked("run"))
def test_command_runs(command: str, copy: Path) -> None:
    run(command, copy, 600)


@pytest.mark.docs
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("command", asked("suite"))
def test_command_runs_in_its_suite(command: str, copy: Path) -> None:
    run(command, copy, 3500)


def test_the_table_is_plain_yaml() -> None:
    """Anchors share how a family of commands is tested; none is left unused."""
    text = (Path(__file__).parent / "document_commands.yaml").read_text(encoding="utf-8")
    assert yaml.safe_load(text) == TABLE
    assert set(re.findall(r"&(\w+)", text)) == set(re.findall(r" \*(\w+)", text))
