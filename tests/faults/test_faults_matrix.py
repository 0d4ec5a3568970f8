"""How the matrix is shared out, ended and put together again; what it holds is in the other files of this folder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict

import faults_matrix
import pytest
from faults_matrix import HERE, RUNS, end, main, merged, shares, verdict
from faults_report import Row


def test_every_file_is_in_one_share():
    names = [path.name for path in HERE.glob("test_*.py")]
    first, second = shares([*names, "test_faults_later.py"])
    assert first == RUNS
    assert sorted(first + second) == sorted([*names, "test_faults_later.py"])
    assert second[0] == "test_faults_quick.py"  # needs no finished run, which the first session makes meanwhile


@pytest.mark.parametrize(
    ("codes", "expected"),
    [([0, 0], 0), ([0, 1], 1), ([2, 1], 2), ([0, 5], 0), ([5, 1], 1), ([5, 5], 5), ([-15, 0], -15)],
)
def test_exit_code(codes, expected):
    assert verdict(codes) == expected


def test_rows_of_all_sessions_and_whether_they_are_all(tmp_path):
    paths = [tmp_path / "1.json", tmp_path / "2.json"]
    row = Row("fault", "stage", "vLLM", asserted=["no process"])
    paths[0].write_text(json.dumps({"complete": True, "rows": [asdict(row)]}))
    assert merged(paths) == ([row], False)
    paths[1].write_text(json.dumps({"complete": True, "rows": []}))
    assert merged(paths) == ([row], True)
    paths[1].write_text(json.dumps({"complete": False, "rows": []}))
    assert merged(paths) == ([row], False)
    paths[1].write_text('{"complete": true, "ro')
    assert merged(paths) == ([row], False)


@pytest.fixture
def second_session(monkeypatch, tmp_path):
    """The matrix with a first session that sleeps and a second one that is given; returns the first."""
    first = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"],
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background shell ignores it
    )
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    monkeypatch.setattr(faults_matrix, "REPORT", tmp_path / "report.md")
    monkeypatch.setattr(sys, "argv", ["faults_matrix.py"])

    def run(second):
        def session(number, *_):
            return (first, tmp_path / "1.json") if number == 1 else second()

        monkeypatch.setattr(faults_matrix, "session", session)
        return first

    yield run
    for number, handler in handlers.items():
        signal.signal(number, handler)
    first.kill()
    first.wait()


def test_a_session_ends_with_one_that_cannot_start(second_session):
    def fails():
        raise OSError("no space left")

    first = second_session(fails)
    with pytest.raises(OSError, match="no space left"):
        main()
    assert first.poll() == -signal.SIGINT


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_sessions_end_with_the_matrix(second_session, number):
    first = second_session(lambda: os.kill(os.getpid(), number))
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 128 + number
    assert first.poll() == -signal.SIGINT


def test_a_report_without_a_folder_is_refused_before_the_cases_run(second_session, monkeypatch, tmp_path):
    first = second_session(lambda: pytest.fail("a session was started"))
    monkeypatch.setattr(sys, "argv", ["faults_matrix.py", "--report", str(tmp_path / "missing/report.md")])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert first.poll() is None


@pytest.mark.parametrize(("options", "complete"), [((), True), (("-k", "passes"), False), (("--co",), False)])
def test_a_session_says_what_it_left_out(tmp_path, options, complete):
    """A session of its own on one file: its rows, and whether cases were taken from it or only listed."""
    case = tmp_path / "test_one.py"
    case.write_text("def test_passes(case):\n    case('a fault', 'a stage')\n")
    command = [sys.executable, "-m", "pytest", "-p", "conftest", "--rootdir", str(tmp_path), "-c", os.devnull]
    rows = tmp_path / "rows.json"
    subprocess.run(
        [*command, str(case), "--faults-rows", str(rows), *options],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent.parent / "pythonpath")])},
        capture_output=True,
        timeout=120,
    )
    found = json.loads(rows.read_text())
    assert found["complete"] is complete
    assert [row["fault"] for row in found["rows"]] == ([] if "--co" in options else ["a fault"])


def test_a_session_that_is_ended_undoes_what_its_cases_set_up(tmp_path):
    text = (
        "import time\ntry:\n    print(1, flush=True)\n    time.sleep(60)\nfinally:\n    open('undone', 'w').close()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", text],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout.readline() == b"1\n"
    end([process])
    assert (tmp_path / "undone").exists()
