"""What is told before set-up installs anything: a platform without its device or vLLM, a torch of the wrong build.

Cannot prove: what pip's real index offers on another host, nor that a loaded driver works (the device job does).
"""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from adrbench.config import load
from adrbench.paths import ROOT

sys.path.append(str(ROOT / "envs"))
preflight = importlib.import_module("preflight")

PLATFORMS = sorted(path.stem for path in (ROOT / "config/platforms").glob("*.yaml"))
ABSENT = next((vendor for vendor in ("nvidia", "hygon", "amd") if not preflight.has_device(vendor)), None)
# Set-up itself is not run here: it would install. How much disk this host has free is none of these tests' business.
STUB = "\n\ndef main():\n    print('set-up of', *sys.argv[1:])\n\n\ncheck_host = lambda: None\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A clone in which nothing is set up; `envs/setup.py` is the real one but for what it would install."""
    shutil.copytree(ROOT / "envs", tmp_path / "envs", ignore=shutil.ignore_patterns("bundle*", "__pycache__"))
    shutil.copytree(ROOT / "config", tmp_path / "config")
    (tmp_path / "pythonpath").mkdir()
    (tmp_path / "pythonpath/adrbench").symlink_to(ROOT / "src")
    with open(tmp_path / "envs/setup.py", "a") as stream:
        stream.write(STUB)
    return tmp_path


def called(project: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The preflight of a clone, by the Python that set-up asks for; pip reads no configuration of this host."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "TORCH_", "PYTHON"))}
    environment |= {"PIP_CONFIG_FILE": os.devnull, "TORCH_BUILD": "any", **variables}
    argv = [sys.executable, "envs/preflight.py", *words]
    return subprocess.run(argv, cwd=project, capture_output=True, text=True, env=environment, timeout=120)


def serves_with(project: Path, python: str, vendor: str = "cpu") -> None:
    """Let platform `cpu` name another interpreter and vendor."""
    file = project / "config/platforms/cpu.yaml"
    text = file.read_text().replace(".envs/serve/bin/python", python).replace("vendor: cpu", f"vendor: {vendor}")
    file.write_text(text)


def interpreter(folder: Path, prints: str, code: int = 0) -> str:
    """A program that answers as an interpreter with, or without, vLLM."""
    path = folder / "python3"
    path.write_text(f"#!/bin/sh\necho {prints}\nexit {code}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("name", PLATFORMS)
def test_the_keys_are_read_as_the_loader_reads_them(name):
    platform = load({"platform": name, "adrs": ["adr0010"]}).platform
    found = preflight.declared(name)
    assert (found.vendor, found.python, found.vllm_version) == (
        platform.device.vendor,
        platform.serve.python,
        platform.serve.vllm_version,
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("serve:\n  python: a/b # c\neval:\n  python: x\n", "a/b"),
        ("eval: {python: x}\nserve: {vllm_version: 1, python: 'a/b', rounds: 2}\n", "a/b"),
        ('serve:\n  python: "/opt/my envs/vllm\'s/bin/python" # c\n', "/opt/my envs/vllm's/bin/python"),
        ("serve:\n  # python: old\n\n  rounds: 1\n", "standard"),
        ("serve:\n  own_python: x\n", "standard"),
    ],
)
def test_a_key_is_that_of_its_section(text, expected):
    assert preflight.value(text, "serve", "python", "standard") == expected


def test_every_role_where_no_platform_is_asked_for(project):
    assert called(project).stdout == "set-up of analysis serve eval wheels\n"


@pytest.mark.parametrize(
    ("name", "expected"), [("cpu", "analysis serve eval wheels"), ("cpu-0181", "analysis serve-0181 eval wheels")]
)
def test_the_role_that_a_platform_serves_with_is_set_up(project, name, expected):
    assert called(project, "--platform", name).stdout == f"set-up of {expected}\n"


def test_the_configurations_platform_is_asked_where_none_is_named(project):
    config = project / "config/config.yaml"
    config.write_text(config.read_text().replace("platform: cpu", 'platform: "cpu-0181" # older'))
    assert "serve-0181" in called(project, "--platform", "").stdout
    config.write_text("platform: H200\n")
    done = called(project, "--platform", "")
    assert done.returncode == 1
    assert "config/config.yaml: platform: 'H200' is no file of config/platforms/; did you mean `h200`?" in done.stderr


def test_an_unknown_platform_is_answered_with_the_nearest(project):
    done = called(project, "--platform", "Nvidia")
    assert (done.returncode, done.stdout) == (1, "")
    assert "PLATFORM: 'Nvidia' is no file" in done.stderr
    assert "did you mean `nvidia`? There are cpu, cpu-0181" in done.stderr


@pytest.mark.skipif(ABSENT is None, reason="this host has every kind of device")
def test_a_host_without_the_device_is_told_before_anything_is_installed(project):
    serves_with(project, "python3", ABSENT)
    done = called(project, "--platform", "cpu")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"config/platforms/cpu.yaml: device.vendor: {ABSENT}, and this host shows no such device" in done.stderr
    assert "/dev/" in done.stderr
    assert "Nothing was installed" in done.stderr
    assert "`make setup` first" in done.stderr


@pytest.mark.parametrize(
    ("vendor", "node"), [("nvidia", "dev/nvidiactl"), ("nvidia", "dev/dxg"), ("amd", "dev/kfd"), ("hygon", "dev/mkfd")]
)
def test_a_loaded_driver_is_seen(vendor, node, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not preflight.has_device(vendor, tmp_path)
    (tmp_path / node).parent.mkdir(parents=True)
    (tmp_path / node).touch()
    assert preflight.has_device(vendor, tmp_path)


@pytest.mark.parametrize(("code", "expected"), [(0, True), (9, False)])
def test_a_card_that_only_the_tool_lists_is_seen(code, expected, tmp_path, monkeypatch):
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\nexit {code}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert preflight.has_device("nvidia", tmp_path) is expected


def test_cpus_need_no_driver(tmp_path):
    assert preflight.has_device("cpu", tmp_path)


def test_an_accelerator_is_not_served_by_what_set_up_installs():
    platform = preflight.Declared("config/platforms/x.yaml", "nvidia", ".envs/serve/bin/python", "0.20.2")
    with pytest.raises(
        preflight.SetupError, match=r"x.yaml: serve.python: .envs/serve/bin/python is what set-up fills"
    ):
        preflight.check_interpreter(platform)


@pytest.mark.parametrize("python", [".envs/nvidia/bin/python", "no-such-program"])
def test_an_interpreter_that_is_not_there_is_named_with_the_commands_that_make_it(project, python):
    serves_with(project, python)
    done = called(project, "--platform", "cpu")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"config/platforms/cpu.yaml: serve.python: {python} does not exist" in done.stderr
    assert "pip install vllm==0.27.0" in done.stderr


def test_an_interpreter_without_vllm_or_with_another_is_named(project, tmp_path):
    serves_with(project, interpreter(tmp_path, "", 1))
    assert "has no vLLM" in called(project, "--platform", "cpu").stderr
    interpreter(tmp_path, "0.9.0")
    assert "serve.vllm_version: declared 0.27.0, found 0.9.0" in called(project, "--platform", "cpu").stderr
    interpreter(tmp_path, "0.27.0+cu129")
    assert called(project, "--platform", "cpu").stdout == "set-up of analysis eval wheels\n"


def test_where_nothing_is_missing_nothing_is_looked_at(project):
    """Reports of evidence from elsewhere are made on any host."""
    serves_with(project, "no-such-program", ABSENT or "cpu")
    stamp = "import setup, sys; print(setup.stamp_text(sys.argv[1]), end='')"
    for role in ("analysis", "eval", "wheels"):
        (project / ".envs" / role).mkdir(parents=True)
        text = subprocess.run(
            [sys.executable, "-c", stamp, role], cwd=project / "envs", capture_output=True, text=True, check=True
        ).stdout
        (project / ".envs" / role / ".complete").write_text(text)
    assert called(project, "--platform", "cpu").stdout == "set-up of analysis eval wheels\n"


def index_of_torch(folder: Path, requires: str) -> str:
    """A package index with one torch, whose requirement is given; its URL."""
    place = folder / "simple/torch"
    place.mkdir(parents=True)
    info = "torch-2.13.0.dist-info"
    with zipfile.ZipFile(place / "torch-2.13.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: torch\nVersion: 2.13.0\n{requires}")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    (place / "index.html").write_text('<a href="torch-2.13.0-py3-none-any.whl">torch-2.13.0-py3-none-any.whl</a>')
    return (folder / "simple").as_uri()


@pytest.mark.parametrize(
    ("requires", "cuda"),
    [
        ("Requires-Dist: filelock\nRequires-Dist: nvidia-cublas-cu12==12.8; platform_system == 'Linux'\n", True),
        ("Requires-Dist: cuda-bindings==13.0\n", True),
        ("Requires-Dist: filelock\nRequires-Dist: sympy\n", False),
    ],
)
def test_a_cuda_build_of_torch_is_refused_before_it_is_fetched(project, tmp_path, requires, cuda):
    done = called(project, TORCH_INDEX=index_of_torch(tmp_path, requires), TORCH_BUILD="cpu")
    if cuda:
        assert (done.returncode, done.stdout) == (1, "")
        assert "pip would take a CUDA build of torch 2.13.0: it requires " in done.stderr
        assert "TORCH_INDEX" in done.stderr
    else:
        assert done.stdout == "set-up of analysis serve eval wheels\n"


def test_an_index_that_does_not_answer_is_left_to_set_up(project, tmp_path):
    done = called(project, TORCH_INDEX=(tmp_path / "nowhere").as_uri(), TORCH_BUILD="cpu")
    assert done.stdout == "set-up of analysis serve eval wheels\n"
