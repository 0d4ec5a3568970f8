"""Runs on a real Slurm: what is asked of it, and that nothing is left, lost or run twice, whatever ends a run."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from itertools import combinations
from pathlib import Path

import psutil
import pytest
from adrbench.paths import ROOT

HERE = Path(__file__).parent


class Run:
    """One working folder on the queue."""

    def __init__(self, slurm, folder: Path):
        self.slurm, self.folder = slurm, folder
        folder.mkdir()
        self.log = folder / "run.log"

    def start(self, *config: str, options: tuple[str, ...] = ()) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-m", "adrbench.cluster", "--snakefile", str(HERE / "Snakefile")]
        argv += [*options, "--", "--config", *(config or ("jobs=4",)), "--slurm-init-seconds-before-status-checks", "1"]
        env = self.slurm.env | {"PYTHONPATH": str(ROOT / "pythonpath")}
        with open(self.log, "ab") as stream:
            return subprocess.Popen(
                argv, cwd=self.folder, env=env, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True
            )

    def finish(self, process: subprocess.Popen[bytes], limit_s: float = 180) -> int:
        try:
            return process.wait(limit_s)
        except subprocess.TimeoutExpired:
            pytest.fail(f"the run did not end within {limit_s} s\n{self.text()}\n{self.slurm.queued()}")

    def text(self) -> str:
        return self.log.read_text(errors="replace")[-5000:]

    def outputs(self) -> dict[str, dict]:
        return {path.stem: json.loads(path.read_text()) for path in sorted((self.folder / "out").glob("*.json"))}

    def runs(self) -> list[str]:
        file = self.folder / "runs.log"
        return file.read_text().split() if file.is_file() else []

    def jobs(self) -> list[str]:
        text = self.slurm.call("squeue", "-h", "-o", "%i|%T|%Z")
        return [line.split("|")[0] for line in text.splitlines() if line.endswith(str(self.folder))]

    def wait_running(self, count: int, limit_s: float = 60) -> None:
        deadline = time.monotonic() + limit_s
        while len(self.runs()) < count:
            assert time.monotonic() < deadline, self.text()
            time.sleep(0.2)

    def processes(self) -> list[str]:
        found = []
        for process in psutil.process_iter():
            try:
                if process.pid != os.getpid() and process.cwd() == str(self.folder):
                    found.append(" ".join(process.cmdline())[:200])
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        return found

    def nothing_left(self, limit_s: float = 45) -> None:
        deadline = time.monotonic() + limit_s
        while (self.jobs() or self.processes()) and time.monotonic() < deadline:
            time.sleep(0.3)
        assert self.jobs() == []
        assert self.processes() == []

    def snakemake(self, process: subprocess.Popen[bytes]) -> psutil.Process:
        """The Snakemake process below the supervisor."""
        below = psutil.Process(process.pid).children()
        return next(child for child in below if "snakemake" in " ".join(child.cmdline()))


@pytest.fixture
def run(slurm, tmp_path):
    slurm.wait_idle()
    return Run(slurm, tmp_path / "work")


def test_devices_are_never_shared(run):
    """Six jobs on four devices: every job names its device, and no two hold one at a time."""
    process = run.start("jobs=6", "seconds=3")
    assert run.finish(process) == 0, run.text()
    found = run.outputs()
    assert len(found) == 6
    places = {name: (seen["node"], *seen["devices"]) for name, seen in found.items()}
    assert {node for node, _ in places.values()} == {"dcu01", "dcu02"}
    together = [
        (a, b)
        for a, b in combinations(found, 2)
        if found[a]["began"] < found[b]["ended"] and found[b]["began"] < found[a]["ended"]
    ]
    assert [(a, b) for a, b in together if places[a] == places[b]] == []
    assert together, "jobs ran one after the other: the queue's devices were not used"
    run.nothing_left()


@pytest.mark.queue
def test_a_failing_job_fails_the_run_and_leaves_nothing(run):
    process = run.start("jobs=3", "fail=1")
    assert run.finish(process) != 0
    assert set(run.outputs()) <= {"0", "2"}
    assert run.runs().count("1") == 2, "the profile retries once"
    run.nothing_left()


SLOW = pytest.mark.queue
SIGNALS = [pytest.param(signal.SIGINT, marks=SLOW), signal.SIGTERM, pytest.param(signal.SIGHUP, marks=SLOW)]


@pytest.mark.parametrize("number", SIGNALS, ids=lambda n: n.name)
def test_a_signal_ends_run_and_jobs(run, number):
    process = run.start("jobs=4", "seconds=120")
    run.wait_running(2)
    process.send_signal(number)
    assert run.finish(process, 90) == 128 + number
    run.nothing_left()
    assert run.outputs() == {}


def test_kill_of_snakemake_cancels_and_a_rerun_completes(run):
    process = run.start("jobs=4", "seconds=120")
    run.wait_running(2)
    run.snakemake(process).kill()
    assert run.finish(process, 90) == 128 + signal.SIGKILL
    run.nothing_left()
    assert run.outputs() == {}
    assert run.finish(run.start("jobs=4", "seconds=1")) == 0, run.text()
    assert len(run.outputs()) == 4
    run.nothing_left()


@pytest.mark.queue
def test_kill_of_the_supervisor_ends_all(run):
    process = run.start("jobs=4", "seconds=120")
    run.wait_running(2)
    process.kill()
    run.finish(process, 30)
    run.nothing_left(90)


@pytest.mark.parametrize("orphans", ["cancel", pytest.param("wait", marks=SLOW)])
def test_orphans_of_a_killed_run_are_dealt_with_before_anything_is_submitted(run, orphans):
    process = run.start("jobs=2", f"seconds={120 if orphans == 'cancel' else 20}")
    run.wait_running(2)
    child = run.snakemake(process)
    process.send_signal(signal.SIGSTOP)
    child.kill()
    process.kill()
    run.finish(process, 30)
    left = run.jobs()
    assert len(left) == 2, "the point of this test is gone: nothing was left to deal with"
    again = run.start("jobs=2", "seconds=1", options=("--orphans", orphans))
    assert run.finish(again) == 0, run.text()
    assert "an earlier run left 2 jobs in the queue" in run.text()
    assert len(run.outputs()) == 2
    seen = {found["job"] for found in run.outputs().values()}
    if orphans == "cancel":
        assert seen.isdisjoint(left)
    run.nothing_left()


@pytest.mark.queue
def test_a_second_run_in_the_same_folder_is_refused(run):
    process = run.start("jobs=1", "seconds=20")
    run.wait_running(1)
    second = run.start("jobs=1")
    assert run.finish(second, 60) == 1
    assert "is already running here" in run.text()
    assert run.finish(process) == 0, run.text()
    assert run.runs() == ["0"]


@pytest.mark.queue
def test_a_cancelled_job_is_submitted_again(run):
    process = run.start("jobs=2", "seconds=8")
    run.wait_running(2)
    run.slurm.call("scancel", run.jobs()[0])
    assert run.finish(process) == 0, run.text()
    assert len(run.outputs()) == 2
    assert len(run.runs()) == 3
    run.nothing_left()


@pytest.mark.queue
def test_a_requeued_job_runs_once(run):
    process = run.start("jobs=1", "seconds=8")
    run.wait_running(1)
    run.slurm.call("scontrol", "requeue", run.jobs()[0])
    assert run.finish(process) == 0, run.text()
    assert len(run.outputs()) == 1
    run.nothing_left()


@pytest.mark.queue
def test_a_job_past_its_time_limit_fails_the_run(run):
    process = run.start("jobs=1", "seconds=400", "minutes=1")
    assert run.finish(process, 420) != 0
    assert run.outputs() == {}
    run.nothing_left()


@pytest.mark.queue
def test_a_lost_node_does_not_lose_the_run(run):
    process = run.start("jobs=4", "seconds=20")
    run.wait_running(4)
    daemon = run.slurm.daemons["dcu02"]
    below = psutil.Process(daemon.pid).children(recursive=True)
    daemon.kill()
    for child in below:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
    try:
        assert run.finish(process, 400) == 0, run.text()
        assert len(run.outputs()) == 4
    finally:
        run.slurm.start("dcu02")
        run.slurm.call("scontrol", "update", "nodename=dcu02", "state=resume")
    run.nothing_left()


@pytest.mark.queue
def test_a_silent_hang_is_noticed_and_the_run_goes_on(run):
    """The controller is away longer than the plugin's patience: it forgets its jobs and would wait for ever."""
    process = run.start("jobs=2", "seconds=45", options=("--hang-seconds", "30"))
    run.wait_running(2)
    controller = run.slurm.daemons["slurmctld"]
    controller.kill()
    controller.wait()
    time.sleep(40)
    run.slurm.start("slurmctld")
    assert run.finish(process, 420) == 0, run.text()
    assert len(run.outputs()) == 2
    run.nothing_left()


@pytest.mark.queue
def test_the_real_workflow_serves_on_the_queue(run, serve_python, tmp_path):
    """Device, kernels, model and one serving round as queued jobs: real vLLM on the embedded model."""
    (tmp_path / "site.yaml").write_text(
        "setup: ['export ADRBENCH_SITE_SETUP=1']\n"
        "gres: dcu\n"
        "device: {partition: dcu, minutes: 30, memory_mb: 8000, cpus: 2}\n"
    )
    target = "results/cpu/serve/auto/r1/short.json"
    argv = [
        sys.executable,
        "-m",
        "adrbench.cluster",
        target,
        "--",
        "--config",
        f"cluster={{site: {tmp_path}/site.yaml}}",
    ]
    env = run.slurm.env | {"PYTHONPATH": str(ROOT / "pythonpath")}
    with open(run.log, "ab") as stream:
        process = subprocess.Popen(
            argv, cwd=run.folder, env=env, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True
        )
    assert run.finish(process, 880) == 0, run.text()
    evidence = json.loads((run.folder / target).read_text())
    assert evidence["measured"]["completed"] == evidence["asked"]["tier"]["prompts"]
    run.nothing_left()
