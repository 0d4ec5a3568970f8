"""Accuracy of one arm: OpenCompass against a fresh server, four task classes, per-sample scores.

    python -m adrbench.eval --spec JSON --output results/<platform>/eval/<arm>.json

Specification: ``spec.py``. Raw files: data sets, configuration, log, predictions and per-sample records.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from statistics import mean, median
from typing import Any, Protocol

from adrbench import evidence
from adrbench.config.policy import trusts_remote_code
from adrbench.eval import completeness, dataset, opencompass
from adrbench.eval.control import paired_difference
from adrbench.eval.dataset import CONTROL, Dataset
from adrbench.eval.samples import INCOMPLETE
from adrbench.eval.spec import EvalSpec, parse_spec
from adrbench.eval.testset import verify_testset_access
from adrbench.evidence import Evidence, now
from adrbench.job import JobError, run, say


class Server(Protocol):
    """What this job needs of a server (``adrbench.serve.server.Server`` has it)."""

    base_url: str
    model: str
    resolved: dict[str, Any]

    def metrics(self) -> str: ...

    def run_client(
        self, argv: list[str], log: Path, timeout_s: float, env: dict[str, str] | None = None, cwd: Path | None = None
    ) -> int: ...


OpenServer = Callable[[dict[str, Any], Path], AbstractContextManager[Server]]


def ask(spec: EvalSpec, datasets: list[Dataset], folder: Path, name: str, server: Server) -> dict[str, Any]:
    """Run OpenCompass against a ready server; the per-sample records.

    Raises:
        JobError: ``partial-eval`` when OpenCompass failed or its results are not complete.
    """
    work, log, records = folder / "opencompass", folder / "opencompass.log", folder / "samples.json"
    config = folder / "config.py"
    _, extra_body = opencompass.thinking(Path(spec.model), spec.thinking)
    text = opencompass.config(
        datasets,
        folder / "data",
        base_url=server.base_url,
        served_name=server.model,
        tokenizer=Path(spec.model),
        concurrency=spec.concurrency,
        request_timeout_s=spec.request_timeout_s,
        control=spec.control,
        extra_body=extra_body,
    )
    evidence.write_text(config, text)
    work.mkdir(parents=True)
    total = sum(len(d.samples) for d in datasets) * (2 if spec.control else 1)
    say(f"asking {total} questions of {len(datasets)} tasks{' with control' if spec.control else ''}; log {log}")
    trusted = trusts_remote_code(spec.server.get("args", []))
    command = opencompass.argv(spec.eval_python, config, work, name, records, trusted)
    before = completeness.counters(server.metrics())
    code = server.run_client(command, log, spec.timeout_s, opencompass.environment(folder / "cache"), work)
    if code != 0:
        raise JobError("partial-eval", explain(code, log))
    tokens = sum(row["tokens"] for d in datasets for row in d.rows() + (d.rows(True) if spec.control else []))
    counted = completeness.check(before, completeness.counters(server.metrics()), total, tokens)
    answer: dict[str, Any] = json.loads(records.read_text(encoding="utf-8"))
    return answer | {"server_counters": counted}


def explain(code: int, log: Path) -> str:
    """One message from a failed client's log: the refusal, or the lines that name an error."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.is_file() else []
    refused = [line.partition("incomplete: ")[2] for line in lines if line.startswith("adrbench: incomplete: ")]
    if code == INCOMPLETE and refused:
        return f"{refused[-1]}; log {log}"
    telling = [line.strip()[:300] for line in lines if "rror" in line][-4:]
    return f"OpenCompass exited with code {code}; log {log}: " + (" | ".join(telling) or "no error line")


def task_result(data: Dataset, records: dict[str, Any]) -> dict[str, Any]:
    """``measured.tasks[name]``."""
    record, without = records[data.name], records.get(data.name + CONTROL)
    scores = [sample["score"] for sample in record["samples"]]
    lengths = [sample.prompt_tokens for sample in data.samples]
    control = None
    if without:
        other = [sample["score"] for sample in without["samples"]]
        difference, low, high = paired_difference(scores, other, seed=data.settings.seed)
        control = {
            "mean": mean(other),
            "scores": other,
            "difference": difference,
            "low": low,
            "high": high,
            "seconds": without["seconds"],
        }
    return {
        "class": data.task.title,
        "task": data.task.name,
        "length_tokens": data.settings.length_tokens,
        "metric": data.task.metric,
        "samples": len(scores),
        "mean": mean(scores),
        "scores": scores,
        "forms": [sample.form for sample in data.samples],
        "prompt_tokens": {"min": min(lengths), "median": median(lengths), "max": max(lengths)},
        "opencompass_mean": record["opencompass_mean"],
        "empty_predictions": sum(not sample["prediction"].strip() for sample in record["samples"]),
        "control": control,
        "seconds": record["seconds"],
    }


def notes(spec: EvalSpec, datasets: list[Dataset]) -> list[str]:
    """What a reader must know to read the scores right."""
    found = []
    made = [data.name for data in datasets if data.source["kind"] == "synthetic"]
    if made:
        found.append(
            f"generated texts ({', '.join(made)}): scores compare arms with each other, not with published results"
        )
    if spec.concurrency > 1:
        found.append(
            f"concurrency {spec.concurrency}: what shares a batch depends on timing and changes the last bits, so "
            "greedy answers differ between identical runs; the scatter is part of every paired interval"
        )
    return found


def evaluate(raw: dict[str, Any], output: Path, open_server: OpenServer) -> None:
    """Measure one arm and write its evidence; ``open_server`` is the serving context manager."""
    spec, began = parse_spec(raw), now()
    version = opencompass.check_installed(spec.eval_python, spec.opencompass_version)
    stated, _ = opencompass.thinking(Path(spec.model), spec.thinking)
    datasets = dataset.build(spec.tasks, spec.data, dataset.token_counter(Path(spec.model)))
    model_digest = evidence.read(Path(spec.model_evidence)).measured["digest"] if spec.model_evidence else None
    folder = evidence.raw_folder(output).resolve()
    shutil.rmtree(folder, ignore_errors=True)  # predictions of an earlier server must not be reused
    names = [f"data/{name}" for name in dataset.write(datasets, folder / "data", spec.control)]
    run_name = f"data-{dataset.digest(datasets, spec.control)[:16]}"
    with open_server(spec.server, folder / "server") as server:
        records = ask(spec, datasets, folder, run_name, server)
        resolved = dict(server.resolved)
    shutil.rmtree(folder / "cache", ignore_errors=True)
    predictions = sorted((folder / "opencompass" / run_name).glob("predictions/*/*.json"))
    names += [f"server/{name}" for name in ("server.log", "plugin.jsonl") if (folder / "server" / name).is_file()]
    names += ["samples.json", "config.py", *(str(path.relative_to(folder)) for path in predictions)]
    kinds = list(dict.fromkeys(data.task.name for data in datasets))
    tasks = {data.name: task_result(data, records["datasets"]) for data in datasets}
    evidence.write(
        output,
        Evidence(
            stage="eval",
            platform=spec.platform,
            arm=spec.arm["name"],
            asked={
                "arm": spec.arm,
                "server": spec.server,
                "tasks": [data.settings.model_dump() | {"max_new_tokens": data.max_new_tokens} for data in datasets],
                "control": spec.control,
                "concurrency": spec.concurrency,
                "data_sha256": dataset.digest(datasets, control=False),
                "sources": {data.name: data.source for data in datasets},
                "content": "string",
                "thinking": stated,
                "temperature": 0,
                "model": spec.model,
                "identity": {"model_digest": model_digest},
            },
            resolved=resolved | {"opencompass_version": version, "endpoint": "/v1/chat/completions"},
            measured={
                "tasks": tasks,
                "mean_of_tasks": mean(task["mean"] for task in tasks.values()),
                "server_counters": records["server_counters"],
                "testset_access": [asdict(status) for status in verify_testset_access(spec.data, kinds)],
            },
            files=evidence.digest_raw(output, names),
            notes=notes(spec, datasets),
            started_at=began,
            finished_at=now(),
        ),
    )
    say(", ".join(f"{name} {task['mean']:.1f}" for name, task in tasks.items()))


def work(raw: dict[str, Any], output: Path) -> None:
    from adrbench.serve.server import serving

    evaluate(raw, output, serving)


if __name__ == "__main__":
    run("eval", work)
