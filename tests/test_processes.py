"""Processes of any name are listed, and those that a host hides end no command."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from adrbench import job, locks, processes
from adrbench.dry_run import left_behind
from adrbench.serve import guardian
from adrbench.serve.guardian import children, descendants
from adrbench.serve.process import Guarded, job_environment
from waiting import until

# prctl(PR_SET_NAME): no UTF-8, as a title of Chinese words is that the kernel cuts at 15 bytes; and a parenthesis.
NAMED = "import ctypes, time; ctypes.CDLL(None).prctl(15, bytes([97, 255, 41, 32, 230]), 0, 0, 0); "
NAMED += "print(1, flush=True); time.sleep(600)"


@pytest.fixture
def named():
    process = subprocess.Popen([sys.executable, "-c", NAMED], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"1\n"
    assert b"(a\xff) \xe6) " in Path(f"/proc/{process.pid}/stat").read_bytes()
    yield process.pid
    process.kill()
    process.wait()


def test_a_name_of_any_bytes_is_listed(named, tmp_path):
    assert processes.stat(named)[1] == str(os.getpid())
    assert named in children(os.getpid())
    assert named in descendants(os.getppid())
    assert locks.living_runs(tmp_path) == left_behind(tmp_path) == []


def test_a_guarded_command_is_ended_whatever_another_process_is_called(named, tmp_path):
    log = tmp_path / "log"
    code = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    guarded = Guarded([sys.executable, "-c", code], log, job_environment(), grace_s=0.5)
    assert until(lambda: log.is_file() and log.read_text().endswith("\n"))
    command = int(log.read_text())
    guarded.stop()
    assert log.read_text() == f"{command}\n", "the guardian says nothing"
    assert processes.stat(command) is None


def test_a_host_without_a_file_to_open_is_asked_again(named, monkeypatch):
    """Who cannot be read is not gone: the guardian would take its command for ended."""
    failures, real = [errno.ENFILE, errno.ENOMEM, errno.EMFILE], Path.read_bytes

    def read_bytes(path):
        if failures and path.name == "stat":
            raise OSError(failures.pop(), "in distress")
        return real(path)

    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    assert named in children(os.getpid())
    assert failures == []
    monkeypatch.setattr(guardian, "UNREADABLE_S", 0.0)
    failures += [errno.ENFILE] * 10
    with pytest.raises(OSError, match="in distress"):
        children(os.getpid())


def test_ancestors_end_where_a_host_hides_them(monkeypatch, tmp_path):
    seen = list(processes.ancestors(os.getpid()))
    assert seen[0] == os.getppid()
    real = processes.stat
    monkeypatch.setattr(processes, "stat", lambda pid: None if pid == os.getppid() else real(pid))
    assert list(processes.ancestors(os.getpid())) == [os.getppid()]
    assert [pid for pid, _ in job._ancestors(os.getpid())] == [os.getppid()]
    assert locks.living_runs(tmp_path) == []
    assert os.getppid() not in [int(line.partition(":")[0]) for line in left_behind(Path.cwd())]
