"""What the kernels' tests ask of the serving interpreter: scripts beside them that print their facts as JSON."""

from __future__ import annotations

import json
import os
import subprocess
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
