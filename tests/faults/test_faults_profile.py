"""Faults of a profile, and of the jobs before a server: real vLLM, torch and transformers."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import time

import pytest
from adrbench.paths import ROOT
from faults_configuration import tiny, write_configuration
from faults_scene import ENGINE, SERVER, WORKER, Job, R, Scene, environment

pytestmark = pytest.mark.faults

# Windows long enough to be struck.
LONG = {"output_tokens": 512}


def profiling(scene: Scene, text: str = "unprofiled window 1", long: bool = True) -> Job:
    """A profile job at one of its steps."""
    scene.forget("profile")
    spec = scene.spec("profile", "auto")
    spec["workload"] |= LONG if long else {}
    job = scene.start("profile", spec)
    job.wait_for(job.log, text)
    return job


KILLED = {"server SIGKILL": SERVER, "EngineCore SIGKILL": ENGINE}


@pytest.mark.parametrize("fault", KILLED)
def test_killed_in_a_window(scene: Scene, case, fault):
    case(fault, "profile, in a window")
    job = profiling(scene)
    os.kill(job.find(KILLED[fault]), signal.SIGKILL)
    scene.refused("profile", "server-died", r"the server ended .*server\.log says", job=job)
    scene.leave("profile")


def test_trace_cut_short(scene: Scene, case):
    """The worker may write 64 KiB a file and no more, so that its trace ends early, as on a full disk."""
    case("trace truncated", "profile, while the trace is written")
    job = profiling(scene, "profiled window", long=False)
    resource.prlimit(job.find(WORKER), resource.RLIMIT_FSIZE, (64 << 10, 64 << 10))
    reasons = "trace-incomplete|no-trace|bad-trace|http|server-died"
    text = r"still incomplete or damaged|wrote no trace|profile again|/stop_profile (answered|did not)|the server ended"
    scene.refused("profile", reasons, text, job=job)
    scene.leave("profile")


def test_ceiling_evidence_cut(scene: Scene, case):
    case("evidence of the ceiling truncated", "profile, at the start", "none started")
    scene.forget("profile")
    path = scene.folder / f"{R}/ceiling.json"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    job = scene.start("profile")
    scene.refused("profile", "no-ceiling", r"ceiling\.json: not valid JSON .*; delete it and rerun its job", job=job)
    assert "starting vllm serve" not in job.said()
    scene.note("asserted", "no server is started")


def test_rerun_on_what_was_left(scene: Scene, case):
    case("all faults of a profile before", "profile, rerun")
    scene.rerun_on_what_was_left("profile")


# --- jobs before a server


def test_model_answer_killed(scene: Scene, case):
    """The model's own answer comes from transformers, in a process of its own."""
    case("transformers SIGKILL", "model, while answering", "none started")
    scene.forget("model")
    (scene.folder / "models").mkdir()
    job = scene.start("model")
    job.wait_for(job.log, "converted")
    while True:
        try:
            os.kill(job.find(r"adrbench\.model\.answer"), signal.SIGKILL)
            break
        except AssertionError:
            assert job.process.poll() is None, job.said()
            time.sleep(0.05)
    scene.refused("model", "answer", r"transformers could not run the model \(-9\)", job=job)
    scene.rerun("model")


def test_model_disk_full(scene: Scene, case):
    """The folder appears whole or not at all."""
    case("disk full", "model, while converting", "none started")
    if os.geteuid() != 0:
        pytest.skip("a file system of its own needs root")
    scene.forget("model")
    models = scene.folder / "models"
    models.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=160m", "tmpfs", str(models)], check=True)
    try:
        job = scene.start("model")
        scene.refused("model", "io", "No space left on device.*free space, then rerun", job=job)
        assert list(models.iterdir()) == []
    finally:
        subprocess.run(["umount", "-l", str(models)], check=True)
    scene.rerun("model")


def test_device_interpreter_killed(scene: Scene, case):
    case("serving interpreter SIGKILL", "device, while asking", "none started")
    scene.forget("device")
    job = scene.start("device")
    job.wait_for(job.log, "asking")
    while True:
        try:
            os.kill(job.find(r"adrbench\.device\.inside"), signal.SIGKILL)
            break
        except AssertionError:
            assert job.process.poll() is None, job.said()
    scene.refused("device", "no-serving-python|no-torch|no-vllm", r"serve\.python is .*python", job=job)
    scene.rerun("device")


def test_another_vllm_declared(scene: Scene, case):
    case("another vLLM declared", "device, while asking", "none started")
    scene.forget("device")
    job = scene.start("device", scene.spec("device", "auto") | {"vllm_version": "0.18.1"})
    text = (
        "serve.vllm_version: declared 0.18.1, found 0.27.0.*name the interpreter of that release, or declare this one"
    )
    scene.refused("device", "wrong-vllm", text, job=job)
    scene.rerun("device")


def test_more_memory_declared_than_there_is(finished, workflow, case, note, tmp_path):
    """The whole workflow on a host that is not the declared one: one refusal, no model, no server."""
    case("declared memory is not this host's", "workflow, before any server", "none started")
    platform = tiny()
    platform["device"]["memory_gib"] = 100_000
    values = write_configuration(tmp_path, platform)
    folder = tmp_path / "work"
    folder.mkdir()
    command = workflow(folder, values, f"{R}/serve/auto/r1/short.json")
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=600)
    said = done.stdout + done.stderr
    assert done.returncode == 1
    assert "platforms/cpu.yaml: device.memory_gib: declared 100000" in said
    note("said", said[said.find("refused (wrong-device)") :][:400])
    assert [json.loads(path.read_text())["reason"] for path in (folder / R / "rejected").iterdir()] == ["wrong-device"]
    assert not (folder / "models").exists()
    assert not (folder / R / "serve").exists()
    note("asserted", "refusal recorded; nothing else is started")
