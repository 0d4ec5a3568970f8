"""The life of a real vLLM server on CPU with the embedded model: ready, checked, refused, killed, gone.

Each start of vLLM costs about 20 s, so one server serves several assertions.
"""

from __future__ import annotations

import os
import signal
import sys
import urllib.error
import urllib.request
from pathlib import Path

import psutil
import pytest
from adrbench.job import JobError
from adrbench.serve.server import serving
from waiting import until

pytestmark = pytest.mark.slow


def status(url: str, key: str | None = None) -> int:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {key}"} if key else {})
    try:
        return urllib.request.urlopen(request, timeout=60).status
    except urllib.error.HTTPError as error:
        return error.code


def command_lines(processes: list[psutil.Process]) -> str:
    return " ".join(Path(f"/proc/{p.pid}/cmdline").read_bytes().decode(errors="replace") for p in processes)


def test_server_is_checked_private_and_gone_after_its_engine_is_killed(server_spec, tmp_path):
    spec = server_spec | {"expect": {"attention_backend": "CPU_ATTN", "kv_cache_dtype": "auto"}}
    with pytest.raises(JobError) as caught:  # noqa: PT012 (the server dies inside the block)
        with serving(spec, tmp_path) as server:
            processes = psutil.Process(server.process.pid).children(recursive=True)
            assert server.resolved["vllm_version"] == "0.27.0"
            assert server.resolved["kv_pool_tokens"] > 1000
            for path in ("/v1/models", "/metrics", "/health", "/invocations"):
                assert status(server.base_url + path) == 401
            assert status(server.base_url + "/v1/models", server.api_key) == 200
            port = int(server.base_url.rpartition(":")[2])
            # vLLM's internal sockets too are loopback only, but for torch's rendezvous store, which has no such option.
            listening = {c.laddr for p in processes for c in p.net_connections("tcp") if c.status == "LISTEN"}
            assert {address.ip for address in listening if address.port == port} == {"127.0.0.1"}
            assert len([address for address in listening if address.ip != "127.0.0.1"]) <= 1
            # The key is nowhere a neighbour or a reader of logs could find it.
            assert server.api_key not in command_lines(processes)
            for file in tmp_path.rglob("*"):
                assert not file.is_file() or server.api_key not in file.read_text(errors="replace")
            with pytest.raises(JobError, match="in use") as taken, serving(spec | {"port": port}, tmp_path / "second"):
                pass
            assert taken.value.reason == "port-taken"
            engine = next(p for p in processes if "EngineCore" in p.name() or "EngineCore" in command_lines([p]))
            engine.kill()
            until(lambda: not server.alive())
            server.request("/v1/completions", {"model": "model", "prompt": "x", "max_tokens": 1}, 60)
    assert caught.value.reason in ("http", "server-died")
    assert not psutil.wait_procs(processes, timeout=60)[1]


def test_a_server_that_cannot_start_says_why(server_spec, tmp_path):
    spec = server_spec | {"args": [*server_spec["args"], "--kv-cache-dtype", "int8"]}
    with pytest.raises(JobError, match="invalid choice: 'int8'") as caught, serving(spec, tmp_path):
        pass
    assert caught.value.reason == "server-start"


FAKE = """
import http.server, os, sys
port = int(sys.argv[sys.argv.index("--port") + 1])
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(503); self.end_headers()
    def log_message(self, *a): pass
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


def test_a_server_that_never_gets_ready_is_ended(server_spec, tmp_path):
    """Injected fault: a program that listens and answers 503 for ever stands in for a hanging start."""
    fake = tmp_path / "python"
    fake.write_text(f"#!{sys.executable}\n{FAKE}")
    fake.chmod(0o755)
    with pytest.raises(JobError, match="not ready after 2 s") as caught:
        with serving(server_spec | {"python": str(fake), "ready_timeout_s": 2.0}, tmp_path / "run"):
            pass
    assert caught.value.reason == "not-ready"
    assert not [p for p in psutil.process_iter(["cmdline"]) if str(fake) in " ".join(p.info["cmdline"] or [])]


def test_a_missing_model_folder_is_named(server_spec, tmp_path):
    with pytest.raises(JobError, match=r"nowhere/config.json does not exist") as caught:
        with serving(server_spec | {"model": "/nowhere"}, tmp_path):
            pass
    assert caught.value.reason == "no-model"


def test_interrupt_while_starting_leaves_nothing(server_spec, tmp_path):
    """Ctrl-C before the server is ready: the signal arrives in the middle of the wait."""
    import threading

    before = {p.pid for p in psutil.process_iter()}
    signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
    threading.Timer(4.0, lambda: os.kill(os.getpid(), signal.SIGALRM)).start()
    with pytest.raises(KeyboardInterrupt), serving(server_spec, tmp_path):
        pass
    left = [
        p
        for p in psutil.process_iter(["cmdline"])
        if p.pid not in before and str(tmp_path) in " ".join(p.info["cmdline"] or [])
    ]
    assert not left
