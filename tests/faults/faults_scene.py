"""A working folder in which one real job meets a fault, and what must hold afterwards.

Processes are found by descent: this process is made the subreaper of all that a case starts, so that whatever a job,
a server or a worker leaves behind, in whatever session, is below it. Zombies do not count as alive.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from adrbench import evidence
from adrbench.job import PR_SET_CHILD_SUBREAPER, prctl
from adrbench.paths import ROOT
from adrbench.serve.guardian import descendants
from adrbench.serve.ports import listeners
from faults_memory import Segments

R = "results/cpu"
# Files of this size are told apart by size and time: hashing a model costs more than a case.
LARGE_BYTES = 16 << 20


def become_reaper() -> None:
    """Processes that a case orphans become children of this one instead of init's."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def environment() -> dict[str, str]:
    """What the workflow's rules give a job (rules/common.smk); caches are those of the test run."""
    caches = {"TORCHINDUCTOR_CACHE_DIR": str(ROOT / ".cache/inductor")}
    return {**caches, **os.environ, "PYTHONPATH": str(ROOT / "pythonpath"), "PYTHONUNBUFFERED": "1"}


def digests(folder: Path, leave_out: tuple[str, ...] = ()) -> dict[str, str]:
    """Every result file below ``folder`` by its content, but those below the paths of ``leave_out``."""
    found = {}
    for top in ("results", "models"):
        for path in sorted((folder / top).rglob("*")):
            name = path.relative_to(folder).as_posix()
            if not path.is_file() or name.startswith((f"{R}/rejected", *leave_out)):
                continue
            size = path.stat().st_size
            whole = size < LARGE_BYTES
            found[name] = (
                hashlib.sha256(path.read_bytes()).hexdigest() if whole else f"{size} {path.stat().st_mtime_ns}"
            )
    return found


def documents(folder: Path) -> list[str]:
    """Evidence files of a working folder, by name; a damaged one is none."""
    found = []
    for path in sorted((folder / R).rglob("*.json")):
        name = path.relative_to(folder).as_posix()
        if "/rejected/" in name or not path.is_file():
            continue
        with contextlib.suppress(ValueError):
            if {"schema_version", "stage", "measured"} <= set(json.loads(path.read_text())):
                evidence.read(path)
                found.append(name)
    return found


# What two runs of one job have in common, whatever the clock and the load of the host: by stage, keys of `measured`.
CELLS: dict[str, tuple[str, ...]] = {
    "device": ("fp8", "seen_by"),
    "model": ("digest", "parameters", "weight_bytes", "greedy_answer"),
    "kernels": ("cases", "proved", "not_proved"),
    "serve": (
        "answers",
        "completed",
        "failed",
        "first_input_tokens",
        "input_tokens",
        "output_tokens",
        "preemptions",
        "prefix_cache_hits",
        "server_generation_tokens",
        "server_prompt_tokens",
    ),
    "integrate": ("answers", "answers_equal", "answers_compared", "ignored", "changed"),
    "eval": ("server_counters",),
    "profile": ("weights", "pool", "model"),
}
TASK_CELLS = ("class", "metric", "samples", "scores", "forms", "prompt_tokens", "empty_predictions")
RESOLVED_VARIES = {"plugin"}  # process ids


def cells(path: Path) -> dict[str, Any]:
    """The deterministic cells of an evidence file: asked, resolved, counts, answers, scores, names of raw files.

    Paths below the working folder are written without it, so that copies of a folder compare.
    """
    found = evidence.read(path)
    measured = {key: found.measured[key] for key in CELLS[found.stage] if key in found.measured}
    if found.stage == "eval":
        tasks = found.measured["tasks"].items()
        measured["tasks"] = {name: {key: task[key] for key in TASK_CELLS if key in task} for name, task in tasks}
    # The folder of a trace's file carries the host, the process and the time.
    files = sorted(name for name in found.files if not name.startswith("trace/"))
    resolved = {key: value for key, value in found.resolved.items() if key not in RESOLVED_VARIES}
    parts = {"arm": found.arm, "asked": found.asked, "resolved": resolved, "measured": measured, "files": files}
    text = re.sub(r'"/[^"]*?/(models|results)/cpu', r'"./\1/cpu', evidence.canonical(parts))
    return {"stage": found.stage} | json.loads(text)


@dataclass
class Job:
    """A job under test; what it says goes to ``log``."""

    process: subprocess.Popen
    log: Path

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_for(self, path: Path, text: str, limit_s: float = 900) -> None:
        """Until ``text`` stands in ``path``; the job must still be running then."""
        pattern, deadline = re.compile(text), time.monotonic() + limit_s
        while not (path.is_file() and pattern.search(path.read_text(errors="replace"))):
            assert self.process.poll() is None, f"the job ended before {text!r} stood in {path}:\n{self.said()[-3000:]}"
            assert time.monotonic() < deadline, f"{text!r} did not appear in {path}:\n{self.said()[-3000:]}"
            time.sleep(0.02)

    def finish(self, limit_s: float = 900) -> int:
        return self.process.wait(limit_s)

    def find(self, words: str) -> int:
        """Process id of the first descendant, parents first, whose name or command line matches ``words``."""
        for pid in descendants(self.process.pid):
            with contextlib.suppress(OSError):
                name = Path(f"/proc/{pid}/comm").read_bytes().decode(errors="replace")
                line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if re.search(words, f"{name} {line}") and "adrbench.serve.guardian" not in line:
                    return pid
        raise AssertionError(f"no process matches {words!r}")


SERVER = r"vllm\.entrypoints\.cli\.main serve"
# Titles that vLLM gives its processes; the bare names also stand in folders of tests that name them.
ENGINE = "VLLM::EngineCore"
WORKER = "VLLM::Worker"
CLIENT = r"adrbench\.serve\.loadgen"
OPENCOMPASS = r"adrbench\.eval\.samples"


# Exit code of a guarded command that a SIGKILL ended.
SIGKILLED = 128 + signal.SIGKILL


def alive(before: set[int]) -> list[str]:
    """Descendants of this process that were not there ``before``, in words."""
    found = []
    for pid in descendants(os.getpid()):
        with contextlib.suppress(OSError):
            line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if pid not in before:
                found.append(f"{pid} {line[:120]}")
    return found


def wait_gone(before: set[int], limit_s: float) -> list[str]:
    """Wait, by the kernel's own handles, until every descendant that is not in ``before`` has ended; who has not."""
    deadline = time.monotonic() + limit_s
    while (left := alive(before)) and time.monotonic() < deadline:
        with contextlib.suppress(ProcessLookupError):
            handle = os.pidfd_open(int(left[0].split()[0]))
            try:
                select.select([handle], [], [], max(0.0, deadline - time.monotonic()))
            finally:
                os.close(handle)
    return left


def reap(job: int) -> None:
    """Collect the orphans that ended as children of this process."""
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ChildProcessError, IndexError):
            fields = entry.read_bytes().decode(errors="replace").rpartition(")")[2].split()
            pid = int(entry.parent.name)
            if fields[0] == "Z" and int(fields[1]) == os.getpid() and pid != job:
                os.waitpid(pid, os.WNOHANG)


@dataclass
class Scene:
    """A copy of a finished run. ``spec`` gives a job's specification as its rule does; ``base`` is what was copied.

    ``note`` keeps what was asserted, for the report; ``store`` is shared by all cases of a session.
    """

    folder: Path
    base: Path
    spec: Callable[[str, str], dict[str, Any]]
    note: Callable[[str, str], None]
    store: Path
    segments: Segments
    before: set[int] = field(default_factory=set)
    others: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        become_reaper()
        self.before = self.living()

    def living(self) -> set[int]:
        """Processes below this one now."""
        return set(descendants(os.getpid()))

    def output(self, stage: str, arm: str = "auto") -> Path:
        """Evidence file of a stage's job, relative to the working folder."""
        return Path(f"{R}/serve/{arm}/r1/short.json" if stage == "serve" else {
            "eval": f"{R}/eval/{arm}.json", "profile": f"{R}/profile/{arm}.json", "ceiling": f"{R}/ceiling.json",
        }.get(stage, f"{R}/{stage}.json"))  # fmt: skip

    def raw(self, stage: str, arm: str = "auto") -> Path:
        """Folder of a job's raw files: of all tiers and the server for a round."""
        output = self.output(stage, arm)
        return output.parent if stage == "serve" else output.with_suffix("")

    def own(self, stage: str, arm: str = "auto") -> tuple[str, ...]:
        """Where a job writes: what may differ after its fault."""
        return (str(self.raw(stage, arm)), *(("models/",) if stage == "model" else ()))

    def forget(self, stage: str, arm: str = "auto") -> None:
        """As if the job had never run."""
        (self.folder / self.output(stage, arm)).unlink(missing_ok=True)
        shutil.rmtree(self.folder / self.raw(stage, arm), ignore_errors=True)

    def start(self, stage: str, spec: dict[str, Any] | None = None, arm: str = "auto", **options: Any) -> Job:
        """Start the job as its rule does; the digests of all other results are kept first."""
        self.others = digests(self.folder, self.own(stage, arm))
        module, text = f"adrbench.{stage}", json.dumps(spec or self.spec(stage, arm))
        command = [sys.executable, "-m", module, "--spec", text, "--output", str(self.output(stage, arm))]
        log = self.folder / f"{stage}.log"
        with open(log, "wb") as stream:
            process = subprocess.Popen(
                self.segments.command(command),
                cwd=self.folder,
                stdout=stream,
                stderr=subprocess.STDOUT,
                env=environment() | options.pop("env", {}),
                start_new_session=True,
                **options,
            )
        return Job(process, log)

    def nothing_stays(self, job: Job, server: Path | None = None, limit_s: float = 0) -> None:
        """No process of ours lives, its port is closed, and no shared memory, socket or temporary file is left.

        ``limit_s``: 0 where the job ended by itself; seconds for guardians to act where the job itself was killed.
        """
        left = wait_gone(self.before, limit_s)
        reap(job.process.pid)
        assert left == []
        self.note("asserted", "no process")
        if server and (server / "server.json").is_file():
            argv = json.loads((server / "server.json").read_text())["argv"]
            assert listeners(int(argv[argv.index("--port") + 1])) == set()
            self.note("asserted", "port closed")
        self.note("asserted", self.segments.free())

    def others_untouched(self, stage: str, arm: str = "auto") -> None:
        assert digests(self.folder, self.own(stage, arm)) == self.others
        self.note("asserted", "other results untouched")

    def refused(self, stage: str, reason: str | None, *texts: str, job: Job, arm: str = "auto", code: int = 1) -> None:
        """The job ended with ``code``, said each of ``texts``, recorded ``reason``, and left nothing but its log."""
        assert job.finish() == code, job.said()[-3000:]
        said = job.said()
        message = said[said.rfind("adrbench ") :] if "adrbench " in said else said[-1500:]
        for text in texts:
            assert re.search(text, message, re.DOTALL), f"{text!r} is not in:\n{message[-3000:]}"
        self.note("said", message)
        records = sorted((self.folder / R / "rejected").glob("*.json"))
        if reason is None:
            assert records == []
        else:
            found = [json.loads(path.read_text())["reason"] for path in records]
            assert len(found) == 1, message
            assert re.fullmatch(reason, found[0]), message
            self.note("asserted", "refusal recorded")
        assert not (self.folder / self.output(stage, arm)).exists()
        server = self.folder / self.raw(stage, arm) / "server"
        self.nothing_stays(job, server)
        self.others_untouched(stage, arm)

    def leave(self, stage: str, arm: str = "auto") -> None:
        """Keep what the fault has left, beside what others of its stage left, for one rerun on all of it."""
        if (self.folder / self.raw(stage, arm)).is_dir():
            shutil.copytree(self.folder / self.raw(stage, arm), self.store / stage, dirs_exist_ok=True)
        self.note("asserted", "rerun: one on what all faults of the stage left")

    def rerun_on_what_was_left(self, stage: str, arm: str = "auto") -> None:
        """The rerun of every case that called ``leave``."""
        self.forget(stage, arm)
        shutil.copytree(self.store / stage, self.folder / self.raw(stage, arm))
        self.rerun(stage, arm)

    def rerun(self, stage: str, arm: str = "auto", limit_s: float = 1800) -> None:
        """The same job, undisturbed: the same set of evidence as the finished run's, the same deterministic cells."""
        job = self.start(stage, arm=arm)
        assert job.finish(limit_s) == 0, job.said()[-3000:]
        assert documents(self.folder) == documents(self.base)
        path, model = self.output(stage, arm), self.base / self.output(stage, arm)
        assert evidence.verify_files(self.folder / path) == []
        assert cells(self.folder / path) == cells(model)
        self.nothing_stays(job, self.folder / self.raw(stage, arm) / "server")
        self.others_untouched(stage, arm)
        self.note("asserted", "rerun: same evidence, same deterministic cells")


def start_seconds(base: Path) -> float:
    """What a server of the finished run took to start, in seconds: the quickest, as the first fills the host's file
    cache and other work of the host slows any of them."""
    found = [*(base / R / "serve").glob("*/r1/short.json"), *(base / R / "integrate").glob("*.json")]
    return min(evidence.read(path).measured["start_s"] for path in found)


def patience(scene: Scene) -> float:
    """Seconds for a hung process to be waited for on this host: a client's own start, beside three busy processes,
    has taken 20 s where a server's took 45, and a limit that it meets is no test of a hang."""
    return max(45.0, 1.5 * start_seconds(scene.base))
