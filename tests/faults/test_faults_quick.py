"""Faults that need no server, or strike the job and its files: real jobs, a stand-in where something must serve.

Run by every ``make test``, and in the matrix of ``make test-faults``. Faults of servers: test_faults_serve.py.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from adrbench import evidence
from adrbench.model.gguf import write_safetensors
from adrbench.paths import ROOT
from faults_disk import own_disk
from faults_scene import CLIENT, SERVER, Job, R, Scene, cells, environment

NONE, STANDIN = "none started", "stand-in"
LOADING = "Starting main benchmark run"


# --- device


def test_wrong_device(quick: Scene, case):
    if Path("/dev/kfd").exists() or Path("/dev/nvidiactl").exists():
        pytest.skip("this host has an accelerator")
    case("declared device is not this host", "device", NONE)
    quick.forget("device")
    declared = {"vendor": "hygon", "arch": "gfx936", "devices": 1, "memory_gib": 64}
    job = quick.start("device", quick.spec("device", "auto") | {"declared": declared})
    quick.refused("device", "wrong-device", "device.vendor: declared hygon, found cpu", "remedy: ", job=job)
    quick.rerun("device")


def test_truncated_device_evidence(quick: Scene, case, note):
    """It stays behind when results travel, by name, and its own job makes it again."""
    case("evidence truncated", "after device", NONE)
    path = quick.folder / quick.output("device")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    command = [sys.executable, "-m", "adrbench.archive", "pack", "--output", str(quick.folder / "out.tar.xz")]
    done = subprocess.run(command, cwd=quick.folder, env=environment(), capture_output=True, text=True, timeout=120)
    line = next(line for line in (done.stdout + done.stderr).splitlines() if "device.json" in line)
    assert "left out: " in line
    assert "not valid JSON" in line
    assert "delete it and rerun its job" in line
    note("said", line)
    path.unlink()
    quick.rerun("device")


DISK = {
    "disk full": (
        lambda disk: disk.fill(),
        lambda disk: disk.free(),
        "No space left on device.*free space, then rerun",
    ),
    "results read-only": (
        lambda disk: disk.read_only(True),
        lambda disk: disk.read_only(False),
        "Read-only file system: .*fix permissions, then rerun",
    ),
}


# One stage for each fault in `make test`; the other pairs in the matrix alone.
PAIRS = [
    ("device", "disk full"),
    ("serve", "results read-only"),
    *(
        pytest.param(*pair, marks=pytest.mark.faults)
        for pair in (
            ("device", "results read-only"),
            ("model", "disk full"),
            ("model", "results read-only"),
            ("serve", "disk full"),
        )
    ),
]


@pytest.mark.parametrize(("stage", "fault"), PAIRS)
def test_disk_at_the_start(quick: Scene, case, stage, fault):
    """The refusal cannot be recorded either; it is said, and nothing is started."""
    case(fault, f"{stage}, at the start", STANDIN if stage == "serve" else NONE)
    spoil, repair, text = DISK[fault]
    quick.forget(stage)
    with own_disk(quick.folder) as disk:
        spoil(disk)
        job = quick.start(stage)
        quick.refused(stage, None, text, job=job)
        assert "could not be recorded" in job.said()
        repair(disk)
        quick.rerun(stage)


# --- model


def weights(folder: Path, damage: str) -> None:
    path = folder / "models/cpu/model.safetensors"
    if damage == "truncated":
        path.write_bytes(path.read_bytes()[:-20])
    elif damage == "header":
        data = path.read_bytes()
        path.write_bytes(struct.pack("<Q", 1 << 40) + data[8:])
    else:
        values = np.ones((8, 8), np.float32)
        values[3] = np.nan
        write_safetensors({"a": values}, path)


MODELS = {
    "truncated": ("weights truncated", r"model\.safetensors: .* truncated; copy it again"),
    "header": ("weights' header corrupt", r"model\.safetensors: not a safetensors file .*; copy it again"),
    "nan": ("NaN in the weights", r"model\.safetensors: tensor a: 8 of 64 values are not a number"),
}


@pytest.mark.parametrize("damage", MODELS)
def test_model_folder(quick: Scene, case, damage):
    fault, text = MODELS[damage]
    case(fault, "model", NONE)
    quick.forget("model")
    weights(quick.folder, damage)
    quick.refused("model", "bad-model", text, job=quick.start("model"))
    shutil.copy(quick.base / "models/cpu/model.safetensors", quick.folder / "models/cpu")
    quick.rerun("model")


def test_model_package(quick: Scene, case):
    case("package of the embedded model cut short", "model", NONE)
    quick.forget("model")
    wheel = quick.folder / "model.whl"
    wheel.write_bytes(b"PK\3\4" + b"\0" * 1000)
    spec = quick.spec("model", "auto") | {"source": "embedded", "wheel": str(wheel)}
    quick.refused(
        "model", "bad-wheel", r"SHA-256 is .*; delete it and run `make setup`", job=quick.start("model", spec)
    )
    quick.rerun("model")


# --- serve, before a server is started


def test_port_taken(quick: Scene, case):
    case("port taken by a program", "serve, at the start", STANDIN)
    quick.forget("serve")
    spec = quick.spec("serve", "auto")
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        spec["server"]["port"] = other.getsockname()[1]
        text = rf"serve\.port: {spec['server']['port']} is in use .*; choose another or leave it out"
        quick.refused("serve", "port-taken", text, job=quick.start("serve", spec))
    quick.rerun("serve")


def test_model_evidence_cut(quick: Scene, case):
    """It must be found before anything is measured, not after."""
    case("evidence of the model truncated", "serve, at the start", STANDIN)
    quick.forget("serve")
    path = quick.folder / f"{R}/model.json"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    job = quick.start("serve")
    quick.refused("serve", "evidence", r"model\.json: not valid JSON .*; delete it and rerun its job", job=job)
    assert "starting vllm serve" not in job.said()
    path.write_bytes(whole)
    quick.rerun("serve")


def test_half_written_raw_files(quick: Scene, case, note):
    """What a killed job may leave: none of it passes for this run's."""
    case("raw files half written by a killed job", "serve, at the start", STANDIN)
    folder = quick.folder / quick.raw("serve")
    (quick.folder / quick.output("serve")).unlink()
    for name in (
        "short/bench.json",
        "short/prompts.jsonl",
        "short/after.prom",
        "server/plan.json",
        "server/server.log",
    ):
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[: len(data) // 2])
    (folder / ".short.json.abc123").write_text('{"schema_version": 1, "sta')
    quick.rerun("serve")


# --- serve, while the load runs


def loading(quick: Scene, load_s: float = 3, **options) -> Job:
    """A serving job whose load has begun and goes on for ``load_s`` seconds: long enough for a busy host to strike."""
    quick.forget("serve")
    env = {"STANDIN_LOAD_S": str(load_s)} | options.pop("env", {})
    job = quick.start("serve", env=env, **options)
    job.wait_for(quick.folder / quick.raw("serve") / "server/client.log", LOADING)
    return job


KILLED = {
    "client": (CLIENT, "client-failed", "ended with code 137; .*client.log ends"),
    "server": (SERVER, "server-died", "the server (exited with code 137|ended).*server.log"),
}


@pytest.mark.parametrize("who", KILLED)
def test_killed_while_loading(quick: Scene, case, who):
    case(f"{who} SIGKILL", "serve, while loading", STANDIN)
    words, reason, text = KILLED[who]
    job = loading(quick, load_s=60)
    os.kill(job.find(words), signal.SIGKILL)
    quick.refused("serve", reason, text, job=job)
    quick.rerun("serve")


def test_engine_dies_while_loading(quick: Scene, case):
    """The client's requests fail before the server has ended: the refusal must name the server, not the client."""
    case("engine dies, server ends later", "serve, while loading", STANDIN)
    quick.forget("serve")
    job = quick.start("serve", env={"STANDIN_ENGINE_DIES": "1"})
    text = r"the server (exited|ended).*server\.log"
    quick.refused("serve", "server-died", text, job=job)
    quick.rerun("serve")


def test_job_killed_while_loading(quick: Scene, case):
    """No process of the job is left to clean up: the guardians see its end."""
    case("job SIGKILL", "serve, while loading", STANDIN)
    job = loading(quick, load_s=60)
    job.process.kill()
    assert job.finish() == -signal.SIGKILL
    quick.nothing_stays(job, quick.folder / quick.raw("serve") / "server", limit_s=60)
    assert not (quick.folder / quick.output("serve")).exists()
    quick.others_untouched("serve")
    quick.rerun("serve")


def test_disk_full_while_loading(quick: Scene, case):
    case("disk full", "serve, while loading", STANDIN)
    with own_disk(quick.folder) as disk:
        job = loading(quick)
        disk.fill()
        job.finish()
        disk.free()
        quick.refused("serve", None, "No space left on device", job=job)
        quick.rerun("serve")


def test_another_server_joins_the_port(quick: Scene, case):
    """vLLM listens with SO_REUSEPORT, so a second server starts without an error and takes a part of the requests."""
    case("another server joins the port", "serve, while loading", STANDIN)
    job = loading(quick)
    told = json.loads((quick.folder / quick.raw("serve") / "server/server.json").read_text())["argv"]
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", int(told[told.index("--port") + 1])))
        other.listen()

        def refuse() -> None:
            while True:
                try:
                    other.accept()[0].close()
                except OSError:
                    return

        threading.Thread(target=refuse, daemon=True).start()
        text = "is also served by another process .*; end the other server or set serve.port|did not answer"
        assert job.finish() == 1
        other.shutdown(socket.SHUT_RDWR)
    quick.refused("serve", "port-shared", text, job=job)
    quick.rerun("serve")


def test_not_a_number_in_the_result(quick: Scene, case):
    case("client reports NaN", "serve, after loading", STANDIN)
    quick.forget("serve")
    job = quick.start("serve", env={"STANDIN_NAN": "1"})
    text = r"short\.json: measured\.ttft_ms\.\w+ is nan: not JSON compliant.*rerun it"
    quick.refused("serve", "evidence", text, job=job)
    quick.rerun("serve")


CLOCK = """
import os, time
_real = time.time
def stepped():
    return _real() + ({step} if os.path.exists({now!r}) else 0)
time.time = stepped
import datetime as _module
class Stepped(_module.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(stepped(), tz)
_module.datetime = Stepped
"""


@pytest.mark.parametrize("step", [-7200, pytest.param(7200, marks=pytest.mark.faults)], ids=["back", "forth"])
def test_clock_step(quick: Scene, case, note, tmp_path_factory, step):
    """The wall clock of all processes of the job is set while the load runs: durations come from the monotonic one."""
    case(f"clock set {'back' if step < 0 else 'forward'} by two hours", "serve, while loading", STANDIN)
    hook = tmp_path_factory.mktemp("clock")
    (hook / "sitecustomize.py").write_text(CLOCK.format(step=step, now=str(hook / "now")))
    job = loading(quick, env={"PYTHONPATH": f"{hook}:{ROOT / 'pythonpath'}"})
    (hook / "now").touch()
    assert job.finish() == 0, job.said()
    found = evidence.read(quick.folder / quick.output("serve"))
    took = datetime.fromisoformat(found.finished_at) - datetime.fromisoformat(found.started_at)
    assert 0.9 < took.total_seconds() < 3600
    assert 0 < found.measured["start_s"] < 3600
    note("asserted", "durations are those of the monotonic clock")
    quick.nothing_stays(job, quick.folder / quick.raw("serve") / "server")
    quick.others_untouched("serve")
    assert cells(quick.folder / quick.output("serve")) == cells(quick.base / quick.output("serve"))
    note("asserted", "same deterministic cells as without the step")
