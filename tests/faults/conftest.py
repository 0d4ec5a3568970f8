"""Finished runs to put faults into, and the report of the matrix."""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from adrbench.config.load import Run
from adrbench.model.gguf import write_safetensors
from adrbench.paths import ROOT

sys.path.insert(0, str(Path(__file__).parent))
from faults_configuration import TARGETS, load, quick_specification, specification, tiny, write_configuration
from faults_memory import Segments
from faults_report import Row, table
from faults_scene import R, Scene, environment

REPORT = ROOT / "results/faults/report.md"
rows: dict[str, Row] = {}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("faults")
    group.addoption("--faults-rows", help="write this session's rows here, for a report of several sessions")
    group.addoption("--faults-base", help="folder that keeps the finished run, for the next call of the tests")
    group.addoption("--faults-seed", type=int, default=8, help="seed of the random kills")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo) -> Iterator[None]:
    outcome = yield
    report = outcome.get_result()
    row = rows.get(item.nodeid)
    if row and report.outcome != "passed":
        row.result = report.outcome


def pytest_sessionfinish(session: pytest.Session) -> None:
    """The report of a run in which cases of real servers ran, or its rows for faults_matrix.py."""
    heavy = [item for item in session.items if item.get_closest_marker("faults")] if hasattr(session, "items") else []
    wanted = session.config.getoption("--faults-rows")
    if wanted:
        option = session.config.getoption
        complete = not (option("-k") or option("--collect-only") or session.testsfailed or deselected)
        document = {"complete": complete, "rows": [asdict(row) for row in rows.values()]}
        Path(wanted).write_text(json.dumps(document), encoding="utf-8")
    elif any(item.nodeid in rows for item in heavy):
        REPORT.parent.mkdir(parents=True, exist_ok=True)
        REPORT.write_text(table(list(rows.values())), encoding="utf-8")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first case of a real server waits for the finished run: the limit of ordinary tests is not theirs."""
    for item in items:
        if item.get_closest_marker("faults") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(3600))


deselected: list[str] = []


def pytest_deselected(items: list[pytest.Item]) -> None:
    deselected.extend(item.nodeid for item in items if "tests/faults" in item.nodeid)


@pytest.fixture(scope="session")
def workflow() -> Callable[..., list[str]]:
    """Command of the workflow in a working folder: ``workflow(folder, values, *targets)``."""

    def command(folder: Path, values: Path, *targets: str) -> list[str]:
        program = [sys.executable, "-m", "snakemake", "-s", str(ROOT / "Snakefile"), "-d", str(folder), "--cores", "1"]
        return [*program, *targets, "--configfile", str(ROOT / "config/config.yaml"), str(values)]

    return command


@pytest.fixture(scope="session")
def finished(request, tmp_path_factory, workflow, serve_python) -> tuple[Path, Path]:
    """A finished run of the tiny platform, really measured: (working folder, configuration values)."""
    kept = request.config.getoption("--faults-base")
    base = Path(kept).resolve() if kept else tmp_path_factory.mktemp("finished")
    values, folder = write_configuration(base, tiny()), base / "work"
    folder.mkdir(exist_ok=True)
    command = workflow(folder, values, *(f"{R}/{target}.json" for target in TARGETS))
    with open(base / "lock", "wb") as lock:  # of two sessions that share it, one makes it
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=3000, env=environment())
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    return folder, values


@pytest.fixture(scope="session")
def work(finished, workflow, tmp_path_factory) -> tuple[Path, Path]:
    """A copy of the finished run that Snakemake takes for its own, to interrupt: (working folder, values)."""
    base, values = finished
    folder = tmp_path_factory.mktemp("interrupted") / "work"
    for name in ("results", "models"):
        shutil.copytree(base / name, folder / name)
    command = [*workflow(folder, values, *(f"{R}/{target}.json" for target in TARGETS)), "--touch", "--forceall"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, env=environment())
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return folder, values


def _noter(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    def note(key: str, text: str) -> None:
        row = rows.get(request.node.nodeid)
        if row is not None and key == "asserted":
            row.asserted.append(text)
        elif row is not None:
            row.said = text

    return note


@pytest.fixture
def case(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Name the case for the report: ``case(fault, stage, server)``."""

    def name(fault: str, stage: str, server: str = "vLLM") -> None:
        rows[request.node.nodeid] = Row(fault, stage, server)

    return name


@pytest.fixture
def note(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    return _noter(request)


@pytest.fixture
def segments() -> Iterator[Segments]:
    """Shared memory of this case alone."""
    made = Segments()
    yield made
    made.close()


@pytest.fixture(scope="session")
def left(tmp_path_factory) -> Path:
    """What faults left behind, by stage."""
    return tmp_path_factory.mktemp("left")


@pytest.fixture
def scene(request, finished, left, segments, tmp_path) -> Scene:
    """A copy of the really measured run; its servers are real."""
    base, values = finished
    shutil.copytree(base / "results", tmp_path / "results")
    run = load(values)
    spec = specification(run, tmp_path, base / "models/cpu", run.python("serve"))
    return Scene(tmp_path, base, spec, _noter(request), left, segments)


@pytest.fixture(scope="session")
def standin(tmp_path_factory) -> str:
    """The stand-in for the serving interpreter."""
    path = tmp_path_factory.mktemp("standin") / "python"
    path.write_text(f"#!{sys.executable}\n" + Path(__file__).with_name("faults_standin.py").read_text())
    path.chmod(0o755)
    return str(path)


@pytest.fixture(scope="session")
def quick_base(tmp_path_factory, embedded_model, standin) -> tuple[Path, Run]:
    """A finished run by real jobs on the stand-in: device, a model folder, two rounds."""
    base = tmp_path_factory.mktemp("quick")
    platform = tiny()
    platform["serve"]["python"] = standin
    platform["model"] = {"source": "folder", "path": str(base / "models/cpu")}
    (base / "models/cpu").mkdir(parents=True)
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(embedded_model / name, base / "models/cpu" / name)
    write_safetensors({"a": np.ones((8, 8), np.float32)}, base / "models/cpu/model.safetensors")
    run = load(write_configuration(base / "configuration", platform))
    segments = Segments()
    made = Scene(base, base, quick_specification(run, base, standin), lambda key, text: None, base, segments)
    for stage, arm in (("device", "auto"), ("model", "auto"), ("serve", "auto"), ("serve", "fp8-e4m3")):
        job = made.start(stage, arm=arm)
        assert job.finish() == 0, job.said()
    segments.close()
    return base, run


@pytest.fixture
def quick(request, quick_base, standin, segments, tmp_path) -> Scene:
    """A copy of the run on the stand-in."""
    base, run = quick_base
    for name in ("results", "models"):
        shutil.copytree(base / name, tmp_path / name)
    spec = quick_specification(run, tmp_path, standin)
    return Scene(tmp_path, base, spec, _noter(request), tmp_path, segments)
