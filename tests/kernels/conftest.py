"""What the kernels' tests ask of the serving interpreter: scripts beside them that print their facts as JSON.

Scripts about vLLM run inside the Python sources of one version, from the wheels in .envs/wheels (the set-up's) and in
the folder ADRBENCH_WHEELS; versions that are not there are skipped.
"""

from __future__ import annotations

import json
import os
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def facts_of(serve_python: str, root: Path) -> Callable[[str], Any]:
    """Run a script of this folder in the serving interpreter; returns what its last line says, read as JSON."""

    def run(script: str) -> Any:
        env = {**os.environ, "PYTHONPATH": str(root / "pythonpath"), "OMP_NUM_THREADS": "1"}
        command = [serve_python, str(Path(__file__).with_name(script))]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return run


VERSIONS = ("0.18.1", "0.20.2")
"""Of vLLM, that the backend is written against."""


def wheel_of(root: Path, version: str) -> Path | None:
    folders = [root / ".envs/wheels", *([Path(found)] if (found := os.environ.get("ADRBENCH_WHEELS")) else [])]
    return next((wheel for folder in folders for wheel in folder.glob(f"vllm*-{version}-*.whl")), None)


@pytest.fixture(scope="session", params=VERSIONS)
def sources(request: pytest.FixtureRequest, root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the Python files of one version."""
    wheel = wheel_of(root, request.param)
    if wheel is None:
        pytest.skip(f"no wheel of vLLM {request.param}")
    folder = tmp_path_factory.mktemp("vllm")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder, [name for name in archive.namelist() if name.endswith(".py")])
    return folder


@pytest.fixture(scope="session")
def checks(serve_python: str, root: Path, sources: Path) -> Callable[..., Any]:
    """Run a script of this folder inside those sources; returns what it prints after RESULT, read as JSON."""

    def run(*arguments: str, script: str = "backend_checks.py") -> Any:
        env = {**os.environ, "PYTHONPATH": f"{root / 'pythonpath'}{os.pathsep}{sources}", "OMP_NUM_THREADS": "1"}
        command = [serve_python, str(Path(__file__).with_name(script)), *arguments]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        return json.loads(done.stdout.partition("RESULT")[2])

    return run
