"""What a finished run spent on everything but its jobs' work, from the records that it left.

    PYTHONPATH=pythonpath python benchmarks/orchestration.py [--folder .] [--wall SECONDS] [--output FILE.json]

Snakemake's records (``.snakemake/metadata``, ``.snakemake/log``) say when each job began and ended, the evidence when
its work did. The wall time of a run is that of its log: from the time in its name to its last change; ``--wall`` names
what was measured around the whole command, the interpreter's own start included. Everything of it in which no job
worked is overhead: Snakemake before, between and after its jobs, and a job's time before and after its work.
Jobs without times of their own (reports, decisions) count as work but for the start of their module, which is measured
here: processor seconds of its ``--help``.
"""

from __future__ import annotations

import argparse
import base64
import binascii
import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

LOG_NAME = re.compile(r"(\d{4}-\d\d-\d\dT\d{6}\.\d+)\.snakemake\.log")
MODULE = re.compile(r" -m (adrbench[\w.]*)")
Interval = tuple[float, float]


@dataclass(frozen=True)
class Job:
    """One job of a run: its times by Snakemake, and those of its work by its own evidence (None: it says nothing)."""

    rule: str
    module: str | None
    began: float
    ended: float
    work: Interval | None


def records(folder: Path) -> dict[str, dict[str, Any]]:
    """Snakemake's record of each output, by the output's path."""
    found = {}
    for path in (folder / ".snakemake/metadata").rglob("*"):
        # A path that is too long for one name is split over folders.
        name = "".join(part.removeprefix("@") for part in path.relative_to(folder / ".snakemake/metadata").parts)
        if path.is_file():
            with contextlib.suppress(binascii.Error, UnicodeDecodeError, json.JSONDecodeError):
                found[base64.b64decode(name, validate=True).decode()] = json.loads(path.read_text(encoding="utf-8"))
    return found


def worked(path: Path) -> Interval | None:
    """From when to when the work of an evidence file took, in seconds since the epoch."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        times = [datetime.fromisoformat(content[key]).timestamp() for key in ("started_at", "finished_at")]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return times[0], times[1]


def jobs(folder: Path, window: Interval) -> list[Job]:
    """Jobs that began inside a run, in the order of their beginning; the outputs of one job are one."""
    outputs = defaultdict(list)
    for path, record in records(folder).items():
        if record.get("starttime") and window[0] <= record["starttime"] <= window[1]:
            outputs[record["rule"], tuple(record["log"]), record["endtime"]].append((path, record))
    found = []
    for (rule, _, ended), made in outputs.items():
        began = min(record["starttime"] for _, record in made)
        spans = [span for path, _ in made if path.endswith(".json") and (span := worked(folder / path))]
        inside = [(max(a, began), min(b, ended)) for a, b in spans if a < ended and b > began]
        named = MODULE.search(made[0][1].get("shellcmd") or "")
        work = (min(a for a, _ in inside), max(b for _, b in inside)) if inside else None
        found.append(Job(rule, named.group(1) if named else None, began, ended, work))
    return sorted(found, key=lambda job: job.began)


def window(log: Path) -> Interval:
    """Beginning and end of the run that wrote a log."""
    named = LOG_NAME.fullmatch(log.name)
    if not named:
        raise SystemExit(f"--log {log}: not a log of Snakemake (<time>.snakemake.log below .snakemake/log)")
    # Snakemake names its log in local time.
    began = time.mktime(time.strptime(named.group(1).partition(".")[0], "%Y-%m-%dT%H%M%S"))
    return began + float(f"0.{named.group(1).partition('.')[2]}"), log.stat().st_mtime


def covered(spans: Iterable[Interval]) -> float:
    """Length of a union of intervals: jobs may run beside each other."""
    total, reached = 0.0, float("-inf")
    for began, ended in sorted(spans):
        total += max(0.0, ended - max(began, reached))
        reached = max(reached, ended)
    return total


def start_up(module: str, repeats: int = 3) -> float:
    """Processor seconds of a module's ``--help``: the interpreter and all imports, without any work."""
    argv, spent = [sys.executable, "-m", module, "--help"], []
    for _ in range(repeats):
        process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, _, usage = os.wait4(process.pid, 0)
        process.returncode = 0
        spent.append(usage.ru_utime + usage.ru_stime)
    return statistics.median(spent)


def account(ran: list[Job], run: Interval, wall: float, startup: Callable[[str], float]) -> dict[str, Any]:
    """Where the wall time of a run went, in seconds; all parts of the overhead, and their share.

    Args:
        wall: at least the run's length; what is more was before the log.
        startup: start of a module in seconds, for jobs that say nothing of their own times.
    """
    modules = {job.module for job in ran if job.work is None and job.module}
    starts = {module: startup(module) for module in modules}
    spans = [job.work or (min(job.began + starts.get(job.module or "", 0.0), job.ended), job.ended) for job in ran]
    first, last = min(job.began for job in ran), max(job.ended for job in ran)
    busy = covered((job.began, job.ended) for job in ran)
    timed = [job for job in ran if job.work]
    work = covered(spans)
    leads = defaultdict(list)
    for job, (began, _) in zip(ran, spans, strict=True):
        leads[job.rule].append(began - job.began)
    parts = {
        "before the log": wall - (run[1] - run[0]),
        "before the first job": first - run[0],
        "between jobs": (last - first) - busy,
        "after the last job": run[1] - last,
        "start and end of jobs": busy - work,
    }
    return {
        "wall_s": wall,
        "jobs": len(ran),
        "jobs_with_times_of_their_own": len(timed),
        "work_s": work,
        "work_of_measuring_jobs_s": covered(job.work for job in timed if job.work),
        "overhead_s": parts,
        "overhead_share": (wall - work) / wall,
        "start_up_s": {rule: statistics.median(values) for rule, values in sorted(leads.items())},
    }


def table(found: dict[str, Any]) -> str:
    rows = [(name, seconds) for name, seconds in found["overhead_s"].items()]
    lines = [f"{name:24}{seconds:9.2f} s {100 * seconds / found['wall_s']:6.2f} %" for name, seconds in rows]
    lines += [f"{'overhead':24}{found['wall_s'] - found['work_s']:9.2f} s {100 * found['overhead_share']:6.2f} %"]
    lines += [f"{'wall':24}{found['wall_s']:9.2f} s, {found['jobs']} jobs", "", "start of a job, median"]
    return "\n".join(lines + [f"  {rule:22}{seconds:9.2f} s" for rule, seconds in found["start_up_s"].items()])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("."), help="working folder of the run")
    parser.add_argument("--log", type=Path, help="log of the run; the largest below .snakemake/log otherwise")
    parser.add_argument("--wall", type=float, help="seconds that the whole command took")
    parser.add_argument("--output", type=Path, help="JSON to write")
    asked = parser.parse_args()
    logs = sorted((asked.folder / ".snakemake/log").glob("*.snakemake.log"), key=lambda path: path.stat().st_size)
    log = asked.log or (logs[-1] if logs else parser.error(f"{asked.folder}: no log below .snakemake/log"))
    run = window(log)
    ran = jobs(asked.folder, run)
    if not ran:
        parser.error(f"{asked.folder}: no job of {log.name} is in Snakemake's records; a later run replaced them")
    wall = asked.wall or run[1] - run[0]
    if wall < run[1] - run[0]:
        parser.error(f"--wall {wall}: less than the {run[1] - run[0]:.1f} s of the log")
    found = account(ran, run, wall, start_up)
    print(table(found))
    if asked.output:
        asked.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
