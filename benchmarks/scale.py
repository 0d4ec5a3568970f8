"""The plan of many arms: this workflow beside a bare Snakefile of the same jobs, edges and files.

    PYTHONPATH=pythonpath python benchmarks/scale.py [--arms 1000] [--rounds 3] [--repeats 5] [--output FILE.json]

A platform of ``arms`` arms and a decision that compares all of them are written into a scratch folder. Each repeat runs
``snakemake -n`` of this workflow and then of the bare one; what counts is the pair's ratio of processor seconds (user
and system, children included), because both see the same machine. The bare Snakefile is written from this workflow's
own graph: servings and accuracy runs as two rules with wildcards, every other job as a rule of its own, no
specification, no configuration, no input function. The two plans are compared output by output before anything is
timed. ``--keep FOLDER`` keeps both for a look. Besides, one choice of each of Snakemake's schedulers is timed.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import logging
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import yaml
from adrbench.paths import ROOT

NAME = "scale"
DECISION = "adrscale"
SNAKEMAKE = Path(sys.executable).parent / "snakemake"
MIB = 1 << 20


@dataclass(frozen=True)
class Job:
    """One job of a plan."""

    rule: str
    log: str
    inputs: frozenset[str]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Measured:
    """One process: processor seconds (user and system, children included) and its greatest resident set in MiB."""

    seconds: float
    mib: float


def platform(arms: int, rounds: int) -> dict[str, Any]:
    """The shipped CPU platform with ``arms`` arms, which differ in one argument."""
    found: dict[str, Any] = yaml.safe_load((ROOT / "config/platforms/cpu.yaml").read_text(encoding="utf-8"))
    expect = {"attention_backend": "CPU_ATTN", "kv_cache_dtype": "auto"}
    others = [
        {"name": f"arm-{k}", "title": f"arm {k}", "args": ["--max-logprobs", str(k)], "expect": expect}
        for k in range(1, arms)
    ]
    serve = found["serve"] | {"rounds": rounds, "baseline_rounds": rounds}
    return found | {"name": NAME, "title": "scale", "serve": serve, "arms": found["arms"][:1] + others}


def decision(arms: int) -> dict[str, Any]:
    """ADR 0011 with every arm as an option."""
    found: dict[str, Any] = yaml.safe_load((ROOT / "config/decisions/adr0011.yaml").read_text(encoding="utf-8"))
    options = [{"name": "auto", "title": "bf16", "arms": ["auto"]}]
    options += [{"name": f"arm {k}", "title": f"arm {k}", "arms": [f"arm-{k}"]} for k in range(1, arms)]
    return found | {
        "id": DECISION,
        "number": "9999",
        "stages": ["kernels", "serve", "eval", "claims"],
        "together": [],
        "options": options,
        "resolutions": [],
    }


def write_project(folder: Path, arms: int, rounds: int) -> list[Path]:
    """Writes platform, decision and main configuration; returns the files that Snakemake reads."""
    for name in ("platforms", "decisions"):
        (folder / name).mkdir(parents=True)
    (folder / f"platforms/{NAME}.yaml").write_text(yaml.safe_dump(platform(arms, rounds)), encoding="utf-8")
    (folder / f"decisions/{DECISION}.yaml").write_text(yaml.safe_dump(decision(arms)), encoding="utf-8")
    values = {
        "platform": NAME,
        "adrs": [DECISION],
        "platforms": str(folder / "platforms"),
        "decisions": str(folder / "decisions"),
    }
    (folder / "values.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
    return [ROOT / "config/config.yaml", folder / "values.yaml"]


def command(snakefile: Path, folder: Path, *arguments: str) -> list[str]:
    profile = str(ROOT / "profiles/default")
    common = ["--cores", "1", "--workflow-profile", profile, "-d", str(folder), "-s", str(snakefile)]
    return [str(SNAKEMAKE), *common, *arguments]


def environment() -> dict[str, str]:
    """Without the cache of Snakemake's source files in the home folder, which the first of the two would fill."""
    return os.environ | {"PYTHONHASHSEED": "0"}


def plan(snakefile: Path, folder: Path, configuration: list[Path]) -> list[Job]:
    """Jobs of a Snakefile's plan for its default target, from Snakemake's own graph; paths relative to ``folder``."""
    from snakemake.api import ConfigSettings, OutputSettings, ResourceSettings, SnakemakeApi
    from snakemake.settings.enums import Quietness

    with SnakemakeApi(OutputSettings(quiet={Quietness.ALL})) as api:
        workflow = api.workflow(
            resource_settings=ResourceSettings(cores=1),
            config_settings=ConfigSettings(configfiles=configuration),
            snakefile=snakefile,
            workdir=folder,
        )
        with contextlib.redirect_stdout(io.StringIO()):
            workflow.dag().summary()
        found = list(workflow._workflow.dag.jobs)
    here = f"{folder}/"

    def names(files: Iterable[str]) -> tuple[str, ...]:
        return tuple(str(file).removeprefix(here) for file in files)

    return [
        Job(job.rule.name, "".join(names(job.log)), frozenset(names(job.input)), names(job.output)) for job in found
    ]


def apart(*arguments: Any) -> list[Job]:
    """``plan`` in a process of its own: a child's greatest resident set starts at its parent's."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(plan, *arguments).result()


def pattern(text: str, arm: str, number: str | None) -> str:
    """A file of one arm's job with wildcards in place of arm and round."""
    text = text.replace(arm, "{arm}")
    return text if number is None else text.replace(f"r{number}", "r{round}")


def bulk_rule(jobs: list[Job]) -> str:
    """The rule that makes all jobs of one kind that differ in arm (and round) only."""
    first = next(job for job in jobs if "arm-1" in job.log and "arm-10" not in job.log)
    number = "1" if first.rule == "serve" else None
    if number and "-r1" not in first.log:
        first = next(job for job in jobs if job.log.endswith("/arm-1-r1.log"))
    outputs = [pattern(path, "arm-1", number) for path in first.outputs]
    return (
        f"rule {first.rule}:\n    input: {sorted(first.inputs)!r}\n    output: {outputs!r}\n"
        f"    log: {pattern(first.log, 'arm-1', number)!r}\n    resources: device=1\n"
        f"    message: '{first.rule}: arm {{wildcards.arm}} (log: {{log}})'\n    shell: 'touch {{output}}'\n"
    )


def bare(jobs: list[Job]) -> str:
    """A Snakefile with the jobs of a plan and nothing else."""
    count = Counter(job.rule for job in jobs)
    bulk = {rule for rule in ("serve", "eval") if count[rule] > 1}
    target = next(job for job in jobs if job.rule == "all")
    parts = [f"rule all:\n    input: {sorted(target.inputs)!r}\n"]
    parts += [bulk_rule([job for job in jobs if job.rule == rule]) for rule in sorted(bulk)]
    for number, job in enumerate(job for job in jobs if job.rule not in {*bulk, "all"}):
        folders = [path for path in job.outputs if not Path(path).suffix]
        made = ", ".join(f"directory({path!r})" if path in folders else repr(path) for path in job.outputs)
        parts.append(
            f"rule {job.rule}_{number}:\n    input: {sorted(job.inputs)!r}\n    output: {made}\n    log: {job.log!r}\n"
            f"    message: '{job.rule}: (log: {{log}})'\n    shell: 'touch {{output}}'\n"
        )
    return "\n".join(parts)


def shape(jobs: list[Job]) -> set[tuple[frozenset[str], frozenset[str]]]:
    return {(job.inputs, frozenset(job.outputs)) for job in jobs}


def timed(argv: list[str], log: Path) -> Measured:
    """One process to its end.

    Raises:
        SystemExit: it failed.
    """
    with log.open("wb") as out:
        watched = [sys.executable, "-S", "-c", WATCH, *argv]
        done = subprocess.run(watched, stdout=subprocess.PIPE, stderr=out, env=environment(), check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(argv)} failed:\n{log.read_text()[-4000:]}")
    seconds, kib = json.loads(done.stdout)
    return Measured(seconds, kib * 1024 / MIB)


# Between us and what is measured: a process counts the memory of the one that started it as its own peak until then
# (Linux carries it over exec), and a test runner's is large. This one is small.
WATCH = """
import json, resource, subprocess, sys
code = subprocess.run(sys.argv[1:], stdout=sys.stderr).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([used.ru_utime + used.ru_stime, used.ru_maxrss]))
sys.exit(code)
"""


def planned(log: Path) -> int:
    """Jobs that a dry run announced."""
    return int(next(line for line in log.read_text().splitlines() if line.startswith("total ")).split()[1])


def spent() -> float:
    """Processor seconds of this process and the children that ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


class Ready:
    """A job that waits for the only device, as a scheduler sees it."""

    def __init__(self, priority: int):
        self.priority = priority
        self.scheduler_resources = {"_cores": 1, "_nodes": 1, "device": 1}
        self.input: list[str] = []


def one_choice(ready: int) -> dict[str, Any]:
    """Processor seconds of Snakemake's two schedulers to choose one of ``ready`` jobs, and whether it is the first.

    A run of as many jobs chooses as many times, from fewer and fewer.
    """
    from snakemake.scheduling import greedy, milp

    found: dict[str, Any] = {"ready": ready}
    resources = {"_cores": 1, "_nodes": sys.maxsize, "device": 1}
    for name, kind in (("greedy", greedy), ("ilp", milp)):
        waiting = [Ready(ready - k) for k in range(ready)]
        scheduler = kind.Scheduler(None, kind.SchedulerSettings(), logging.getLogger(name))
        before = spent()
        chosen = scheduler.select_jobs(waiting, waiting, resources, {})
        found[f"{name}_s"] = spent() - before
        found[f"{name}_takes_the_first"] = chosen == waiting[:1]
    return found


def spread(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}


def measure(folder: Path, arms: int, rounds: int, repeats: int) -> dict[str, Any]:
    """Both plans side by side; ``folder`` is empty."""
    configuration = write_project(folder / "project", arms, rounds)
    (folder / "ours").mkdir()
    (folder / "bare").mkdir()
    ours = [*command(ROOT / "Snakefile", folder / "ours"), "--configfile", *map(str, configuration)]
    jobs = apart(ROOT / "Snakefile", folder / "ours", configuration)
    (folder / "bare.smk").write_text(bare(jobs), encoding="utf-8")
    plain = command(folder / "bare.smk", folder / "bare")
    if shape(jobs) != shape(apart(folder / "bare.smk", folder / "bare", [])):
        raise SystemExit("the two plans differ: the bare Snakefile is not this workflow's equal")
    pairs = []
    for repeat in range(repeats):
        pair = [timed([*argv, "-n"], folder / f"{name}.log") for argv, name in ((ours, "ours"), (plain, "bare"))]
        pairs.append(pair)
        print(f"repeat {repeat + 1}: {pair[0].seconds / pair[1].seconds:.2f} times bare, {pair[0].mib:.0f} MiB")
    counts = {name: planned(folder / f"{name}.log") for name in ("ours", "bare")}
    if counts["ours"] != counts["bare"]:
        raise SystemExit(f"the two plans differ in jobs: {counts}")
    files = sum(len(job.outputs) for job in jobs)
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        choice = pool.submit(one_choice, counts["ours"]).result()
    return {
        "arms": arms,
        "rounds": rounds,
        "repeats": repeats,
        "jobs": counts["ours"],
        "edges": sum(len(job.inputs) for job in jobs),
        "files": {"outputs": files, "logs": len({job.log for job in jobs}), "snakemake_metadata": files},
        "scheduler": choice,
        "ratio": spread([a.seconds / b.seconds for a, b in pairs]),
        "seconds": {"ours": spread([a.seconds for a, _ in pairs]), "bare": spread([b.seconds for _, b in pairs])},
        "mib": {"ours": spread([a.mib for a, _ in pairs]), "bare": spread([b.mib for _, b in pairs])},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arms", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=5, help="pairs of dry runs")
    parser.add_argument("--keep", type=Path, help="empty folder to work in; a scratch folder is used otherwise")
    parser.add_argument("--output", type=Path, help="JSON to write")
    asked = parser.parse_args()
    if min(asked.arms - 1, asked.rounds, asked.repeats) < 1:
        parser.error("--arms needs 2 or more, --rounds and --repeats 1 or more")
    folder = (asked.keep or Path(tempfile.mkdtemp(prefix="adrbench-scale-"))).resolve()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        found = measure(folder, asked.arms, asked.rounds, asked.repeats)
    finally:
        if asked.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(found, indent=1))
    if asked.output:
        asked.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
