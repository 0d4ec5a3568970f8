"""Bundles are made of locked packages: from wheels beside this test (no index), and from the real index."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import bundle
import pytest
import yaml
from adrbench.paths import ROOT
from bundle_make import BundleError, fetch, lock, matches, read_target, split_lock
from bundle_tiny import target_of_this_host


def wheel(folder: Path, name: str, tag: str = "py3-none-any") -> Path:
    """A wheel of one module, a type stub, a test and a console script."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}-1.0-{tag}.whl"
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}/__init__.py", "def main():\n    print('hello')\n")
        archive.writestr(f"{name}/__init__.pyi", "def main() -> None: ...\n")
        archive.writestr(f"{name}/tests/test_it.py", "")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n")
        archive.writestr(f"{info}/entry_points.txt", f"[console_scripts]\n{name} = {name}:main\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


def write_target(folder: Path, **changes) -> Path:
    here = target_of_this_host()
    role = {"newest": "2026-11-20", "check": "import greet"}
    value = here | {"roles": {"tool": role}, "strip": ["**/*.pyi", "**/tests/**"]} | changes
    folder.mkdir(exist_ok=True)
    (folder / "tiny.yaml").write_text(yaml.safe_dump({key: v for key, v in value.items() if v is not None}))
    return folder


@pytest.fixture
def locked(tmp_path, monkeypatch):
    """A target whose lock names a wheel in a folder; pip reaches no index."""
    path = wheel(tmp_path / "wheels", "greet")
    folder = write_target(tmp_path / "targets")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    (folder / "tiny-tool.lock").write_text(f"greet==1.0 \\\n    --hash=sha256:{digest}\n")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    return read_target("tiny", folder)


def test_packages_are_unpacked_and_slimmed(locked, tmp_path):
    tree = fetch(locked, locked.roles["tool"], tmp_path / "build")
    assert (tree / "site/greet/__init__.py").is_file()
    assert not (tree / "site/greet/__init__.pyi").exists()
    assert not (tree / "site/greet/tests").exists()
    # The target writes its own scripts.
    assert not list((tree / "bin").glob("*"))


def test_a_second_bundle_fetches_nothing_again(locked, tmp_path):
    fetch(locked, locked.roles["tool"], tmp_path / "build")
    for path in (tmp_path / "wheels").iterdir():
        path.unlink()
    fetch(locked, locked.roles["tool"], tmp_path / "build")


def test_another_lock_is_fetched_again(locked, tmp_path):
    fetch(locked, locked.roles["tool"], tmp_path / "build")
    path = wheel(tmp_path / "wheels", "second")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    with open(locked.lock("tool"), "a") as stream:
        stream.write(f"second==1.0 \\\n    --hash=sha256:{digest}\n")
    tree = fetch(locked, locked.roles["tool"], tmp_path / "build")
    assert (tree / "site/second/__init__.py").is_file()


def test_a_package_that_is_not_the_locked_one_is_refused(locked, tmp_path):
    with zipfile.ZipFile(tmp_path / "wheels/greet-1.0-py3-none-any.whl", "a") as archive:
        archive.writestr("greet/more.py", "")
    with pytest.raises(BundleError, match=r"(?s)pip ended with code 1; its log is .*HASH"):
        fetch(locked, locked.roles["tool"], tmp_path / "build")


def test_a_wheel_of_another_platform_does_not_travel(tmp_path, monkeypatch):
    path = wheel(tmp_path / "wheels", "greet", f"cp{sys.version_info[0]}{sys.version_info[1]}-abi3-win_amd64")
    folder = write_target(tmp_path / "targets")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    (folder / "tiny-tool.lock").write_text(f"greet==1.0 \\\n    --hash=sha256:{digest}\n")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    target = read_target("tiny", folder)
    with pytest.raises(BundleError, match=r"(?s)pip ended with code 1.*greet==1.0"):
        fetch(target, target.roles["tool"], tmp_path / "build")


def test_a_missing_lock_says_how_it_is_written(locked, tmp_path):
    locked.lock("tool").unlink()
    with pytest.raises(BundleError, match=r"bundle.py lock --target tiny` writes it"):
        fetch(locked, locked.roles["tool"], tmp_path / "build")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"glibc": 2.35}, r"tiny.yaml: glibc: 2.35 must be like"),
        ({"python": "three"}, r"python: 'three' must be like"),
        ({"machine": None}, r"'machine' is missing"),
        ({"colour": "red"}, r"'colour' is unknown; there are"),
        ({"roles": {"tool": {"newest": "x", "check": "y", "hosts": {}}}}, r"roles.tool: 'hosts' is unknown"),
        ({"roles": {"tool": {"newest": "x", "check": "y", "host": {"torch": 2.1}}}}, r"tool.host.torch: 2.1 must be"),
        ({"strip": "**/*.a"}, r"strip: a list of texts is needed"),
        ({"name": "other"}, r"name: 'other' must equal the file's name"),
        ({"roles": ["tool"]}, r"roles: a mapping of at least one role is needed"),
    ],
)
def test_a_target_that_is_wrong_is_refused_by_key(tmp_path, changes, text):
    with pytest.raises(BundleError, match=text):
        read_target("tiny", write_target(tmp_path, **changes))


def test_an_unknown_target_names_those_that_exist():
    with pytest.raises(BundleError, match="there are h200, local"):
        read_target("nowhere")


@pytest.mark.parametrize("name", sorted(p.stem for p in (ROOT / "envs/bundle").glob("*.yaml")))
def test_every_shipped_target_has_its_locks_with_hashes(name):
    target = read_target(name)
    for role in target.roles:
        binary, source = split_lock(target.lock(role).read_text())
        packages = [line for line in (binary + source).splitlines() if line[:1].isalnum()]
        assert packages
        assert all("==" in line and line.endswith("\\") for line in packages)
        assert target.source(role).is_file()


@pytest.mark.parametrize(
    ("name", "pattern", "fits"),
    [
        ("a/b/tests/c/d.py", "**/tests/**", True),
        ("tests/d.py", "**/tests/**", True),
        ("a/contests/d.py", "**/tests/**", False),
        ("vllm/x/_vllm_fa2_C.abi3.so", "vllm/**/_vllm_fa2_C*", True),
        ("vllm/_moe_C.abi3.so", "vllm/_moe_C*", True),
        ("vllm/y/_moe_C.abi3.so", "vllm/_moe_C*", False),
    ],
)
def test_patterns_of_what_is_left_out(name, pattern, fits):
    assert matches(name, [pattern]) is fits


UV = """#!/bin/sh
# Stands for uv: what it was asked goes to a file, its answer is a lock.
echo "$@" > {asked}; cat > {asked}.in
echo "greet==1.0 \\\\"; echo "    --hash=sha256:{zeros}"
echo "torch==2.0.0 \\\\"; echo "    --hash=sha256:{zeros}"
"""


def test_a_lock_is_written_without_what_the_host_has(tmp_path):
    role = {"newest": "2026-11-20", "check": "import greet", "host": {"torch": "2.0.0"}}
    target = read_target("tiny", write_target(tmp_path, roles={"tool": role}))
    target.source("tool").write_text("greet\n")
    uv = tmp_path / "uv"
    uv.write_text(UV.format(asked=tmp_path / "asked", zeros="0" * 64))
    uv.chmod(0o755)
    assert lock(target, target.roles["tool"], str(uv)) == 1
    asked = (tmp_path / "asked").read_text()
    assert f"--python-version {target.python}" in asked
    assert "--exclude-newer 2026-11-20" in asked
    assert "--generate-hashes" in asked
    assert (tmp_path / "asked.in").read_text() == "greet\n"
    written = target.lock("tool").read_text()
    assert "greet==1.0" in written
    assert "torch==" not in written


def test_a_failing_uv_is_quoted(tmp_path):
    target = read_target("tiny", write_target(tmp_path))
    target.source("tool").write_text("greet\n")
    with pytest.raises(BundleError, match=r"tiny-tool.lock: .*No such file"):
        lock(target, target.roles["tool"], str(tmp_path / "no-uv"))


# The real thing: the locked packages of target `local` from the package index, the project as it is now.

SITE = """
import sys, snakemake, pydantic
assert pydantic.__file__.startswith(sys.prefix), pydantic.__file__
"""


@pytest.mark.slow
def test_the_local_target_is_made_in_pieces_and_works_without_network(target_folder, no_network):
    into, said, _ = target_folder
    assert "analysis: works" in said
    assert (into / "models/small model/config.json").read_text() == "{}"
    python = into / ".envs/analysis/bin/python"
    done = subprocess.run([*no_network, python, "-c", SITE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    # The network is really gone: the namespace has no route.
    code = "import socket; socket.create_connection(('1.1.1.1', 443), 2)"
    assert "unreachable" in subprocess.run([*no_network, python, "-c", code], capture_output=True, text=True).stderr


@pytest.mark.slow
def test_the_installed_project_is_this_one(target_folder):
    into, *_ = target_folder
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-z"], capture_output=True, text=True, check=True).stdout
    names = [name for name in listed.split("\0") if name and (ROOT / name).is_file()]
    assert len(names) > 300
    assert [name for name in names if (into / name).read_bytes() != (ROOT / name).read_bytes()] == []


@pytest.mark.slow
def test_set_up_has_nothing_to_fetch_there(target_folder, no_network):
    into, *_ = target_folder
    done = subprocess.run([*no_network, sys.executable, "envs/setup.py"], cwd=into, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


@pytest.mark.slow
def test_the_workflow_plans_and_measures_there(target_folder, no_network, serve_python):
    """A dry run of everything, and one real job: the device, probed by the installed interpreter."""
    into, *_ = target_folder
    platform = yaml.safe_load((into / "config/platforms/cpu.yaml").read_text())
    platform["serve"]["python"] = serve_python
    (into / "config/platforms/cpu.yaml").write_text(yaml.safe_dump(platform, allow_unicode=True))
    snakemake = [*no_network, into / ".envs/analysis/bin/snakemake", "--cores", "1"]
    planned = subprocess.run([*snakemake, "-n", "reports/adr0011.md"], cwd=into, capture_output=True, text=True)
    assert planned.returncode == 0, planned.stdout[-2000:] + planned.stderr[-2000:]
    done = subprocess.run([*snakemake, "results/cpu/device.json"], cwd=into, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads((into / "results/cpu/device.json").read_text())
    assert found["asked"]["serve_python"] == serve_python
    assert found["measured"]
    shutil.rmtree(into / "results")


@pytest.mark.parametrize("missing", ["wheel", "model"])
def test_what_is_not_there_is_told_before_anything_is_fetched(locked, tmp_path, monkeypatch, missing):
    asked = []
    monkeypatch.setattr(bundle, "fetch", lambda *args: asked.append(args))
    target = dataclasses.replace(locked, wheels={"greet": [], **({"absent": []} if missing == "wheel" else {})})
    model = tmp_path / "no-model" if missing == "model" else None
    words = {"wheel": "has no wheel of absent", "model": r"--model .*no-model: config.json does not exist"}[missing]
    with pytest.raises(BundleError, match=words):
        bundle.components(target, ["tool"], tmp_path / "build", model, tmp_path / "wheels")
    assert asked == []
