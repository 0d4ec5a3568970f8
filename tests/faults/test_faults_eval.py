"""Faults of an accuracy run, against real vLLM and the real OpenCompass."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
from adrbench import evidence
from faults_disk import own_disk
from faults_scene import ENGINE, OPENCOMPASS, SERVER, SIGKILLED, Job, Scene, patience

pytestmark = pytest.mark.faults

ASKING = "Starting inference process"
LOG = "opencompass.log"


def asking(scene: Scene, change: Callable[[dict[str, Any]], None] | None = None) -> Job:
    """An accuracy job in the middle of its questions: more of them than in the finished run."""
    scene.forget("eval")
    spec = scene.spec("eval", "auto")
    spec["tasks"] = [task | {"samples": 8} for task in spec["tasks"]]
    if change:
        change(spec)
    job = scene.start("eval", spec)
    job.wait_for(scene.folder / scene.raw("eval") / LOG, ASKING)
    return job


def short(scene: Scene) -> Callable[[dict[str, Any]], None]:
    def change(spec: dict[str, Any]) -> None:
        spec["timeout_s"] = int(patience(scene))
        spec["server"]["stop_grace_s"] = 2.0

    return change


DIED = "the server (exited|ended).*server.log"
TIMEOUT = r"was still running after .* its log .*opencompass.log says .*eval\.timeout_s"
FAULTS = {
    "server SIGKILL": (SERVER, signal.SIGKILL, "server-died", DIED, False),
    "EngineCore SIGKILL": (ENGINE, signal.SIGKILL, "server-died", DIED, False),
    "OpenCompass SIGKILL": (
        OPENCOMPASS,
        signal.SIGKILL,
        "partial-eval",
        f"OpenCompass exited with code {SIGKILLED}; log .*{LOG}",
        False,
    ),
    "server hangs (SIGSTOP)": (SERVER, signal.SIGSTOP, "client-timeout", TIMEOUT, True),
    "OpenCompass hangs (SIGSTOP)": (OPENCOMPASS, signal.SIGSTOP, "client-timeout", TIMEOUT, True),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_while_asking(scene: Scene, case, fault):
    case(fault, "eval, while asking")
    words, number, reason, text, limited = FAULTS[fault]
    job = asking(scene, short(scene) if limited else None)
    os.kill(job.find(words), number)
    scene.refused("eval", reason, text, job=job)
    scene.leave("eval")


def test_server_killed_before_ready(scene: Scene, case):
    case("server SIGKILL", "eval, before ready")
    scene.forget("eval")
    job = scene.start("eval")
    job.wait_for(scene.folder / scene.raw("eval") / "server/server.log", "Initializing a V1 LLM")
    os.kill(job.find(SERVER), signal.SIGKILL)
    scene.refused("eval", "server-start", f"exited with code {SIGKILLED} before it was ready", job=job)
    scene.leave("eval")


def test_disk_full_while_asking(scene: Scene, case):
    """OpenCompass cannot write its predictions; what the run measured before is untouched."""
    case("disk full", "eval, while asking")
    with own_disk(scene.folder) as disk:
        job = asking(scene)
        disk.fill()
        job.finish()
        disk.free()
        scene.refused("eval", None, "No space left on device", job=job)
        scene.leave("eval")


@pytest.mark.parametrize("fault", ["disk full", "results read-only"])
def test_disk_at_the_start(scene: Scene, case, fault):
    """No server is started for data sets that cannot be written."""
    case(fault, "eval, at the start", "none started")
    scene.forget("eval")
    with own_disk(scene.folder) as disk:
        disk.fill() if fault == "disk full" else disk.read_only(True)
        text = "No space left on device.*free space" if fault == "disk full" else "Read-only file system.*permissions"
        job = scene.start("eval")
        scene.refused("eval", None, text, job=job)
        assert "starting vllm serve" not in job.said()
        disk.free() if fault == "disk full" else disk.read_only(False)
    scene.note("asserted", "no server is started")
    scene.leave("eval")


def test_model_evidence_cut(scene: Scene, case):
    case("evidence of the model truncated", "eval, at the start", "none started")
    scene.forget("eval")
    path = scene.folder / "results/cpu/model.json"
    path.write_bytes(path.read_bytes()[:100])
    job = scene.start("eval")
    scene.refused("eval", "evidence", r"model\.json: not valid JSON .*; delete it and rerun its job", job=job)
    assert "starting vllm serve" not in job.said()


def test_predictions_half_written(scene: Scene, case):
    """OpenCompass goes on with predictions that it finds by name: those of a killed job must not be among them."""
    case("predictions half written by a killed job", "eval, at the start")
    (scene.folder / scene.output("eval")).unlink()
    found = list((scene.folder / scene.raw("eval")).glob("opencompass/*/predictions/*/*.json"))
    assert len(found) == len(evidence.read(scene.base / scene.output("eval")).measured["tasks"])
    for path in found:
        path.write_text(path.read_text()[: path.stat().st_size // 2])
    scene.rerun("eval")


def test_rerun_on_what_was_left(scene: Scene, case):
    case("all faults of an accuracy run before", "eval, rerun")
    scene.rerun_on_what_was_left("eval")
