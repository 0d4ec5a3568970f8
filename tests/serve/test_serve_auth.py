"""The key of a server: asked for on every path, and nothing that compiled code depends on."""

from __future__ import annotations

import asyncio
import json
import secrets
import subprocess
from pathlib import Path

import pytest
from adrbench.serve import auth, server
from adrbench.serve.server import server_environment
from adrbench.serve.spec import ServerSpec

KEY = "k" * 32


def answer(monkeypatch, scope):
    """What the middleware sends for a request, and whether the application behind it was reached."""
    monkeypatch.setenv(auth.VARIABLE, KEY)
    sent, reached = [], []

    async def application(scope, receive, send):
        reached.append(scope["type"])

    async def send(message):
        sent.append(message)

    asyncio.run(auth.KeyRequired(application)(scope, None, send))
    return sent, bool(reached)


def request(*headers, path="/v1/completions", kind="http"):
    return {"type": kind, "method": "POST", "path": path, "headers": list(headers)}


@pytest.mark.parametrize("name", [b"authorization", b"Authorization"])
def test_the_key_opens(monkeypatch, name):
    assert answer(monkeypatch, request((name, f"Bearer {KEY}".encode()))) == ([], True)


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(b"authorization", b"Bearer ")],
        [(b"authorization", f"Bearer {KEY}x".encode())],
        [(b"authorization", KEY.encode())],
        [(b"authorization", b"Bearer \xff\xfe")],
        [(b"x-api-key", f"Bearer {KEY}".encode())],
        [(b"authorization", f"Bearer {KEY}".encode()), (b"authorization", b"Bearer other")],
    ],
)
@pytest.mark.parametrize("path", ["/v1/completions", "/invocations", "/metrics", "/start_profile"])
def test_anything_else_is_refused_on_every_path(monkeypatch, headers, path):
    (start, body), reached = answer(monkeypatch, request(*headers, path=path))
    assert not reached
    assert start["status"] == 401
    assert json.loads(body["body"]) == {"error": "Unauthorized"}


def test_websockets_ask_for_it_and_the_life_of_the_server_does_not(monkeypatch):
    assert answer(monkeypatch, request(kind="websocket")) == ([{"type": "websocket.close", "code": 1008}], False)
    assert answer(monkeypatch, {"type": "lifespan"}) == ([], True)


def test_without_a_key_nothing_is_served(monkeypatch):
    monkeypatch.delenv(auth.VARIABLE, raising=False)
    with pytest.raises(RuntimeError, match="ADRBENCH_API_KEY is not set"):
        auth.KeyRequired(None)


INT8 = {"mechanism": "L3", "backend": "CUSTOM", "scheme": "int8_per_token_head"}
FACTORS = "import json, vllm.envs as envs; print(json.dumps(envs.compile_factors(), default=str, sort_keys=True))"


@pytest.mark.parametrize(
    ("plugin", "kind", "same"), [({}, "nvidia", True), (INT8, "amd", True), ({}, "cpu", False), (INT8, "cpu", False)]
)
def test_two_starts_on_a_device_find_the_same_compiled_code(serve_python, tmp_path, plugin, kind, same):
    """By vLLM's own list of what compiled code depends on; it held the key, and every start compiled anew."""
    spec, found, folders = ServerSpec(python=serve_python, model="/m", device_kind=kind, plugin=plugin), [], set()
    for name in ("first", "second"):
        environment = server_environment(spec, secrets.token_urlsafe(24), tmp_path / name)
        environment |= {"VLLM_RPC_BASE_PATH": str(tmp_path / name), "TMPDIR": str(tmp_path)}
        command = [serve_python, "-c", FACTORS]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        found.append(json.loads(done.stdout.splitlines()[-1]))
        folders.add(environment.get("VLLM_CACHE_ROOT"))
    assert (found[0] == found[1]) is same
    assert len(found[0]) > 50
    assert len(folders) == 1


def kept_in(plugin, monkeypatch, **env):
    monkeypatch.setenv("XDG_CACHE_HOME", "/c")
    spec = ServerSpec(python="python", model="/m", plugin=plugin, env=env, device_kind="nvidia")
    return server_environment(spec, KEY, Path("/f")).get("VLLM_CACHE_ROOT")


def test_arms_whose_plugins_differ_do_not_share_compiled_code(monkeypatch):
    """vLLM's key knows the flags, which are the same: CUSTOM, auto. Its graph is not: KIVI is stored in the forward
    pass, INT8 by a launch before it, so that one would run the other's. What this cannot show is such a start."""
    others = [INT8, INT8 | {"scheme": "kivi4"}, {"mechanism": "L3", "backend": "TRITON_ATTN"}, {"kv_simulation": {}}]
    folders = [kept_in(plugin, monkeypatch) for plugin in others]
    assert len({*folders, kept_in({}, monkeypatch)}) == 1 + len(others)
    assert {str(Path(folder).parent) for folder in folders} == {"/c/vllm"}
    chosen = kept_in(INT8, monkeypatch, VLLM_CACHE_ROOT="/d")
    assert chosen == f"/d/{Path(folders[0]).name}"
    assert kept_in({}, monkeypatch, VLLM_CACHE_ROOT="/d") == "/d"
    # A change of ours to what is compiled is not vLLM's to see, either.
    monkeypatch.setattr(server, "PLUGIN_CODE", ["src/serve/auth.py"])
    assert kept_in(INT8, monkeypatch) != folders[0]
