"""Each stage's measurement, computed again from its raw files.

``RECOMPUTE`` maps a stage to a function of (evidence file, its document, options). A stage that is not in it wrote down
what an instrument said: its document is the record, and only digests can be checked.
"""

from __future__ import annotations

import ast
import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from adrbench import evidence, scratch
from adrbench.audit import kv_stages
from adrbench.audit.finding import Finding, Outcome, compare
from adrbench.decide import noise_floor
from adrbench.eval import __main__ as accuracy
from adrbench.eval import dataset
from adrbench.eval.spec import TaskSpec
from adrbench.evidence import Evidence, raw_folder
from adrbench.job import JobError
from adrbench.model.folder import check_folder
from adrbench.paths import PYTHONPATH, here
from adrbench.profile import __main__ as profiling
from adrbench.profile.saved import read_run
from adrbench.serve import bench
from adrbench.serve.answers import equal_answers
from adrbench.serve.process import job_environment
from adrbench.serve.resolved import read_resolved

# The one file beside the evidence of jobs that a verdict rests on (rules/noise_floor.smk).
NOISE_FLOOR = "noise_floor.json"
# What the server is asked over HTTP and writes into no file.
NOT_IN_FILES = {"vllm_version"}
IN_METRICS = {"kv_cache_dtype", "block_size", "num_gpu_blocks", "prefix_caching"}


@dataclass(frozen=True)
class Options:
    """``eval_python``: interpreter that has OpenCompass, to score predictions again; None: they are not."""

    eval_python: str | None = None


@contextmanager
def told(outcome: Outcome, path: Path) -> Iterator[None]:
    """An error of reading or computing becomes a finding on this file."""
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, IndexError, JobError, evidence.EvidenceError) as error:
        outcome.findings.append(Finding(str(path), "", f"cannot be computed again: {type(error).__name__}: {error}"))


def resolved(path: Path, document: Evidence, folder: Path, metrics: str | None) -> Outcome:
    """What vLLM resolved, read again from the server's log and, where they were kept, its metrics."""
    if not (folder / "server.log").is_file():
        return Outcome(skipped=[f"{path}: resolved: there is no {folder / 'server.log'}"])
    found = read_resolved(folder, metrics or "", None)
    unknown = NOT_IN_FILES | (IN_METRICS if metrics is None else set())
    return compare(str(path), document.resolved, {k: v for k, v in found.items() if k not in unknown}, "resolved")


def serve(path: Path, document: Evidence, _options: Options) -> Outcome:
    """Latencies, rates and counters from the client's per-request result and the server's metrics."""
    folder, asked, outcome = raw_folder(path), document.asked, Outcome()
    with told(outcome, path):
        result = json.loads((folder / "bench.json").read_text(encoding="utf-8"))
        before, after = ((folder / f"{which}.prom").read_text() for which in ("before", "after"))
        chat, goodput = asked["serve"]["endpoint"] == "chat", bool(asked["serve"]["goodput"])
        found = bench.measure(asked["tier"], result["input_lens"], result, before, after, goodput, chat)
        outcome.add(compare(str(path), document.measured, found, "measured"))
        prompts = evidence.digest_text((folder / "prompts.jsonl").read_text(encoding="utf-8"))
        outcome.add(compare(str(path), asked, {"prompts_sha256": prompts}, "asked"))
        outcome.add(resolved(path, document, path.parent / "server", before))
    return outcome


def integrate(path: Path, document: Evidence, _options: Options) -> Outcome:
    """How many answers equal the baseline's, from both evidence files."""
    outcome, reference = Outcome(), document.asked.get("reference")
    if document.asked.get("kind") != "mechanism" or reference is None:
        return Outcome(skipped=[f"{path}: nothing is computed in it"])
    with told(outcome, path):
        expected = evidence.read(Path(reference)).measured["answers"]
        equal = equal_answers(document.measured["answers"], expected)
        counts = {"answers_equal": equal, "answers_compared": len(expected)}
        outcome.add(compare(str(path), document.measured, counts, "measured"))
    return outcome


def _sources(document: Evidence) -> dict[str, str]:
    """Folders of data sets that were not made up, by kind."""
    sources = [one for one in document.asked["sources"].values() if one["kind"] != "synthetic"]
    return {source["kind"]: source["folder"] for source in sources}


def _datasets(document: Evidence) -> list[dataset.Dataset]:
    """The samples, built again from the settings and the model's tokenizer."""
    asked = document.asked
    kinds = {kind: str(here(folder)) for kind, folder in _sources(document).items()}
    settings = [TaskSpec.model_validate(task) for task in asked["tasks"]]
    return dataset.build(settings, kinds, dataset.token_counter(here(asked["model"])))


def evaluation(path: Path, document: Evidence, options: Options) -> Outcome:
    """Data sets from their settings, scores from predictions, means and controls from scores."""
    folder, outcome = raw_folder(path), Outcome()
    with told(outcome, path):
        if absent := _not_here(path, document.asked["model"], *_sources(document).values()):
            return absent
        records = json.loads((folder / "samples.json").read_text(encoding="utf-8"))["datasets"]
        datasets = _datasets(document)
        control = bool(document.asked["control"])
        for data in datasets:
            for without in (False, True) if control else (False,):
                name = f"data/{data.name}{dataset.CONTROL if without else ''}.jsonl"
                said = [json.loads(line) for line in (folder / name).read_text(encoding="utf-8").split("\n") if line]
                outcome.add(compare(str(folder / name), said, data.rows(without)))
        tasks = {data.name: accuracy.task_result(data, records) for data in datasets}
        found = {"tasks": tasks, "mean_of_tasks": mean(task["mean"] for task in tasks.values())}
        outcome.add(compare(str(path), document.measured, found, "measured"))
        digest = {"data_sha256": dataset.digest(datasets, control=False)}
        outcome.add(compare(str(path), document.asked, digest, "asked"))
        outcome.add(resolved(path, document, folder / "server", None))
        outcome.add(_predictions(folder, document, records))
        outcome.add(_scores(folder, records, options))
    return outcome


def _predictions(folder: Path, document: Evidence, records: dict[str, Any]) -> Outcome:
    """The predictions that OpenCompass wrote, against those that the samples quote."""
    outcome = Outcome()
    for name in document.files:
        if "/predictions/" not in name or (record := records.get(Path(name).stem)) is None:
            continue
        raw = json.loads((folder / name).read_text(encoding="utf-8"))
        said = [sample["prediction"] for sample in record["samples"]]
        outcome.add(compare(str(folder / "samples.json"), said, [raw[str(i)]["prediction"] for i in range(len(raw))]))
    return outcome


def _scores(folder: Path, records: dict[str, Any], options: Options) -> Outcome:
    """Every prediction scored again by OpenCompass's own evaluators."""
    if options.eval_python is None:
        return Outcome(skipped=[f"{folder}: scores: no interpreter with OpenCompass was named"])
    run = next((p for p in sorted((folder / "opencompass").glob("data-*")) if p.is_dir()), None)
    if run is None:
        return Outcome([Finding(str(folder / "opencompass"), "", "OpenCompass's folder is missing")])
    with scratch.folder() as temporary:
        output, settings = temporary / "samples.json", temporary / "config.py"
        settings.write_text(_settings_here(folder), encoding="utf-8")
        words = [
            options.eval_python,
            "-m",
            "adrbench.eval.samples",
            str(settings),
            "--work",
            str(run.parent),
        ]
        words += ["--name", run.name, "--samples", str(output), "--collect-only"]
        environment = job_environment({"PYTHONPATH": str(PYTHONPATH)})
        done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=600)
        if done.returncode:
            told_lines = (done.stdout + done.stderr).strip().splitlines()
            return Outcome([Finding(str(folder), "", f"scoring again failed: {told_lines[-1] if told_lines else '?'}")])
        again = json.loads(output.read_text(encoding="utf-8"))["datasets"]
    return compare(str(folder / "samples.json"), records, again)


def _settings_here(folder: Path) -> str:
    """OpenCompass's configuration, plain data, with its data sets where they lie now: they may have been carried here.

    Raises:
        ValueError: it is not Python, or names no data set.
    """
    text, here_now = (folder / "config.py").read_text(encoding="utf-8"), f"{folder.resolve()}/"
    tree = ast.parse(text)
    constants = [node for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    texts = [(node, node.value) for node in constants if isinstance(node.value, str)]
    data = next((text for _, text in texts if text.endswith(".jsonl")), None)
    if data is None:
        raise ValueError(f"{folder / 'config.py'} names no data set")
    there = f"{Path(data).parent.parent}/"
    if there == here_now:
        return text
    for node, value in texts:
        if value.startswith(there):
            node.value = here_now + value.removeprefix(there)
    return ast.unparse(tree)


def _not_here(path: Path, *folders: str) -> Outcome | None:
    """What to tell where the model, or data, is not on this host: evidence travels without."""
    absent = [folder for folder in folders if not here(folder).exists()]
    return Outcome(skipped=[f"{path}: {absent[0]} is not on this host"]) if absent else None


def profile(path: Path, document: Evidence, _options: Options) -> Outcome:
    """Phases, shares, bytes and bounds from the trace and the windows' token times."""
    folder, outcome = raw_folder(path), Outcome()
    with told(outcome, path):
        if document.tier == "ceiling":
            return Outcome(skipped=[f"{path}: read from a clock, no raw file"])
        if absent := _not_here(path, document.asked["model"]):
            return absent
        inputs = profiling.load_inputs(document.asked | {"model": str(here(document.asked["model"]))})
        taken = read_run(folder, document)
        found, notes = profiling.evaluate(document.asked, inputs, taken, folder / "server" / "server.log")
        outcome.add(compare(str(path), document.measured, json.loads(json.dumps(found)), "measured"))
        outcome.add(compare(str(path), document.notes, notes, "notes"))
    return outcome


def model(path: Path, document: Evidence, _options: Options) -> Outcome:
    """Parameters, bytes and digest from the model folder itself."""
    outcome = Outcome()
    with told(outcome, path):
        if absent := _not_here(path, document.asked["folder"]):
            return absent
        outcome.add(compare(str(path), document.measured, check_folder(here(document.asked["folder"])), "measured"))
    return outcome


def claims(path: Path, document: Evidence, _options: Options) -> Outcome:
    """The files of statements that were judged; the judging itself needs vLLM's wheel and is not repeated."""
    outcome = Outcome(skipped=[f"{path}: verdicts: judging again is `snakemake --forcerun claims`"])
    for name, digest in document.resolved.get("claim_files", {}).items():
        outcome.values += 1
        if not here(name).is_file():
            outcome.findings.append(Finding(name, "", f"is missing; {path} judged its statements"))
        elif evidence.digest_file(here(name)) != digest:
            outcome.findings.append(Finding(name, "", f"changed since {path} judged its statements"))
    return outcome


def of_kv(again: Callable[[Path, Evidence], Outcome]) -> Callable[[Path, Evidence, Options], Outcome]:
    """A check of ``kv_stages``, in the form of the others."""

    def checked(path: Path, document: Evidence, _options: Options) -> Outcome:
        outcome = Outcome()
        with told(outcome, path):
            outcome.add(again(path, document))
        return outcome

    return checked


RECOMPUTE: dict[str, Callable[[Path, Evidence, Options], Outcome]] = {
    "serve": serve,
    "integrate": integrate,
    "eval": evaluation,
    "profile": profile,
    "model": model,
    "claims": claims,
    "agreement": of_kv(kv_stages.agreement),
    "memory": of_kv(kv_stages.memory),
}


def floor(path: Path, said: dict[str, Any]) -> Outcome:
    """The noise floor, from the baseline's serving evidence; rounds that it left out enter as digests only."""
    outcome = Outcome()
    with told(outcome, path):
        document = noise_floor.NoiseFloor.model_validate(said)
        for name, digest in document.evidence.items():
            if not Path(name).is_file():
                outcome.findings.append(Finding(name, "", f"is missing; {path} rests on it"))
            elif evidence.digest_file(Path(name)) != digest:
                outcome.findings.append(Finding(name, "", f"changed since {path} was made from it"))
        serve: dict[int, dict[str, str]] = {}
        for name in document.evidence:
            number = int(Path(name).parent.name.removeprefix("r"))
            if number in document.blocks:
                serve.setdefault(number, {})[Path(name).stem] = name
        made = noise_floor.build(
            noise_floor.FloorSpec(
                platform=document.platform,
                baseline=document.baseline,
                confidence=document.confidence,
                blocks=document.blocks,
                serve=serve,
                # A platform of several hosts names none in the identity of its rounds.
                several_hosts=all(identity.get("host") is None for identity in document.identity.values()),
            )
        )
        kept = {"blocks", "identity", "values", "noise"}
        outcome.add(compare(str(path), said, made.model_dump(mode="json", include=kept)))
    return outcome


def measured(path: Path, options: Options) -> Outcome:
    """Everything that one evidence file says: raw files unchanged, values as computed again."""
    outcome = Outcome()
    if path.name == NOISE_FLOOR:
        try:
            return floor(path, json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError) as error:
            return Outcome([Finding(str(path), "", f"cannot be read: {error}")])
    try:
        document = evidence.read(path)
        bad = evidence.verify_files(path)
    except (evidence.EvidenceError, OSError) as error:
        return Outcome([Finding(str(path), "", str(error).removeprefix(f"{path}: "))])
    for text in bad:
        name, _, problem = text.rpartition(": ")
        outcome.findings.append(Finding(name, "", f"{problem} ({path} rests on it)"))
    again = RECOMPUTE.get(document.stage)
    if again is None:
        outcome.skipped.append(f"{path}: an instrument's own record")
    else:
        outcome.add(again(path, document, options))
    return outcome
