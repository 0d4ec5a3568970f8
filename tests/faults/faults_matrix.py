"""The whole matrix, as ``make test-faults`` runs it: two sessions of pytest beside each other, and one report of both.

    python tests/faults/faults_matrix.py [--report FILE] [--base FOLDER] [ARGUMENTS OF PYTEST]

A server starts on one core (imports, one after another), so that two sessions fill two cores. The first interrupts and
kills runs of the workflow, the second has all other files; they share one finished run and nothing else. Exit code: 0
when every case passed. ``--report`` is written only when both sessions were complete and nothing failed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from faults_report import Row, table

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
REPORT = ROOT / "results/faults/report.md"
RUNS = ["test_faults_interrupt.py", "test_faults_random_kill.py"]
# They need no finished run: the first session makes it meanwhile.
EARLY = ["test_faults_quick.py", "test_faults_workflow.py"]
NO_TESTS = 5  # pytest's exit code where its arguments select none


def shares(names: list[str]) -> tuple[list[str], list[str]]:
    """Files of the two sessions, in order; each of ``names`` is in one of them, whatever files are added."""
    others = [name for name in sorted(names) if name not in (*RUNS, *EARLY)]
    return [name for name in RUNS if name in names], [name for name in EARLY if name in names] + others


def verdict(codes: list[int]) -> int:
    """Exit code of the matrix; a session without tests fails only where the other has none, too."""
    failed = [code for code in codes if code not in (0, NO_TESTS)]
    return failed[0] if failed else min(codes)


def session(number: int, files: list[str], base: Path, arguments: list[str]) -> tuple[subprocess.Popen, Path]:
    """Start one session; what it says goes to a file, its rows to another: (process, file of its rows)."""
    log, rows = (REPORT.with_name(f"session{number}.{ending}") for ending in ("log", "json"))
    rows.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", *(str(HERE / name) for name in files), "-v", "--durations=0"]
    options = ["-m", "faults or not faults", "--faults-base", str(base), "--faults-rows", str(rows)]
    print(f"session {number}: {', '.join(files)}; follow {log.relative_to(ROOT)}", flush=True)
    with open(log, "wb") as stream:
        process = subprocess.Popen(
            [*command, *options, *arguments],
            cwd=ROOT,
            stdout=stream,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C comes once, from `end`
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
    return process, rows


def end(processes: list[subprocess.Popen]) -> None:
    """Interrupt the sessions that still run, which makes pytest undo what its cases set up, and wait for them."""
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
    for process in processes:
        process.wait()


def merged(paths: list[Path]) -> tuple[list[Row], bool]:
    """Rows of all sessions, and whether all of them were complete; one that wrote none, or died writing, was not."""
    found: list[dict[str, Any]] = []
    for path in paths:
        with contextlib.suppress(OSError, ValueError):
            found.append(json.loads(path.read_text(encoding="utf-8")))
    rows = [Row(**row) for part in found for row in part["rows"]]
    return rows, len(found) == len(paths) and all(part["complete"] for part in found)


def main() -> int:
    parser = argparse.ArgumentParser(prog="faults_matrix.py", description=__doc__, allow_abbrev=False)
    parser.add_argument("--report", type=Path, help="also write the report of a complete matrix here")
    parser.add_argument("--base", type=Path, help="folder that keeps the finished run, for the next call")
    options, arguments = parser.parse_known_args()
    if options.report and not options.report.absolute().parent.is_dir():
        parser.error(f"--report: {options.report}: its folder does not exist")
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    # The sessions are in sessions of their own: the end of a terminal reaches them through this process only.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda received, _: sys.exit(128 + received))
    started: list[tuple[subprocess.Popen, Path]] = []
    with tempfile.TemporaryDirectory(prefix="adrbench-faults-") as folder:
        base = (options.base or Path(folder)).resolve()
        halves = shares([path.name for path in HERE.glob("test_*.py")])
        try:
            for number, files in enumerate(halves, 1):
                started.append(session(number, files, base, arguments))
            codes = [process.wait() for process, _ in started]
        finally:
            end([process for process, _ in started])
    for number in range(1, len(started) + 1):
        print(REPORT.with_name(f"session{number}.log").read_text(errors="replace"), flush=True)
    rows, complete = merged([path for _, path in started])
    REPORT.write_text(table(rows), encoding="utf-8")
    print(f"{len(rows)} cases; report: {REPORT.relative_to(ROOT)}")
    code = verdict(codes)
    if options.report and complete and code == 0:
        options.report.write_text(table(rows), encoding="utf-8")
    elif options.report:
        print(f"{options.report} is left as it was: the matrix was not complete, or a case failed")
    return code


if __name__ == "__main__":
    sys.exit(main())
