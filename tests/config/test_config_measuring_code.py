"""The lists of code that a job's output depends on: a moved module must stay in them.

Of the jobs that compute, what they import must be there, too, but for machinery that puts no number into evidence.
"""

import ast
from pathlib import Path

import pytest
from adrbench.config.measuring_code import MEASURING_CODE, SIMULATION_CODE, code_digest
from adrbench.paths import ROOT


@pytest.mark.parametrize(("stage", "paths"), [*MEASURING_CODE.items(), ("simulation", SIMULATION_CODE)])
def test_every_path_exists_and_is_named_once(stage, paths):
    """A digest of a missing file is one of nothing: the code could change and old evidence would pass for new."""
    assert [path for path in paths if not (ROOT / path).exists()] == []
    assert len(paths) == len(set(paths))


def modules(path):
    """Files of the project that a file imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "adrbench":
            folder = ROOT / "src" / Path(*node.module.split(".")[1:])
            tried = [folder.with_suffix(".py"), *(folder / f"{alias.name}.py" for alias in node.names)]
            yield from (path.resolve() for path in tried if path.is_file())


# What a job's start imports and no number of its evidence comes from: how it reads its specification and writes its
# evidence, starts processes and says what it does.
MACHINERY = {
    *(f"src/{name}.py" for name in ("evidence", "handover", "job", "paths", "processes", "redact", "scratch", "specs")),
    "src/config",
    "src/serve",
    "src/device",
    "src/profile/saved.py",  # keeps plain data for the audit
    "src/agreement/spec.py",
}


def inside(path, places):
    return any(path == place or path.startswith(f"{place}/") for place in places)


@pytest.mark.parametrize(
    ("stage", "start"),
    [
        ("profile", "profile/__main__"),
        ("profile", "profile/ceiling"),
        ("counters", "profile/counters"),
        ("memory", "memory/__main__"),
        ("claims", "claims/__main__"),
        ("claims", "claims/checks"),
        ("device", "device/__main__"),
        ("kernels", "kernels/__main__"),
        ("integrate", "integrate/__main__"),
        ("eval", "eval/__main__"),
        ("agreement", "agreement/__main__"),
        ("compare", "agreement/compare"),
        ("calibrate", "calibrate/__main__"),
        ("decide", "decide/__main__"),
        ("lock", "lock/__main__"),
        ("report", "report/__main__"),
    ],
)
def test_what_a_job_computes_with_is_in_its_list(stage, start):
    found, todo = set(), {(ROOT / f"src/{start}.py").resolve()}
    while todo:
        found |= todo
        todo = {name for path in todo for name in modules(path)} - found
        todo = {path for path in todo if not inside(path.relative_to(ROOT.resolve()).as_posix(), MACHINERY)}
    names = {path.relative_to(ROOT.resolve()).as_posix() for path in found}
    assert {name for name in names if not inside(name, MEASURING_CODE[stage])} == set()


# Reads what a server resolved, and how a job ends: no number of a tier is theirs.
READING = {f"src/{name}.py" for name in ("job", "serve/resolved")}


@pytest.mark.parametrize("start", ["plugin", "bench"])
def test_what_a_server_runs_with_and_a_tier_is_computed_with_is_listed(start):
    """The plugin's own modules decide what is measured; the simulation and the kernels have digests of their own."""
    found = {path.relative_to(ROOT.resolve()).as_posix() for path in modules(ROOT / f"src/serve/{start}.py")}
    found = {name for name in found - READING if name.startswith("src/serve/") and not inside(name, SIMULATION_CODE)}
    assert found
    assert {name for name in found if not inside(name, MEASURING_CODE["serve"])} == set()


def test_a_change_in_a_listed_file_changes_the_digest(tmp_path, monkeypatch):
    before = code_digest("model")
    copy = tmp_path / "src/model/gguf.py"
    copy.parent.mkdir(parents=True)
    copy.write_bytes((ROOT / "src/model/gguf.py").read_bytes())
    monkeypatch.setattr("adrbench.config.measuring_code.ROOT", tmp_path)
    assert code_digest("model") == before
    copy.write_text("changed\n")
    assert code_digest("model") != before
