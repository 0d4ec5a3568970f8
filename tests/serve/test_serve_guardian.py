"""Nothing is left behind: a guarded command ends with its job, however the job ends.

Stands-in for servers are small shell and Python processes; real servers are ended in
test_serve_server.py and tests/e2e.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from adrbench.job import JobError
from adrbench.serve.guardian import children
from adrbench.serve.process import Guarded, job_environment, run_guarded, tail
from waiting import until

# A server with a worker in a session of its own, which ignores TERM: the shape of an orphaned engine.
STUBBORN = """
import os, signal, subprocess, sys, time
worker = "import signal as s, time; s.signal(s.SIGTERM, s.SIG_IGN); print('worker', flush=True); time.sleep(600)"
subprocess.Popen([sys.executable, "-c", worker], start_new_session=True)
print("server", os.getpid(), flush=True)
time.sleep(600)
"""


def wait_for(log: Path, *texts: str) -> None:
    assert until(lambda: log.is_file() and all(text in log.read_text() for text in texts)), f"no {texts} in {log}"


def tree(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


def gone(processes: list[psutil.Process], seconds: float = 60.0) -> bool:
    return not psutil.wait_procs(processes, timeout=seconds)[1]


def stubborn(log: Path) -> Guarded:
    guarded = Guarded([sys.executable, "-c", STUBBORN], log, job_environment(), grace_s=0.5)
    wait_for(log, "server", "worker")
    return guarded


def test_stop_ends_children_in_other_sessions_that_ignore_term(tmp_path):
    guarded = stubborn(tmp_path / "log")
    processes = tree(guarded.pid)
    assert len(processes) == 2
    guarded.stop()
    assert gone(processes)


def test_worker_of_a_killed_server_is_found_and_ended(tmp_path):
    """kill -9 of the API server orphans its engine: it must not survive."""
    guarded = stubborn(tmp_path / "log")
    processes = tree(guarded.pid)
    server = int((tmp_path / "log").read_text().split("server ")[1].split()[0])
    os.kill(server, signal.SIGKILL)
    assert guarded.wait(60) == 128 + signal.SIGKILL
    assert gone(processes)


# As a vLLM engine that does not end in time: it holds shared memory and ignores TERM.
HOLDER = """
import signal, time
from multiprocessing.shared_memory import SharedMemory
signal.signal(signal.SIGTERM, signal.SIG_IGN)
held = SharedMemory(create=True, size=4096)
print("segment", held.name, flush=True)
time.sleep(600)
"""


def test_shared_memory_of_a_killed_command_is_freed(tmp_path):
    """Python's resource tracker unlinks it after the last user's end: it must not be killed beside that user."""
    guarded = Guarded([sys.executable, "-c", HOLDER], tmp_path / "log", job_environment(), grace_s=0.2)
    wait_for(tmp_path / "log", "segment")
    segment = Path("/dev/shm") / (tmp_path / "log").read_text().split("segment ")[1].split()[0]
    assert segment.exists()
    processes = tree(guarded.pid)
    guarded.stop()
    assert gone(processes)
    assert not segment.exists()


def test_a_killed_guardian_leaves_nothing(tmp_path):
    """The job is a subreaper: what a killed guardian leaves becomes its child, and is ended by stop()."""
    job = f"""
import os, signal, sys, time
from pathlib import Path
from adrbench.job import PR_SET_CHILD_SUBREAPER, prctl
from adrbench.serve.process import Guarded, job_environment
prctl(PR_SET_CHILD_SUBREAPER, 1)
guarded = Guarded([sys.executable, "-c", {STUBBORN!r}], Path({str(tmp_path / "log")!r}), job_environment(), grace_s=0.5)
while "worker" not in Path({str(tmp_path / "log")!r}).read_text(): time.sleep(0.05)
os.kill(guarded.pid, signal.SIGKILL)
guarded.stop()
print("stopped", flush=True)
time.sleep(600)
"""
    process = subprocess.Popen([sys.executable, "-c", job], stdout=subprocess.PIPE, text=True, env=job_environment())
    assert process.stdout.readline().strip() == "stopped"
    left = [child for child in tree(process.pid) if child.status() != psutil.STATUS_ZOMBIE]
    process.kill()
    process.wait()
    assert left == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_killed_job_leaves_nothing(tmp_path, number):
    """The job's end closes the pipe: the guardian needs no cooperation from a job that is killed."""
    job = f"""
import sys, time
from pathlib import Path
from adrbench.serve.process import Guarded, job_environment
guarded = Guarded([sys.executable, "-c", {STUBBORN!r}], Path({str(tmp_path / "log")!r}), job_environment(), grace_s=0.5)
print(guarded.pid, flush=True)
time.sleep(600)
"""
    process = subprocess.Popen([sys.executable, "-c", job], stdout=subprocess.PIPE, text=True, env=job_environment())
    guardian = psutil.Process(int(process.stdout.readline()))
    wait_for(tmp_path / "log", "server", "worker")
    processes = [guardian, *guardian.children(recursive=True)]
    process.send_signal(number)
    process.wait(60)
    assert gone(processes)


def test_client_timeout_is_an_error_and_ends_the_client(tmp_path):
    with pytest.raises(JobError, match="still running after") as caught:
        run_guarded(["sleep", "600"], tmp_path / "log", job_environment(), timeout_s=0.5)
    assert caught.value.reason == "client-timeout"


def test_death_of_the_server_ends_the_client(tmp_path):
    server = Guarded(["sh", "-c", "echo last words; exit 3"], tmp_path / "server.log", job_environment())
    with pytest.raises(JobError, match="last words") as caught:
        run_guarded(["sleep", "600"], tmp_path / "client.log", job_environment(), 300, alive=[server])
    assert caught.value.reason == "server-died"


def test_exit_code_passes_through(tmp_path):
    assert run_guarded(["sh", "-c", "exit 7"], tmp_path / "log", job_environment(), 30) == 7


def test_hidden_settings_do_not_reach_a_server(monkeypatch):
    monkeypatch.setenv("VLLM_ROCM_USE_AITER", "1")
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    monkeypatch.setenv("HF_TOKEN", "secret")
    environment = job_environment({"VLLM_NO_USAGE_STATS": "1"})
    assert environment["VLLM_NO_USAGE_STATS"] == "1"
    assert not {"VLLM_ROCM_USE_AITER", "https_proxy", "HF_TOKEN"} & set(environment)


def test_tail_leaves_out_what_is_said_at_the_interpreters_end(tmp_path):
    """These lines are all that a refusal would quote of an engine that was killed."""
    log = tmp_path / "server.log"
    log.write_text(
        "engine core initialized\nworker 0 died\n"
        'nanobind: leaked 3 functions!\n - leaked function "create_trans"\n - ... skipped remainder\n'
        "nanobind: this is likely caused by a reference counting issue in the binding code.\n"
        "See https://nanobind.readthedocs.io/en/latest/refleaks.html\n"
        "/usr/lib/python3/multiprocessing/resource_tracker.py:254: UserWarning: There appear to be 1 leaked objects\n"
        "  warnings.warn('resource_tracker: There appear to be %d '\n"
    )
    assert tail(log, 2) == "engine core initialized\nworker 0 died"


# Its first thread ends at once, as that of a killed engine may before the others: a zombie by its state.
HALF_ENDED = """
import ctypes, sys, threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
print("half", flush=True)
ctypes.CDLL(None).syscall(60, 0)
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="number of the system call exit")
def test_a_process_lives_until_its_last_thread_has_ended(tmp_path):
    """Its files stay open until then: a folder or a device would be taken for used."""
    with open(tmp_path / "log", "wb") as log:
        process = subprocess.Popen([sys.executable, "-c", HALF_ENDED], stdout=log)
    try:
        wait_for(tmp_path / "log", "half")
        assert until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE)
        assert process.pid in children(os.getpid())
    finally:
        process.kill()
    assert until(lambda: process.pid not in children(os.getpid()))
    process.wait()
