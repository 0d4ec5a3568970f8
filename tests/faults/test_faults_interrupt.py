"""A run is interrupted at every stage, by Ctrl-C and by kill -9, on real servers: nothing stays, a rerun completes.

Run by ``make test-faults`` (about ten minutes); two of its cases are in tests/e2e and so in every ``make test``.
"""

from __future__ import annotations

import copy
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import yaml
from adrbench import evidence
from adrbench.paths import ROOT

pytestmark = pytest.mark.faults

PLATFORM = yaml.safe_load((ROOT / "config/platforms/cpu.yaml").read_text())
R = "results/cpu"

# (target, file to watch, text that says how far the job is)
STAGES = {
    "device": (f"{R}/device.json", "logs/cpu/device.log", "asking"),
    "kernels": (f"{R}/kernels.json", "logs/cpu/kernels.log", "proved"),
    "model": (f"{R}/model.json", "logs/cpu/model.log", "converted"),
    "ceiling": (f"{R}/ceiling.json", "logs/cpu/ceiling.log", "working sets"),
    "serve-starting": (
        f"{R}/serve/auto/r1/short.json",
        f"{R}/serve/auto/r1/server/server.log",
        "Initializing a V1 LLM",
    ),
    "serve-loading": (f"{R}/serve/auto/r1/short.json", f"{R}/serve/auto/r1/server/client.log", "--- short"),
    "integrate": (f"{R}/integrate/L3.json", f"{R}/integrate/L3/server/server.log", "Initializing a V1 LLM"),
    "eval-starting": (f"{R}/eval/auto.json", f"{R}/eval/auto/server/server.log", "Initializing a V1 LLM"),
    "eval-asking": (f"{R}/eval/auto.json", "logs/cpu/eval/auto.log", "questions of"),
    "profile": (f"{R}/profile/auto.json", "logs/cpu/profile/auto.log", "ready after"),
}


@pytest.fixture(scope="module")
def work(tmp_path_factory, serve_python):
    platform = copy.deepcopy(PLATFORM)
    platform["arms"] = platform["arms"][:1]
    platform["serve"] |= {"baseline_rounds": 1, "warmup_requests": 1}
    platform["tiers"] = [
        {"name": "short", "input_tokens": [64, 128], "output_tokens": 16, "prompts": 8, "concurrency": 2}
    ]
    platform["eval"]["tasks"] = [task | {"samples": 2} for task in platform["eval"]["tasks"]]
    platform["eval"]["control"] = False
    platform["profile"] = {"workload": {"requests": 2, "input_tokens": 128, "output_tokens": 16, "concurrency": 2}}
    base = tmp_path_factory.mktemp("faults")
    (base / "platforms").mkdir()
    (base / "platforms/cpu.yaml").write_text(yaml.safe_dump(platform, allow_unicode=True))
    (base / "values.yaml").write_text(yaml.safe_dump({"platforms": str(base / "platforms")}))
    folder = base / "work"
    folder.mkdir()
    command = [sys.executable, "-m", "snakemake", "-s", str(ROOT / "Snakefile"), "-d", str(folder), "--cores", "1"]
    tail = ["--configfile", str(ROOT / "config/config.yaml"), str(base / "values.yaml")]
    return folder, lambda *targets: [*command, *targets, *tail]


def ours(folder: Path) -> list[str]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and str(folder) in " ".join([*process.cmdline(), process.cwd()]):
                found.append(f"{process.pid} {process.name()}")
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def unlock(folder: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "pythonpath")}
    subprocess.run([sys.executable, "-m", "adrbench.locks"], cwd=folder, env=environment, check=True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "kill -9"])
@pytest.mark.parametrize("stage", STAGES)
def test_interrupted_stage_leaves_nothing(work, stage, number):
    folder, command = work
    target, watched, text = STAGES[stage]
    watched = folder / watched
    (folder / target).unlink(missing_ok=True)
    watched.unlink(missing_ok=True)
    process = subprocess.Popen(
        command(target), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    deadline = time.monotonic() + 240
    while not (watched.is_file() and text in watched.read_text(errors="replace")):
        assert process.poll() is None, f"the run ended before {text!r} appeared in {watched}"
        assert time.monotonic() < deadline, f"{text!r} did not appear in {watched}"
        time.sleep(0.05)
    if number == signal.SIGINT:
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    process.wait(90)
    deadline = time.monotonic() + 40
    while ours(folder) and time.monotonic() < deadline:
        time.sleep(0.25)
    assert ours(folder) == []
    assert not (folder / target).exists()
    unlock(folder)


def test_the_next_run_completes(work):
    folder, command = work
    targets = sorted({target for target, _, _ in STAGES.values()})
    done = subprocess.run(command(*targets), capture_output=True, text=True, timeout=1200, cwd=ROOT)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    for target in targets:
        assert evidence.verify_files(folder / target) == []
    assert ours(folder) == []
