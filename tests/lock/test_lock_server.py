"""The rendered script starts a real server on CPU: health, one completion, and an end by TERM.

Cannot prove anything of a device, or of the plugin's mechanisms there.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from adrbench.lock.mechanism import mechanism_of
from adrbench.lock.render import files
from adrbench.lock.spec import LockSpec
from adrbench.paths import PYTHONPATH

pytestmark = pytest.mark.slow
KEY = "a-key-of-a-test"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def ask(port: int, path: str, body: dict[str, Any] | None = None) -> Any:
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", json.dumps(body).encode() if body else None, headers
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    text = opener.open(request, timeout=60).read().decode()
    return json.loads(text) if text else text


def wait_healthy(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline and process.poll() is None:
        try:
            ask(port, "/health")
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    pytest.fail(f"not healthy; the log ends:\n{log.read_text()[-3000:]}")


@pytest.fixture
def sockets() -> Iterator[str]:
    """For the sockets that vLLM's processes leave at an ordinary end; a short path, as a socket's must be."""
    with tempfile.TemporaryDirectory() as folder:
        yield folder


def test_the_locked_script_serves(server_spec: dict[str, Any], tmp_path: Path, sockets: str) -> None:
    keys = ("python", "model", "args", "env")
    server = {key: server_spec[key] for key in keys} | {"plugin": {"mechanism": "L3", "backend": "CPU_ATTN"}}
    spec = LockSpec.model_validate(
        {
            "platform": "cpu",
            "adr": "adr0011",
            "number": "0011",
            "verdict": "unused",
            "mechanisms": ["register"],
            "arms": {"own": server},
            "package": str(PYTHONPATH),
        }
    )
    script = tmp_path / "serve.sh"
    script.write_text(files(spec, "own", "own backend", mechanism_of(spec.arms["own"]), "0" * 64)["serve.sh"])
    script.chmod(0o755)
    port, log = free_port(), tmp_path / "server.log"
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("VLLM", "ADRBENCH", "SERVE"))}
    environment = clean | {"SERVE_PORT": str(port), "VLLM_API_KEY": KEY, "VLLM_RPC_BASE_PATH": sockets}
    with open(log, "wb") as stream:
        process = subprocess.Popen(
            [str(script)], env=environment, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        wait_healthy(port, process, log)
        body = {"model": "model", "prompt": "The capital of France is", "max_tokens": 4, "temperature": 0}
        answer = ask(port, "/v1/completions", body)
        assert answer["usage"]["completion_tokens"] == 4
        assert "Paris" in answer["choices"][0]["text"]
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(30)
    with pytest.raises((urllib.error.URLError, OSError)):
        ask(port, "/health")
