"""A model that is not there is made again from its source, and none is served that was not measured.

Shapes stand for all sources here; the embedded weights are converted again by tests/e2e.
"""

from __future__ import annotations

import errno
import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from adrbench import config as configuration
from adrbench import evidence
from adrbench.config import jobs
from adrbench.evidence import Evidence
from adrbench.job import JobError
from adrbench.model import provide as providing
from adrbench.model.folder import check_folder
from adrbench.model.make import write_shape
from adrbench.model.provide import provide, served_folder
from adrbench.scratch import HOST
from adrbench.serve.process import job_environment
from waiting import until

SHAPE = "smollm2-135m"
RESULTS = Path("results/cpu")
TIMES = {"started_at": "2026-11-30T00:00:00.000+00:00", "finished_at": "2026-11-30T00:01:00.000+00:00"}


@pytest.fixture(scope="module")
def shape(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("shape") / "model"
    write_shape(SHAPE, folder)
    return folder


@pytest.fixture
def work(tmp_path: Path, monkeypatch, shape) -> Path:
    """A working folder with evidence of a shape that was measured elsewhere, and without the shape's folder."""
    monkeypatch.chdir(tmp_path)
    tell(check_folder(shape)["digest"])
    return tmp_path


def tell(digest: str, source: str = "shape", folder: str = "/elsewhere/models/cpu") -> None:
    """Evidence of the model, as another host wrote it."""
    asked = {"source": source, "folder": folder, "wheel": "/elsewhere/.envs/wheels/none.whl", "shape": SHAPE}
    document = Evidence(stage="model", platform="cpu", asked=asked, measured={"digest": digest}, **TIMES)
    evidence.write(RESULTS / "model.json", document)


def spec(folder: Path) -> dict:
    return {"platform": "cpu", "server": {"model": str(folder)}}


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_it_is_made_again_and_is_the_one_that_was_measured(work, shape):
    provide(spec(work / "models/cpu"), RESULTS)
    assert content(work / "models/cpu") == content(shape)
    assert [path.name for path in (work / "models").iterdir()] == ["cpu"]


def test_it_is_made_once_and_read_once(work, monkeypatch):
    provide(spec(work / "models/cpu"), RESULTS)
    made = (work / "models/cpu").stat().st_ino
    monkeypatch.setattr(providing, "check_folder", lambda folder: pytest.fail(f"{folder} was read again"))
    provide(spec(work / "models/cpu"), RESULTS)
    assert (work / "models/cpu").stat().st_ino == made


def test_another_model_than_the_measured_one_never_appears(work):
    tell("0" * 64)
    with pytest.raises(JobError, match=r"made from 'shape' has digest .*, that of results/cpu/model.json has 0{16}"):
        provide(spec(work / "models/cpu"), RESULTS)
    assert list((work / "models").iterdir()) == []


@pytest.mark.parametrize(("source", "remedy"), [("shape", "it is made again"), ("folder", "put the model that was")])
def test_another_model_that_is_there_is_refused(work, shape, source, remedy):
    tell("0" * 64, source)
    shutil.copytree(shape, work / "models/cpu")
    before = content(work / "models/cpu")
    for _ in range(2):
        with pytest.raises(JobError, match=remedy) as refused:
            provide(spec(work / "models/cpu"), RESULTS)
        assert refused.value.reason == "other-model"
    assert content(work / "models/cpu") == before


def test_a_folder_that_changed_since_is_read_again(work):
    provide(spec(work / "models/cpu"), RESULTS)
    path = work / "models/cpu/config.json"
    path.write_text(path.read_text().replace("576", "577"))
    with pytest.raises(JobError, match="is not the model that was measured"):
        provide(spec(work / "models/cpu"), RESULTS)


def test_half_a_folder_is_told_with_what_to_do(work):
    (work / "models/cpu").mkdir(parents=True)
    with pytest.raises(JobError, match=r"config.json does not exist.*delete .*models/cpu, and it is made again"):
        provide(spec(work / "models/cpu"), RESULTS)


def test_a_folder_that_the_platform_names_is_never_made(work):
    tell("0" * 64, "folder", "/models/large")
    provide(spec(work / "models/cpu"), RESULTS)
    provide(spec(work / "large"), RESULTS)
    tell("0" * 64, "shape")
    provide(spec(work / "large"), RESULTS)  # not the project's own folder
    assert not (work / "models").exists()
    assert not (work / "large").exists()


def test_without_evidence_of_a_model_nothing_is_made(work):
    (work / RESULTS / "model.json").unlink()
    provide(spec(work / "models/cpu"), RESULTS)
    assert not (work / "models").exists()


def test_a_lost_package_is_said(work):
    tell("0" * 64, "embedded")
    with pytest.raises(JobError, match=r"none.whl does not exist; run `make setup`"):
        provide(spec(work / "models/cpu"), RESULTS)


PROVIDE = """
import sys
from pathlib import Path
from adrbench.model import provide
if len(sys.argv) > 1:
    made = provide.make
    def make(spec, folder):
        made(spec, folder)
        Path("made").touch()
        import time; time.sleep(3600)
    provide.make = make
provide.provide({"server": {"model": str(Path.cwd() / "models/cpu")}}, Path("results/cpu"))
"""


def start(work: Path, *words: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", PROVIDE, *words], cwd=work, env=job_environment(), stdout=subprocess.PIPE, text=True
    )


def test_of_several_jobs_one_makes_it(work, shape):
    started = [start(work) for _ in range(3)]
    said = "".join(process.communicate(timeout=300)[0] for process in started)
    assert [process.returncode for process in started] == [0, 0, 0]
    assert said.count("making it again") == 1
    assert content(work / "models/cpu") == content(shape)


@pytest.mark.parametrize("other", ["the same", "another model"])
def test_another_host_that_was_faster_is_believed_as_far_as_its_model_goes(work, shape, monkeypatch, other):
    """Locks may not reach over a shared file system."""
    made = providing.make

    def make(spec, folder):
        made(spec, folder)
        shutil.copytree(shape, work / "models/cpu")
        if other != "the same":
            (work / "models/cpu/tokenizer.json").write_text("{}")

    monkeypatch.setattr(providing, "make", make)
    if other == "the same":
        provide(spec(work / "models/cpu"), RESULTS)
    else:
        with pytest.raises(JobError, match="is not the model that was measured"):
            provide(spec(work / "models/cpu"), RESULTS)
    assert [path.name for path in (work / "models").iterdir()] == ["cpu"]


def test_what_a_killed_job_left_is_removed_by_the_next(work, shape):
    process = start(work, "and wait")
    try:
        assert until((work / "made").exists)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert [path.name[:5] for path in (work / "models").iterdir()] == [".cpu-"]
    provide(spec(work / "models/cpu"), RESULTS)
    assert [path.name for path in (work / "models").iterdir()] == ["cpu"]
    assert content(work / "models/cpu") == content(shape)


def test_a_file_system_without_locks_makes_it_too_and_leaves_what_others_may_be_making(work, shape, monkeypatch):
    def refuse(*_args: int) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(providing.fcntl, "flock", refuse)
    other = work / "models" / f".cpu-{HOST}-other"
    other.mkdir(parents=True)
    provide(spec(work / "models/cpu"), RESULTS)
    assert content(work / "models/cpu") == content(shape)
    assert other.is_dir()


JOB = """
from adrbench.job import run
run("serve", lambda spec, output: print("served"))
"""


def test_the_frame_of_a_job_serves_nothing_by_another_model(work, shape):
    shutil.copytree(shape, work / "models/cpu")
    words = ["--spec", json.dumps(spec(work / "models/cpu")), "--output", "results/cpu/serve/auto/r1/short.json"]

    def job() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", JOB, *words]
        return subprocess.run(command, cwd=work, env=job_environment(), capture_output=True, text=True, timeout=120)

    assert "served" in job().stdout
    tell("0" * 64)
    done = job()
    assert done.returncode == 1
    assert "served" not in done.stdout
    assert "adrbench serve: refused (other-model): " in done.stderr
    (rejected,) = (work / RESULTS / "rejected").glob("*.json")
    assert json.loads(rejected.read_text())["reason"] == "other-model"


def test_every_job_that_reads_a_model_names_it_where_it_is_looked_for(root):
    """Specifications as the rules make them; the model's own job makes its folder itself."""
    run = configuration.load(yaml.safe_load((root / "config/config.yaml").read_text()) | {"platform": "cpu-kv"})
    arm, folder = run.platform.baseline, "/m/cpu"
    mechanisms = [one for one in run.platform.integrate if not one.blocked]
    specs = [
        jobs.serve(run, arm, 1, folder, "python", "e"),
        jobs.refusal(run, arm, folder, "python"),
        *(jobs.integrate(run, one, folder, "python", "r") for one in mechanisms),
        jobs.accuracy(run, arm, folder, "python", "python", "e"),
        jobs.agreement(run, arm, 1, folder, "python", "e"),
        jobs.calibrate(run, folder, "e"),
        jobs.memory(run, folder, "e", {}),
        jobs.profile(run, arm, folder, "python", "c"),
        jobs.counters(run, arm, folder, "python"),
    ]
    assert [served_folder(one) for one in specs] == [Path(folder)] * len(specs)
    assert served_folder(jobs.device(run, "python")) is None
    assert served_folder(jobs.ceiling(run)) is None
