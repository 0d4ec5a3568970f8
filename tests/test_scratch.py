"""Nothing of ours stays in the temporary folder: a scratch folder lives as long as its users, however they end."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from adrbench import scratch
from adrbench.job import PR_SET_CHILD_SUBREAPER, prctl
from adrbench.paths import PYTHONPATH
from adrbench.serve.guardian import children, end_orphans
from adrbench.serve.process import Guarded, job_environment
from waiting import until

# As vLLM: a socket in the folder that it was given, never unlinked; a worker that closes inherited files has one, too.
SERVER = """
import os, socket, subprocess, sys, time
worker = "import os, socket, time; s = socket.socket(socket.AF_UNIX); s.bind(os.environ['VLLM_RPC_BASE_PATH'] + '/b'); "
worker += "print('worker', os.getpid(), flush=True); time.sleep(600)"
s = socket.socket(socket.AF_UNIX)
s.bind(os.environ["VLLM_RPC_BASE_PATH"] + "/a")
if sys.argv[1] == "end":
    print(oct(os.stat(os.environ["VLLM_RPC_BASE_PATH"]).st_mode), flush=True)
    sys.exit(3)
subprocess.Popen([sys.executable, "-c", worker], start_new_session=True)
print("server", os.getpid(), flush=True)
time.sleep(600)
"""
JOB = """
import signal, sys, time
from pathlib import Path
from adrbench.serve.process import Guarded, job_environment
log = Path(sys.argv[1])
guarded = Guarded([sys.executable, "-c", sys.argv[2], "stay"], log, job_environment(), grace_s=0.5)
print(guarded.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture
def temporary(monkeypatch, tmp_path):
    """A temporary folder of this test alone, with a path as short as they are; its orphans end with the test."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    before = set(children(os.getpid()))
    path = Path(tempfile.mkdtemp(prefix="t-", dir="/tmp"))
    monkeypatch.setenv("TMPDIR", str(path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(scratch, "SHORT", path)
    yield path
    end_orphans(before)
    prctl(PR_SET_CHILD_SUBREAPER, 0)
    monkeypatch.undo()
    shutil.rmtree(path)


def left(temporary: Path) -> list[str]:
    return sorted(path.relative_to(temporary).as_posix() for path in temporary.rglob("*"))


def serving(log: Path) -> Guarded:
    guarded = Guarded([sys.executable, "-c", SERVER, "stay"], log, job_environment(), grace_s=0.5)
    pid(log, "worker"), pid(log, "server")
    return guarded


def pid(log: Path, name: str) -> int:
    assert until(lambda: log.is_file() and f"{name} " in log.read_text() and log.read_text().endswith("\n"))
    return int(log.read_text().split(f"{name} ")[1].split()[0])


def test_a_command_finds_a_folder_of_its_own_that_goes_with_it(temporary, tmp_path):
    guarded = Guarded([sys.executable, "-c", SERVER, "end"], tmp_path / "log", job_environment())
    assert guarded.wait(60) == 3
    assert (tmp_path / "log").read_text() == "0o40700\n"
    assert left(temporary) == [], "the guardian removes it, whether or not stop() is called"
    guarded.stop()


@pytest.mark.parametrize(
    ("environment", "own"),
    [({"TORCHINDUCTOR_CACHE_DIR": "/c"}, True), ({}, False), ({"TORCHINDUCTOR_CACHE_DIR": "/c", "TMPDIR": "/"}, False)],
)
def test_all_temporary_files_of_a_command_go_with_it_where_no_cache_lies_among_them(
    temporary, tmp_path, monkeypatch, environment, own
):
    """torch's profiler leaves its temporary file when the disk is full: with a cache or another's choice it must."""
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    program = "import tempfile; print('in', tempfile.mkstemp(suffix='.json')[1], flush=True)"
    if "TMPDIR" in environment:
        environment = environment | {"TMPDIR": str(tmp_path)}
    guarded = Guarded([sys.executable, "-c", program], tmp_path / "log", job_environment(environment))
    assert guarded.wait(60) == 0
    guarded.stop()
    path = Path((tmp_path / "log").read_text().split()[1])
    assert path.exists() is not own
    assert path.parent == tmp_path or path.is_relative_to(temporary)


def test_a_long_temporary_folder_is_kept_for_what_is_no_socket(tmp_path, monkeypatch):
    path = tmp_path / ("long" * 25)
    path.mkdir()
    monkeypatch.setenv("TMPDIR", str(path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    made = scratch.Scratch()
    try:
        assert set(made.variables({"TORCHINDUCTOR_CACHE_DIR": "/c", "TMPDIR": str(path)})) == {scratch.VARIABLE}
    finally:
        made.remove()


def test_an_engine_in_this_process_has_one_until_its_end(temporary):
    program = "import os; from adrbench import scratch; p = scratch.for_this_process(); (p / 's').touch();"
    program += "print(os.environ['VLLM_RPC_BASE_PATH'] == str(p), p.is_dir())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=job_environment())
    assert done.stdout.split() == ["True", "True"], done.stderr
    assert left(temporary) == []


def test_stop_removes_it(temporary, tmp_path):
    guarded = serving(tmp_path / "log")
    assert [name[-2:] for name in left(temporary)][1:] == ["/a", "/b"]
    guarded.stop()
    assert left(temporary) == []


def test_it_goes_with_a_command_that_was_killed(temporary, tmp_path):
    guarded = serving(tmp_path / "log")
    os.kill(pid(tmp_path / "log", "server"), signal.SIGKILL)
    assert guarded.wait(60) == 128 + signal.SIGKILL
    assert left(temporary) == []
    guarded.stop()


def test_stop_removes_what_a_killed_guardian_left(temporary, tmp_path):
    guarded = serving(tmp_path / "log")
    os.kill(guarded.pid, signal.SIGKILL)
    assert guarded.wait(60) == -signal.SIGKILL
    assert left(temporary) != []
    guarded.stop()
    assert left(temporary) == []


def test_what_a_killed_job_and_guardian_left_is_swept_once_nobody_uses_it(temporary, tmp_path):
    """In use by the server, which holds the lock, and then by its worker, of which only its environment tells."""
    log = tmp_path / "log"
    job = subprocess.Popen([sys.executable, "-c", JOB, log, SERVER], stdout=subprocess.PIPE, env=job_environment())
    guardian = int(job.stdout.readline())
    server, worker = pid(log, "server"), pid(log, "worker")
    # Stopped first: a guardian that still runs would see the end of its job.
    os.kill(guardian, signal.SIGSTOP)
    job.kill()
    job.wait()
    os.kill(guardian, signal.SIGKILL)
    assert until(lambda: _ended(guardian))
    assert scratch.sweep() == []
    os.kill(server, signal.SIGKILL)
    assert until(lambda: _ended(server))
    assert scratch.sweep() == []
    assert len(left(temporary)) == 3
    os.kill(worker, signal.SIGKILL)
    assert until(lambda: _ended(worker))
    with scratch.folder() as new:
        assert [temporary / name for name in left(temporary)] == [new], "the next start sweeps"
    assert left(temporary) == []


def _ended(process: int) -> bool:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(process, os.WNOHANG)
    return not Path(f"/proc/{process}").exists()


def test_folders_of_others_and_links_stay(temporary):
    outside = temporary / "outside"
    outside.mkdir()
    (outside / "file").touch()
    (temporary / f"{scratch.PREFIX}12345678").symlink_to(outside)
    (temporary / f"{scratch.PREFIX}file").touch()
    (temporary / "snakemake1234").mkdir(0o700)
    before = left(temporary)
    assert scratch.sweep() == []
    assert left(temporary) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a folder of another user")
def test_the_folder_of_another_user_stays(temporary):
    made = temporary / f"{scratch.PREFIX}12345678"
    made.mkdir(0o700)
    os.chown(made, 65534, 65534)
    assert scratch.sweep() == []
    os.chown(made, os.geteuid(), -1)
    assert scratch.sweep() == [made]


def test_the_folder_of_another_host_stays(temporary, monkeypatch):
    """Hosts share a file system, not what tells that a folder is in use."""
    of_another = scratch.PREFIX.replace(scratch.HOST, "0" * len(scratch.HOST))
    (temporary / f"{of_another}12345678").mkdir(0o700)
    marked = temporary / "snakemake1234"
    marked.mkdir(0o700)
    with monkeypatch.context() as other:
        other.setattr(scratch, "MARK", scratch.MARK.replace(scratch.HOST, "0" * len(scratch.HOST)))
        scratch.adopt(marked)
    os.close(scratch._adopted.pop())
    before = left(temporary)
    assert scratch.sweep() == []
    assert left(temporary) == before


def test_what_others_may_have_marked_stays(temporary):
    """A folder of this user that others can write to: their file in it must not have it removed."""
    made = temporary / "tmp-of-a-team"
    made.mkdir(0o700)
    (made / scratch.MARK).touch()
    made.chmod(0o1777)
    assert scratch.sweep() == []
    made.chmod(0o700)
    if os.geteuid() == 0:
        os.chown(made / scratch.MARK, 65534, 65534)
        assert scratch.sweep() == []
        os.chown(made / scratch.MARK, 0, 0)
    assert scratch.sweep() == [made]


def test_a_user_by_another_path_is_seen(temporary):
    """Of whom only the environment, or the working folder, tells; and TMPDIR was a link there."""
    (temporary / "link").symlink_to(temporary)
    made = temporary / f"{scratch.PREFIX}12345678"
    (made / "below").mkdir(0o700, parents=True)
    made.chmod(0o700)
    code, named = ["-c", "print(1, flush=True); input()"], {scratch.VARIABLE: f"{temporary}/link/{made.name}"}
    for options in ({"env": job_environment(named)}, {"cwd": made / "below"}):
        with subprocess.Popen(
            [sys.executable, *code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options
        ) as user:
            assert user.stdout.readline() == b"1\n"
            assert scratch.users(made) == [user.pid]
            assert scratch.sweep() == []
    assert scratch.sweep() == [made]


def test_links_in_a_folder_are_not_followed(temporary, tmp_path):
    (tmp_path / "kept").touch()
    made = temporary / f"{scratch.PREFIX}12345678"
    made.mkdir(0o700)
    (made / "link").symlink_to(tmp_path)
    assert scratch.sweep() == [made]
    assert (tmp_path / "kept").exists()


def test_marked_folders_of_a_killed_program_are_swept(temporary):
    """As Snakemake's: held while the process that marked them lives."""
    code = "import sys, time; from adrbench import scratch; scratch.adopt(sys.argv[1]); print(1, flush=True); "
    code += "time.sleep(600)"
    made = temporary / "snakemake1234"
    made.mkdir(0o700)
    holder = subprocess.Popen([sys.executable, "-c", code, made], stdout=subprocess.PIPE, env=job_environment())
    assert holder.stdout.readline() == b"1\n"
    # The name is in the arguments, not in the environment: the lock alone says that the folder is in use.
    assert scratch.sweep() == []
    holder.kill()
    holder.wait()
    assert scratch.sweep() == [made]


SNAKEFILE = """
import sys, time
sys.path.insert(0, {path!r})
from adrbench import scratch
scratch.adopt(*scratch.of_snakemake(workflow))
print("adopted", flush=True)
time.sleep(600)
"""


def test_what_a_killed_snakemake_left_is_swept_by_the_check_of_its_lock(temporary, tmp_path):
    (tmp_path / "Snakefile").write_text(SNAKEFILE.format(path=str(PYTHONPATH)))
    environment = job_environment({"XDG_CACHE_HOME": str(tmp_path / "cache")})
    command = [sys.executable, "-m", "snakemake", "-s", str(tmp_path / "Snakefile"), "-d", str(tmp_path), "-n"]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment)
    assert run.stdout.readline() == b"adopted\n"
    assert scratch.sweep() == []
    run.kill()
    run.wait()
    cached = list((tmp_path / "cache").rglob(scratch.MARK))
    assert len(left(temporary)) == 2, "the folder and its mark"
    subprocess.run([sys.executable, "-m", "adrbench.locks"], cwd=tmp_path, env=environment, check=True)
    assert left(temporary) == []
    assert scratch.sweep(*(mark.parent.parent for mark in cached)) == [mark.parent for mark in cached] != []


def test_a_long_temporary_folder_leaves_no_room_for_sockets(tmp_path, monkeypatch):
    long = tmp_path / ("x" * 80)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    made = scratch.Scratch()
    try:
        assert made.path.parent == scratch.SHORT
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(f"{made.path}/{'u' * scratch.SOCKET_BYTES}")
    finally:
        shutil.rmtree(made.path)
        made.remove()
    longest = "/" + "y" * (
        scratch.PATH_BYTES - 1 - len(scratch.PREFIX) - scratch.RANDOM_BYTES - scratch.SOCKET_BYTES - 2
    )
    monkeypatch.setattr(tempfile, "tempdir", longest)
    assert scratch.parent() == Path(longest)
    monkeypatch.setattr(tempfile, "tempdir", longest + "y")
    assert scratch.parent() == scratch.SHORT
    monkeypatch.setattr(scratch, "SHORT", tmp_path / "missing")
    assert scratch.parent() == Path(longest + "y"), "who needs no socket can use it"


def test_a_relative_temporary_folder_is_of_the_place_where_it_was_named(temporary, monkeypatch):
    monkeypatch.chdir(temporary)
    monkeypatch.setattr(tempfile, "tempdir", ".")
    with scratch.folder() as made:
        assert made.parent == temporary


def test_where_no_temporary_folder_can_be_written_nothing_is_swept(temporary, monkeypatch):
    def none():
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", none)
    assert scratch.sweep() == []
