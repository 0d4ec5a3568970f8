"""The documents: every command that they name exists, every link resolves, both READMEs say the same commands.

A command is not run here (test_docs_commands.py says where each is): targets are planned by `snakemake -n`, modules and
scripts are asked for `--help`, options looked up in it.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shlex
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
import yaml
from adrbench.config.arm import Arm
from adrbench.paths import ROOT

sys.path.append(str(Path(__file__).parent))
from document_commands import ALL, DOCUMENTS, FENCE, PLACEHOLDER, READMES, commands

FOLDERS = "src|config|docs|rules|tests|envs|benchmarks|profiles|pythonpath"


def named(pattern: str) -> dict[str, list[str]]:
    """What a pattern's first group finds in all commands -> the commands."""
    found = defaultdict(list)
    for path, command in ALL:
        for name in re.findall(pattern, command):
            found[name].append(f"{path.relative_to(ROOT)}: {command}")
    return dict(found)


TARGETS = named(r"(?:^|&& )make ([a-z][\w/.-]*)")
MODULES = named(r"-m (adrbench[\w.]*)")
SCRIPTS = named(r"\b((?:benchmarks|envs)/[\w/]+\.(?:py|sh))")


def options(said: list[str], after: str) -> set[str]:
    """Long options that follow ``after`` in these commands; what follows ` -- ` is another program's."""
    tails = (line.partition(after)[2].partition(" -- ")[0] for line in said)
    return {option for tail in tails for option in re.findall(r"(?<!\S)(--[a-z][\w-]+)", tail)}


def unknown(wanted: set[str], said: str) -> set[str]:
    """Options that a text does not name in full."""
    return {option for option in wanted if not re.search(rf"(?<![\w-]){option}(?![\w-])", said)}


def helped(*argv: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "pythonpath"), "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, *argv, "--help"], capture_output=True, text=True, timeout=60, env=environment, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_the_documents_name_commands_of_every_kind():
    """Guards the patterns: with nothing found, every test below would pass."""
    assert len(TARGETS) >= 12
    assert len(MODULES) >= 8
    assert len(SCRIPTS) >= 8
    assert len(plans()["cpu"]) >= 6


@pytest.mark.parametrize("target", TARGETS)
def test_make_target_exists(target):
    makefile = (ROOT / "Makefile").read_text()
    rules = [name for line in re.findall(r"^([^\s#:=][^:=\n]*):(?!=)", makefile, re.MULTILINE) for name in line.split()]
    exact, patterns = {r for r in rules if "%" not in r}, [r.partition("%")[0] for r in rules if "%" in r]
    assert target in exact or any(target.startswith(start) for start in patterns), TARGETS[target]


def test_make_variables_exist():
    makefile = (ROOT / "Makefile").read_text()
    for path, command in ALL:
        if command.startswith("make "):
            for variable in re.findall(r" ([A-Z]+)=", command):
                assert f"$({variable})" in makefile, f"{path.name}: {command}"


@pytest.mark.parametrize("module", MODULES)
def test_module_answers_for_help(module):
    spec = importlib.util.find_spec(module)
    assert spec, MODULES[module]
    if spec.submodule_search_locations:
        spec = importlib.util.find_spec(f"{module}.__main__")
        assert spec, MODULES[module]
    wanted = options(MODULES[module], f"-m {module}")
    source = Path(spec.origin).read_text()
    if "ArgumentParser" in source or "adrbench.job import" in source or "report.command import" in source:
        said = helped("-m", module)
        assert not unknown(wanted, said), MODULES[module]
    else:
        assert "__main__" in source, f"{module} cannot be run: {MODULES[module]}"
        assert not wanted, f"{module} takes no options: {MODULES[module]}"


def imports(path: Path) -> set[str]:
    """Top-level packages that a script needs to be started at all."""
    body = ast.parse(path.read_text()).body
    names = [alias.name for node in body if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in body if isinstance(node, ast.ImportFrom)]
    return {name.partition(".")[0] for name in names}


@pytest.mark.parametrize("script", SCRIPTS)
def test_script_exists_and_knows_its_options(script):
    path = ROOT / script
    assert path.is_file(), SCRIPTS[script]
    if path.suffix == ".sh":
        assert subprocess.run(["bash", "-n", str(path)]).returncode == 0
        return
    source, wanted = path.read_text(), options(SCRIPTS[script], script)
    here = {p.stem for p in path.parent.glob("*.py")} | {"adrbench"}
    able = all(name in here or importlib.util.find_spec(name) for name in imports(path))
    if "ArgumentParser" in source and able and not imports(path) & {"torch", "triton", "vllm"} & here:
        try:
            source = helped(script)
        except AssertionError as error:
            if not re.search(r"No module named '(torch|triton|vllm)'", str(error)):
                raise
    assert not unknown(wanted, source), SCRIPTS[script]


def plans() -> dict[str, set[str]]:
    """Platform -> targets of all `snakemake` commands, those with placeholders left out."""
    found = defaultdict(set)
    for _, command in ALL:
        words = shlex.split(re.sub(r"^cd \S+ && ", "", command))
        if not words[0].endswith("snakemake") or "--report" in words or "--workflow-profile" in words:
            continue
        platform = re.search(r"platform=(\S+)", command)
        pairs = zip(["", *words[1:]], words[1:], strict=False)
        found[platform.group(1) if platform else "cpu"] |= {
            word
            for before, word in pairs
            if re.match(r"(reports|results)/|[a-z]+(_adr\d+)?$", word)
            and not before.startswith("--c")
            and not PLACEHOLDER.search(word)
        }
    return dict(found)


@pytest.mark.parametrize("platform", sorted(plans()))
def test_snakemake_targets_can_be_planned(platform, snakemake, tmp_path):
    targets = sorted(plans()[platform])
    done = snakemake(tmp_path, "-n", "--quiet", "all", "--config", f"platform={platform}", "--", *targets)
    assert done.returncode == 0, f"{targets}\n{(done.stdout + done.stderr)[-3000:]}"


def test_snakemake_options_exist():
    said = helped("-m", "snakemake")
    for path, command in ALL:
        if re.match(r"(?:cd \S+ && )?(?:\S*/)?snakemake ", command):
            assert not unknown(options([command], "snakemake "), said), f"{path.name}: {command}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_and_named_files_exist(path):
    text = FENCE.sub("", path.read_text(encoding="utf-8"))
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if not re.match(r"https?://", link):
            assert (path.parent / link.partition("#")[0]).exists(), link
    if path.is_relative_to(ROOT / "docs/evidence") and path.name != "README.md":
        return  # a published record: it names files of its run and of other projects
    for name in re.findall(rf"(?<![\w/.])((?:{FOLDERS})/[\w./-]+\.(?:py|smk|yaml|json|md|sh|svg|lock|cff))\b", text):
        assert PLACEHOLDER.search(name) or (ROOT / name).exists(), name


def test_both_readmes_have_the_same_commands():
    english, chinese = (commands(path) for path in READMES)
    assert english == chinese
    assert len(english) >= 25


def test_both_readmes_name_the_same_files_platforms_and_figures():
    texts = [path.read_text(encoding="utf-8") for path in READMES]
    for pattern in (r"^\| (`[^|]*`)[^|]*\|", r"!\[[^\]]*\]\(([^)]*)\)", r"^```yaml\n(.*?)^```"):
        first, second = (re.findall(pattern, text, re.MULTILINE | re.DOTALL) for text in texts)
        assert first == second, pattern
        assert first
    for platform in (ROOT / "config/platforms").glob("*.yaml"):
        assert all(f"`{platform.stem}`" in text for text in texts), platform.stem


@pytest.mark.parametrize("path", READMES, ids=lambda path: path.name)
def test_the_arm_in_the_readme_is_one(path):
    (block,) = re.findall(r"^```yaml\n(.*?)^```", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    (arm,) = yaml.safe_load(block)
    assert Arm.model_validate(arm).name not in [
        other["name"] for other in yaml.safe_load((ROOT / "config/platforms/cpu.yaml").read_text())["arms"]
    ]
    assert len(block.splitlines()) <= 5


@pytest.mark.parametrize("name", ["CITATION.cff", ".snakemake-workflow-catalog.yml"])
def test_metadata_has_what_its_readers_ask_for(name):
    found = yaml.safe_load((ROOT / name).read_text())
    if name == "CITATION.cff":
        assert {"cff-version", "message", "title", "authors"} <= set(found)
        assert found["license"] == "Apache-2.0"
    else:
        assert set(found["usage"]) == {"mandatory-flags", "software-stack-deployment"}
        assert {"conda", "apptainer", "apptainer+conda", "report"} == set(found["usage"]["software-stack-deployment"])
