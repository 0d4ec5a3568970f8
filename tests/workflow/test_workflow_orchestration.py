"""benchmarks/orchestration.py: what it makes of the records of a run, with times that a test chooses.

It proves the arithmetic; what a run spends is measured on a finished one.
"""

from __future__ import annotations

import base64
import importlib.util
import json
import os
import sys
from datetime import datetime, timezone
from pathlib import Path

import pytest
from adrbench.paths import ROOT

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc).timestamp()


@pytest.fixture(scope="module")
def orchestration():
    spec = importlib.util.spec_from_file_location("orchestration", ROOT / "benchmarks/orchestration.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["orchestration"] = module
    spec.loader.exec_module(module)
    return module


def stamp(seconds: float) -> str:
    return datetime.fromtimestamp(START + seconds, timezone.utc).isoformat(timespec="milliseconds")


def record(folder: Path, path: str, rule: str, began: float, ended: float, work: tuple[float, float] | None) -> None:
    """One output as Snakemake and its job leave it."""
    name = base64.b64encode(path.encode()).decode()
    content = {
        "rule": rule, "log": [f"logs/{rule}.log"], "starttime": START + began, "endtime": START + ended,
        "shellcmd": f"python -m adrbench.{rule} --spec x",
    }  # fmt: skip
    metadata = folder / ".snakemake/metadata" / name
    metadata.parent.mkdir(parents=True, exist_ok=True)
    metadata.write_text(json.dumps(content))
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    times = {"started_at": stamp(work[0]), "finished_at": stamp(work[1])} if work else {}
    (folder / path).write_text(json.dumps(times))


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    """Ten seconds: two outputs of one job, a job beside it, and a report; one job of an earlier run."""
    record(tmp_path, "results/cpu/serve/a.json", "serve", 1.0, 6.0, (1.5, 5.5))
    record(tmp_path, "results/cpu/serve/b.json", "serve", 1.0, 6.0, (2.0, 5.75))
    record(tmp_path, "results/cpu/eval.json", "eval", 2.0, 7.0, (4.0, 6.5))
    record(tmp_path, "reports/x.json", "report", 8.0, 9.0, None)
    record(tmp_path, "results/cpu/device.json", "device", -90.0, -80.0, (-89.0, -81.0))
    log = tmp_path / ".snakemake/log/2026-01-02T030405.000000.snakemake.log"
    log.parent.mkdir()
    log.write_text("log")
    os.utime(log, (START + 10, START + 10))
    return tmp_path


def test_what_is_no_work_is_overhead(orchestration, finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    orchestration.time.tzset()
    run = orchestration.window(next((finished / ".snakemake/log").iterdir()))
    ran = orchestration.jobs(finished, run)
    assert [job.rule for job in ran] == ["serve", "eval", "report"]
    found = orchestration.account(ran, run, 12.0, lambda module: {"adrbench.report": 0.25}[module])
    # Worked: 1.5 to 6.5 by two jobs beside each other, and the report from 8.25 to 9.
    assert found["work_s"] == pytest.approx(5.75)
    assert found["overhead_s"] == pytest.approx(
        {
            "before the log": 2.0,
            "before the first job": 1.0,
            "between jobs": 1.0,
            "after the last job": 1.0,
            "start and end of jobs": 1.25,
        }
    )
    assert sum(found["overhead_s"].values()) == pytest.approx(12.0 - found["work_s"])
    assert found["overhead_share"] == pytest.approx(6.25 / 12)
    assert found["start_up_s"] == pytest.approx({"serve": 0.5, "eval": 2.0, "report": 0.25})
    assert "overhead" in orchestration.table(found)


def test_times_of_work_outside_its_job_are_an_older_files(orchestration, tmp_path: Path) -> None:
    record(tmp_path, "results/cpu/serve/a.json", "serve", 1.0, 6.0, (-50.0, -40.0))
    (job,) = orchestration.jobs(tmp_path, (START, START + 10))
    assert job.work is None


def test_what_is_no_log_is_refused(orchestration, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="not a log of Snakemake"):
        orchestration.window(tmp_path / "x.log")


def test_the_start_of_a_module_is_measured(orchestration, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "pythonpath"))
    assert 0.01 < orchestration.start_up("adrbench.report.publish", repeats=1) < 60
