"""Faults of a serving round, against real vLLM: its processes, its memory, its port, its model, its disk.

Three moments: at the start, before the server is ready, and while the load runs. A rerun costs a start of vLLM: the
last case makes it once, in a folder that holds what all of them left. Each fault's own rerun, on the stand-in, is in
test_faults_quick.py.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from adrbench import evidence
from adrbench.model import provide
from adrbench.serve.server import serving
from faults_disk import own_disk
from faults_scene import CLIENT, ENGINE, SERVER, SIGKILLED, Job, Scene, patience

pytestmark = pytest.mark.faults

LOADING = "Starting main benchmark run"
# A load long enough to be struck; the rerun has the run's own.
LONG = {"prompts": 64, "output_tokens": 64}


@dataclass(frozen=True)
class Signal:
    """A signal to one process of a serving job at one moment."""

    words: str
    number: int
    reason: str
    text: str
    change: Callable[[dict[str, Any], float], None] = lambda spec, limit: None


def short_client(spec: dict[str, Any], limit: float) -> None:
    spec["serve"]["client_timeout_s"] = limit
    spec["server"]["stop_grace_s"] = 2.0


STARTING = {
    "server SIGKILL": Signal(
        SERVER, signal.SIGKILL, "server-start", f"exited with code {SIGKILLED} before it was ready; .*server.log ends"
    ),
    "EngineCore SIGKILL": Signal(
        ENGINE, signal.SIGKILL, "server-start", "exited with code 1 before it was ready; .*server.log ends"
    ),
}
TIMEOUT = "was still running after .* its log .*client.log says .*serve.client_timeout_s"
LOADED = {
    "server SIGKILL": Signal(SERVER, signal.SIGKILL, "server-died", "the server (exited|ended).*server.log"),
    "EngineCore SIGKILL": Signal(ENGINE, signal.SIGKILL, "server-died", "the server (exited|ended).*server.log"),
    "client SIGKILL": Signal(
        CLIENT, signal.SIGKILL, "client-failed", f"ended with code {SIGKILLED}; .*client.log ends"
    ),
    "server hangs (SIGSTOP)": Signal(SERVER, signal.SIGSTOP, "client-timeout", TIMEOUT, short_client),
    "EngineCore hangs (SIGSTOP)": Signal(ENGINE, signal.SIGSTOP, "client-timeout", TIMEOUT, short_client),
}


@pytest.mark.parametrize("fault", STARTING)
def test_before_ready(scene: Scene, case, fault):
    case(fault, "serve, before ready")
    struck = STARTING[fault]
    scene.forget("serve")
    job = scene.start("serve")
    job.wait_for(scene.folder / scene.raw("serve") / "server/server.log", "Initializing a V1 LLM")
    os.kill(job.find(struck.words), struck.number)
    scene.refused("serve", struck.reason, struck.text, job=job)
    scene.leave("serve")


def loading(scene: Scene, change: Callable[[dict[str, Any], float], None] | None = None, **options: Any) -> Job:
    """A serving job in the middle of its load."""
    scene.forget("serve")
    spec = scene.spec("serve", "auto")
    spec["tiers"] = [tier | LONG for tier in spec["tiers"]]
    if change:
        change(spec, patience(scene))
    job = scene.start("serve", spec, **options)
    job.wait_for(scene.folder / scene.raw("serve") / "server/client.log", LOADING)
    return job


@pytest.mark.parametrize("fault", LOADED)
def test_while_loading(scene: Scene, case, fault):
    case(fault, "serve, while loading")
    struck = LOADED[fault]
    job = loading(scene, struck.change)
    os.kill(job.find(struck.words), struck.number)
    scene.refused("serve", struck.reason, struck.text, job=job)
    scene.leave("serve")


def test_disk_full_while_loading(scene: Scene, case):
    case("disk full", "serve, while loading")
    with own_disk(scene.folder) as disk:
        job = loading(scene, lambda spec, limit: spec["tiers"][0].update(prompts=16, output_tokens=16))
        disk.fill()
        job.finish()
        disk.free()
        scene.refused("serve", None, "No space left on device", job=job)
        scene.rerun("serve")


def test_killed_job_while_loading(scene: Scene, case):
    case("job SIGKILL", "serve, while loading")
    job = loading(scene)
    job.process.kill()
    assert job.finish() == -signal.SIGKILL
    scene.nothing_stays(job, scene.folder / scene.raw("serve") / "server", limit_s=60)
    assert not (scene.folder / scene.output("serve")).exists()
    scene.others_untouched("serve")
    scene.leave("serve")


# --- refusals while the server starts


def set_args(*words: str) -> Callable[[dict[str, Any], Path], dict[str, Any]]:
    def change(spec: dict[str, Any], _: Path) -> dict[str, Any]:
        spec["server"]["args"] += words
        return {}

    return change


def set_env(**values: str) -> Callable[[dict[str, Any], Path], dict[str, Any]]:
    def change(spec: dict[str, Any], _: Path) -> dict[str, Any]:
        spec["server"]["env"] |= values
        return {}

    return change


def less_memory(spec: dict[str, Any], _: Path) -> dict[str, Any]:
    """Address space that the weights and the KV pool do not fit into, as a memory limit of the host."""
    spec["server"]["env"]["VLLM_CPU_KVCACHE_SPACE"] = "6"
    return {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_AS, (5 << 30, 5 << 30))}


def copied_model(spec: dict[str, Any], model: Path, damage: Callable[[Path], None]) -> dict[str, Any]:
    """A damage that the check of the model does not see: of a folder above 4 GiB it reads headers only."""
    shutil.copytree(spec["server"]["model"], model)
    damage(model / "model.safetensors")
    spec["server"]["model"] = str(model)
    digest = evidence.read(model.parent / "results/cpu/model.json").measured["digest"]
    evidence.write_json(model.parent / provide.CACHE / "model-cpu.json", provide.seen_as(model, digest))
    return {}


def cut(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def not_a_number(path: Path) -> None:
    """NaN in the last norm: every logit of every token is NaN."""
    data = bytearray(path.read_bytes())
    (length,) = struct.unpack("<Q", data[:8])
    begin, end = (
        8 + length + offset for offset in json.loads(data[8 : 8 + length])["model.norm.weight"]["data_offsets"]
    )
    data[begin:end] = np.full((end - begin) // 2, 0x7FC0, "<u2").tobytes()
    path.write_bytes(bytes(data))


REFUSED = {
    "KV cache larger than the host's memory": (
        set_env(VLLM_CPU_KVCACHE_SPACE="100000"),
        "server-start",
        r"exited with code \d+ before it was ready; .*server.log ends",
    ),
    "KV cache too small for one request": (
        set_args("--num-gpu-blocks-override", "1"),
        "server-start",
        r"exited with code \d+ before it was ready; .*server.log ends.*KV cache",
    ),
    "memory refused by a limit": (
        less_memory,
        "server-start",
        r"exited with code \d+ before it was ready; .*server.log ends",
    ),
    "weights cut after they were checked": (
        lambda spec, model: copied_model(spec, model, cut),
        "server-start",
        r"exited with code \d+ before it was ready; .*server.log ends",
    ),
    "NaN logits": (
        lambda spec, model: copied_model(spec, model, not_a_number),
        "nan-logits",
        r"every prompt was answered by .* is no number.*check the model folder, then the kernels' evidence",
    ),
    "server answers errors": (
        set_args("--max-model-len", "48"),
        "incomplete",  # `vllm bench serve` exits 0 with no successful request
        r"tier short: 0 of 8 requests completed, 8 failed; the first error: Bad Request",
    ),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_refused_start(scene: Scene, case, fault):
    case(fault, "serve, at the start" if fault != "server answers errors" else "serve, while loading")
    change, reason, text = REFUSED[fault]
    spec = scene.spec("serve", "auto")
    options = change(spec, scene.folder / "damaged")
    scene.forget("serve")
    scene.refused("serve", reason, text, job=scene.start("serve", spec, **options))
    scene.leave("serve")


def test_hanging_start(scene: Scene, case):
    case("server hangs (SIGSTOP)", "serve, before ready")
    scene.forget("serve")
    spec = scene.spec("serve", "auto")
    spec["server"] |= {"ready_timeout_s": 8.0, "stop_grace_s": 1.0}
    job = scene.start("serve", spec)
    job.wait_for(scene.folder / scene.raw("serve") / "server/server.json", "argv")
    while True:
        try:
            os.kill(job.find(SERVER), signal.SIGSTOP)
            break
        except AssertionError:
            assert job.process.poll() is None, job.said()
    scene.refused("serve", "not-ready", r"not ready after 8 s \(raise serve.ready_timeout_s .*server.log ends", job=job)
    scene.leave("serve")


def test_port_taken_by_another_vllm(scene: Scene, case):
    """vLLM shares a port without a word: two servers would answer the requests in turn."""
    case("port taken by another vLLM", "serve, at the start")
    scene.forget("serve")
    spec = scene.spec("serve", "auto")
    with serving(spec["server"], scene.folder / "other") as other:
        port = int(other.base_url.rpartition(":")[2])
        scene.before = scene.before | scene.living()
        spec["server"]["port"] = port
        job = scene.start("serve", spec)
        assert job.finish() == 1
        assert other.alive()
        assert other.request("/health") == ""
    text = rf"serve\.port: {port} is in use .*; choose another or leave it out"
    scene.refused("serve", "port-taken", text, job=job)
    scene.note("asserted", "the other server is undisturbed")
    scene.leave("serve")


def two_layers(path: Path) -> None:
    """The same model with two of its layers, so that compiling it takes seconds."""
    config = path.parent / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"num_hidden_layers": 2}))
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    kept, body, offset = {}, [], 0
    for name, tensor in json.loads(data[8 : 8 + length]).items():
        layer = re.search(r"\.layers\.(\d+)\.", name)
        if name == "__metadata__" or (layer and int(layer[1]) > 1):
            continue
        begin, end = (8 + length + at for at in tensor["data_offsets"])
        kept[name] = tensor | {"data_offsets": [offset, offset + end - begin]}
        body.append(data[begin:end])
        offset += end - begin
    header = json.dumps(kept).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + b"".join(body))


def test_stale_compile_cache(scene: Scene, case, tmp_path):
    """Files of an earlier compilation that were cut: the server compiles again or refuses, but never serves them."""
    case("compile cache cut short", "serve, at the start")
    cache = tmp_path / "cache"
    names = {"XDG_CACHE_HOME": "", "TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}
    env = {name: str(cache / folder) for name, folder in names.items()}
    spec = scene.spec("serve", "auto")
    copied_model(spec, scene.folder / "small", two_layers)
    spec["server"]["args"] += ["--no-enforce-eager"]
    spec["server"]["ready_timeout_s"] = 900.0
    scene.forget("serve")
    job = scene.start("serve", spec, env=env)
    assert job.finish(1200) == 0, job.said()[-3000:]
    first = evidence.read(scene.folder / scene.output("serve")).measured["answers"]
    compiled = [path for path in cache.rglob("*") if path.is_file() and path.stat().st_size > 0]
    assert compiled, "nothing was compiled"
    for path in compiled:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    scene.forget("serve")
    job = scene.start("serve", spec, env=env)
    if job.finish(1200) == 0:  # the rerun of a job that succeeds would be the first run again
        assert evidence.read(scene.folder / scene.output("serve")).measured["answers"] == first
        scene.note("asserted", "compiled again: same answers")
        scene.nothing_stays(job, scene.folder / scene.raw("serve") / "server")
        scene.others_untouched("serve")
        return
    scene.refused("serve", "server-start", r"exited with code .*server.log ends", job=job)
    shutil.rmtree(cache)
    scene.forget("serve")
    job = scene.start("serve", spec, env=env)
    assert job.finish(1200) == 0, job.said()[-3000:]
    assert evidence.read(scene.folder / scene.output("serve")).measured["answers"] == first
    scene.note("asserted", "rerun without the cache: same answers")


def test_rerun_on_what_was_left(scene: Scene, case):
    case("all faults of a real round before", "serve, rerun")
    scene.rerun_on_what_was_left("serve")
