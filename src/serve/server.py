"""The life of one vLLM server: the only place where ``vllm serve`` is started, checked and stopped.

Contract: loopback only, a free port that nobody else listens on, a random API key (``auth.py``) that never
appears in argv, logs, caches or evidence; ready means /health *and* one real completion; resolved settings
are read back and compared with what was asked; nothing is left behind on any path out.
"""

from __future__ import annotations

import http.client
import json
import secrets
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from adrbench.evidence import digest_text, digest_tree
from adrbench.job import JobError, say
from adrbench.paths import ROOT
from adrbench.redact import redact, redact_file
from adrbench.serve import auth
from adrbench.serve.memory import used_bytes, wait_free
from adrbench.serve.plugin import INCOMPLETE
from adrbench.serve.ports import check_sole_listener, claim_port
from adrbench.serve.process import Guarded, job_environment, run_guarded
from adrbench.serve.resolved import check_quantised, check_resolved, read_reports, read_resolved
from adrbench.serve.spec import ServerSpec

SERVED_NAME = "model"
UNAUTHORIZED = 401

# No telemetry, no hub access: a measurement depends on nothing outside the host.
OFFLINE = {
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
}

# What of a plugin stands between a model and what vLLM compiles of it.
PLUGIN_CODE = [
    "src/serve/plugin.py",
    "src/serve/override.py",
    "src/serve/simulation",
    "src/kernels/backend",
    "src/kernels/formats",
]

# vLLM's own sockets between its processes (ZMQ, gloo) listen on the host's address unless told otherwise.
LOOPBACK = {"VLLM_HOST_IP": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo"}


# The engine writes the counts of a simulated KV scheme every half second (serve/simulation/counts.py).
COUNTS_SETTLE_S = 1.5


@dataclass
class Server:
    """A ready server. ``resolved`` is what vLLM made of the arm's settings (see ``resolved.py``)."""

    base_url: str
    api_key: str = field(repr=False)
    model: str
    folder: Path
    resolved: dict[str, Any]
    start_s: float
    process: Guarded

    def alive(self) -> bool:
        return self.process.poll() is None

    def request(self, path: str, body: dict[str, Any] | None = None, timeout_s: float = 60.0) -> Any:
        """One HTTP request; JSON where the answer is JSON, text otherwise.

        Raises:
            JobError: ``http`` when the server answers with an error or not at all.
        """
        return _request(self.base_url + path, self.api_key, body, timeout_s)

    def check_alone(self) -> None:
        """Refuse a port on which another server has begun to listen since this one was ready.

        Raises:
            JobError: ``port-shared``.
        """
        check_sole_listener(int(self.base_url.rpartition(":")[2]), self.process.pid)

    def metrics(self) -> str:
        """The Prometheus text of /metrics."""
        return str(self.request("/metrics"))

    def run_client(
        self,
        argv: Sequence[str],
        log: Path,
        timeout_s: float,
        env: dict[str, str] | None = None,
        cwd: Path | None = None,
    ) -> int:
        """Run a client command beside this server, ended on every path out; its exit code.

        The API key reaches it as OPENAI_API_KEY in its environment.

        Raises:
            JobError: ``client-timeout``, or ``server-died`` when this server ends meanwhile.
        """
        environment = job_environment(OFFLINE | {"OPENAI_API_KEY": self.api_key} | (env or {}))
        try:
            return run_guarded(list(argv), log, environment, timeout_s, [self.process], cwd)
        finally:
            redact_file(log, [self.api_key])


def _request(url: str, api_key: str, body: dict[str, Any] | None, timeout_s: float) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {api_key}", "Content-Type": "application/json"}
    # An empty ProxyHandler: a proxy in the environment must never see loopback traffic.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(urllib.request.Request(url, data, headers), timeout=timeout_s) as answer:
            text = answer.read().decode()
            return json.loads(text) if "json" in answer.headers.get("Content-Type", "") else text
    except urllib.error.HTTPError as error:
        detail = redact(error.read().decode(errors="replace")[:500], [api_key])
        raise JobError("http", f"{url} answered {error.code}: {detail}") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise JobError("http", f"{url} did not answer: {type(error).__name__}: {error}") from None


def command(spec: ServerSpec, port: int, extra_args: Sequence[str] = ()) -> list[str]:
    """The argv of ``vllm serve`` for one arm."""
    return [
        spec.python, "-m", "vllm.entrypoints.cli.main", "serve", str(spec.model),
        "--host", "127.0.0.1", "--port", str(port), "--served-model-name", SERVED_NAME, "--middleware", auth.MIDDLEWARE,
        *spec.args, *extra_args,
    ]  # fmt: skip


def server_environment(spec: ServerSpec, api_key: str, folder: Path) -> dict[str, str]:
    """Environment of the server process: offline, the arm's variables, the plugin's settings, the key."""
    plugin = {"ADRBENCH_PLUGIN": json.dumps(spec.plugin | {"report": str((folder / "plugin.jsonl").resolve())})}
    keys = {auth.VARIABLE: api_key}
    if spec.device_kind == "cpu":  # every start compiles for itself, see auth.py
        keys["VLLM_API_KEY"] = api_key
    environment = job_environment(OFFLINE | LOOPBACK | spec.env | plugin | keys)
    return environment if spec.device_kind == "cpu" else environment | _compiled_apart(spec.plugin, environment)


def compiled_folder(plugin: dict[str, Any]) -> str:
    """Name of the folder for what vLLM compiles with a plugin: one for these settings and this code of ours.

    vLLM's key knows an arm's flags, not our backend, which decides what is compiled: one that stores a step's rows
    inside its forward pass (KIVI) has no launch for it in the graph. Under one key, whichever of two such arms starts
    second would run the other's graph: with one launch too many, which is refused, or with one too few, and an empty
    cache is read. vLLM leaves the variable out of the key (``compile_factors`` in ``vllm/envs.py``).
    """
    code = digest_tree(*(ROOT / path for path in PLUGIN_CODE))
    return f"adrbench-{digest_text(json.dumps([plugin, code], sort_keys=True))[:12]}"


def _compiled_apart(plugin: dict[str, Any], environment: Mapping[str, str]) -> dict[str, str]:
    """That folder in the one where vLLM keeps what it compiles, as vllm/envs.py finds that; none without a plugin."""
    if not plugin:
        return {}
    above = environment.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    root = Path(environment.get("VLLM_CACHE_ROOT") or Path(above) / "vllm").expanduser()
    return {"VLLM_CACHE_ROOT": str(root / compiled_folder(plugin))}


def _wait_ready(spec: ServerSpec, url: str, api_key: str, process: Guarded) -> None:
    """Wait for /health and one completion; an exit, an error answer or the time limit end the wait."""
    deadline = time.monotonic() + spec.ready_timeout_s
    while True:
        if (code := process.poll()) is not None:
            raise JobError(
                "server-start",
                f"vllm serve exited with code {code} before it was ready; {process.log} ends:\n{process.tail()}",
            )
        if time.monotonic() > deadline:
            raise JobError(
                "not-ready",
                f"the server was not ready after {spec.ready_timeout_s:.0f} s (raise serve.ready_timeout_s in the "
                f"platform file if the model is merely large); {process.log} ends:\n{process.tail()}",
            )
        try:
            _request(url + "/health", api_key, None, 5)
            break
        except JobError:
            time.sleep(0.25)
    left = max(10.0, deadline - time.monotonic())
    body = {"model": SERVED_NAME, "prompt": "The capital of France is", "max_tokens": 4, "temperature": 0}
    answer = _request(url + "/v1/completions", api_key, body, left)
    if answer.get("usage", {}).get("completion_tokens", 0) < 1:
        raise JobError("not-ready", f"the first completion came back empty: {json.dumps(answer)[:300]}")


def _check_guarded(url: str) -> None:
    """Refuse a server that answers without the key: not every front end of vLLM runs middleware (0.27 has one in Rust).

    Raises:
        JobError: ``unguarded``: any process of the host could load it while it is measured.
    """
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url + "/v1/models", timeout=30) as answer:
            code = answer.status
    except urllib.error.HTTPError as error:
        code = error.code
    except (OSError, http.client.HTTPException) as error:
        raise JobError("http", f"{url} did not answer: {type(error).__name__}: {error}") from None
    if code != UNAUTHORIZED:
        raise JobError(
            "unguarded",
            f"{url} answered {code} to a request without its key, not {UNAUTHORIZED}: this front end of vLLM runs no "
            "`--middleware`; remove what chooses it (VLLM_USE_RUST_FRONTEND, --grpc) from `serve` or the arm",
        )


# Reasons that say already what became of the server.
TOLD = ("server-died", "client-timeout", "port-shared")
# An engine that died takes its API server down with it within seconds.
DYING_S = 15.0


def _has_died(url: str, api_key: str, process: Guarded) -> bool:
    """Whether the server has ended or is just ending: what failed with it is then not the client's failure."""
    deadline = time.monotonic() + DYING_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            _request(url + "/health", api_key, None, 5)
        except JobError:
            time.sleep(0.25)
        else:
            return False
    return process.poll() is not None


@contextmanager
def serving(spec: ServerSpec | dict[str, Any], folder: Path, extra_args: Sequence[str] = ()) -> Iterator[Server]:
    """Start a server for one arm, yield it when it is ready and checked, and end it on every path out.

    Args:
        spec: the arm as a ``ServerSpec`` or its JSON form.
        folder: where ``server.log`` and ``server.json`` (argv and environment, without the key) go.
        extra_args: arguments of one job, such as the profiler's configuration.

    Raises:
        JobError: ``port-taken``, ``server-start``, ``not-ready``, ``port-shared``, ``unguarded``, or
            ``resolved-differs`` when vLLM resolved a setting otherwise than the arm expects, or
            ``plugin-inactive`` and ``nothing-quantised`` when a KV scheme was not simulated, or
            ``report-lost`` when the server could not write down what was active in it (a full disk).
    """
    spec = spec if isinstance(spec, ServerSpec) else ServerSpec.model_validate(spec)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for stale in ("server.log", "plugin.jsonl", f"plugin.jsonl{INCOMPLETE}", "kv_simulation.json"):
        (folder / stale).unlink(missing_ok=True)
    if not (Path(spec.model) / "config.json").is_file():
        raise JobError(
            "no-model", f"{spec.model}/config.json does not exist; name a Hugging Face model folder as `model`"
        )
    port = claim_port(spec.port)
    api_key = secrets.token_urlsafe(24)
    argv = command(spec, port, extra_args)
    environment = server_environment(spec, api_key, folder)
    declared = dict(sorted((OFFLINE | LOOPBACK | spec.env).items()))
    (folder / "server.json").write_text(json.dumps({"argv": argv, "env": declared, "plugin": spec.plugin}, indent=1))
    say(f"starting vllm serve on port {port}; log {folder / 'server.log'}")
    began, memory_before = time.monotonic(), used_bytes(spec.device_kind)
    resolved: dict[str, Any] = {}
    process = Guarded(argv, folder / "server.log", environment, spec.stop_grace_s)
    url, in_use = f"http://127.0.0.1:{port}", False
    try:
        _wait_ready(spec, url, api_key, process)
        check_sole_listener(port, process.pid)
        _check_guarded(url)
        start_s = time.monotonic() - began
        metrics = str(_request(url + "/metrics", api_key, None, 30))
        version = _request(url + "/version", api_key, None, 30).get("version")
        resolved |= read_resolved(folder, metrics, version)
        check_resolved(spec, resolved)
        say(f"ready after {start_s:.0f} s: {', '.join(f'{k}={v}' for k, v in resolved.items() if k in _SHOWN)}")
        in_use = True
        yield Server(url, api_key, SERVED_NAME, folder, resolved, start_s, process)
        if spec.expect.kv_simulation:
            time.sleep(COUNTS_SETTLE_S)
        if process.poll() is not None:
            raise JobError("server-died", f"the server ended by itself; {process.log} ends:\n{process.tail()}")
    except JobError as error:
        if in_use and error.reason not in TOLD and _has_died(url, api_key, process):
            raise JobError(
                "server-died", f"the server ended ({error}); {process.log} says:\n{process.tail()}"
            ) from None
        raise
    finally:
        process.stop()
        try:
            redact_file(process.log, [api_key])
        finally:  # a full disk refuses it; the next server needs the device all the same
            say("server stopped")
            wait_free(spec.device_kind, memory_before)
    # What was counted and reported in the whole load replaces what there was after the first completion.
    resolved |= read_reports(folder, resolved)
    check_quantised(spec.expect.kv_simulation, resolved["kv_simulation"])


_SHOWN = ("vllm_version", "attention_backend", "kv_cache_dtype", "block_size", "kv_pool_tokens")
