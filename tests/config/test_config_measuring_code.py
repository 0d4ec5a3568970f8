"""The lists of code that a job's output depends on: a moved module must stay in them.

What this cannot prove: that a list is long enough; what else a job imports, such as ``job.py``, is left out on purpose.
"""

import ast

import pytest
from adrbench.config.measuring_code import MEASURING_CODE, SIMULATION_CODE, code_digest
from adrbench.paths import ROOT


@pytest.mark.parametrize(("stage", "paths"), [*MEASURING_CODE.items(), ("simulation", SIMULATION_CODE)])
def test_every_path_exists_and_is_named_once(stage, paths):
    """A digest of a missing file is one of nothing: the code could change and old evidence would pass for new."""
    assert [path for path in paths if not (ROOT / path).exists()] == []
    assert len(paths) == len(set(paths))


def imported(module):
    """Modules of src/profile that one of them imports."""
    tree = ast.parse((ROOT / f"src/profile/{module}.py").read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "adrbench.profile":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("adrbench.profile."):
            yield node.module.rpartition(".")[2]


# What the profile job's start imports and no number of its evidence comes from.
OUTSIDE = {"saved"}  # keeps plain data for the audit


@pytest.mark.parametrize("start", ["__main__", "ceiling"])
def test_what_a_profile_job_imports_of_its_package_is_in_its_list(start):
    found, todo = set(), {start}
    while todo:
        found |= todo
        todo = {name for module in todo for name in imported(module)} - found - OUTSIDE
    listed = {path.removeprefix("src/profile/").removesuffix(".py") for path in MEASURING_CODE["profile"]}
    assert found - listed == set()


def test_a_change_in_a_listed_file_changes_the_digest(tmp_path, monkeypatch):
    before = code_digest("model")
    copy = tmp_path / "src/model/gguf.py"
    copy.parent.mkdir(parents=True)
    copy.write_bytes((ROOT / "src/model/gguf.py").read_bytes())
    monkeypatch.setattr("adrbench.config.measuring_code.ROOT", tmp_path)
    assert code_digest("model") == before
    copy.write_text("changed\n")
    assert code_digest("model") != before
