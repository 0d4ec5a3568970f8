"""Runs OpenCompass and writes every sample's score; runs in the eval interpreter.

OpenCompass reports one mean per data set and exits 0 in many ways of failing. So each
prediction is scored again, alone, by the same evaluator, and the result is accepted only when all
samples have a prediction, the answers are those of the data set, and the mean of the scores is the
mean that OpenCompass reported. Both steps share a process because importing OpenCompass takes
longer than scoring.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.metadata
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

INCOMPLETE = 3  # exit code: OpenCompass ended, its results are not acceptable
# RULER's evaluators round to two decimals: each sample's score (0.005 at most), and the mean that is reported.
TOLERANCE = 0.0101

Score = Callable[[str, Sequence[str]], float]


class Incomplete(ValueError):
    """The results of a data set are not complete, or contradict each other."""


def set_remote_code(trusted: bool) -> None:
    """Whether a tokenizer's own Python code may run; OpenCompass always allows it (its ``OpenAI._get_tokenizer``)."""
    from transformers import AutoTokenizer

    original = AutoTokenizer.from_pretrained

    def from_pretrained(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **(kwargs | {"trust_remote_code": trusted}))

    AutoTokenizer.from_pretrained = from_pretrained


def read_config(path: Path) -> dict[str, Any]:
    """The configuration that ``opencompass.config`` wrote: names and plain data, read without running it.

    Raises:
        ValueError: it is something else.
    """
    body = ast.parse(path.read_text(encoding="utf-8")).body
    found = {}
    for statement in body:
        if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Name):
            raise ValueError(f"{path}: line {statement.lineno} is no plain assignment")
        found[statement.targets[0].id] = ast.literal_eval(statement.value)
    return found


def run_opencompass(config: Path, work: Path, name: str, trusted: bool) -> None:
    """OpenCompass's command line, in this process; it raises or exits when a task fails."""
    from opencompass.cli.main import main

    set_remote_code(trusted)
    sys.argv = ["opencompass", str(config), "-w", str(work), "-r", name, "--debug"]
    main()


def evaluator(path: str) -> Score:
    """Score of one prediction, 0-100, by an OpenCompass evaluator class."""
    module, _, name = path.rpartition(".")
    instance = getattr(importlib.import_module(module), name)()
    return lambda prediction, answers: float(instance.score([prediction], [list(answers)])["score"])


def read_json(path: Path, what: str) -> Any:
    if not path.is_file():
        leftovers = sorted(p.name for p in path.parent.glob(f"*{path.stem}*")) if path.parent.is_dir() else []
        raise Incomplete(f"{what}: {path} was not written (found {leftovers or 'nothing'})")
    return json.loads(path.read_text(encoding="utf-8"))


def collect(
    name: str, rows: list[dict[str, Any]], predictions: dict[str, Any], result: dict[str, Any], score: Score
) -> dict[str, Any]:
    """Per-sample records of one data set.

    Args:
        rows: the data set as OpenCompass read it.
        predictions: OpenCompass's prediction file, keyed "0", "1", ...
        result: OpenCompass's result file.

    Raises:
        Incomplete: naming the data set and what is wrong.
    """
    if len(predictions) != len(rows):
        raise Incomplete(f"{name}: {len(predictions)} predictions for {len(rows)} samples")
    if "score" not in result:
        raise Incomplete(f"{name}: OpenCompass reported no score but {json.dumps(result)[:300]}")
    samples = []
    for position, row in enumerate(rows):
        entry = predictions.get(str(position))
        if entry is None:
            raise Incomplete(f"{name}: sample {position} has no prediction")
        prediction = entry.get("prediction")
        if not isinstance(prediction, str):
            raise Incomplete(f"{name}: sample {position}: the prediction is {prediction!r}, not text")
        if list(entry.get("gold", [])) != row["answers"]:
            raise Incomplete(f"{name}: sample {position}: predictions belong to other data (answers differ)")
        value = score(prediction, row["answers"])
        samples.append({"index": row["index"], "form": row["form"], "score": value, "prediction": prediction})
    if all(not sample["prediction"].strip() for sample in samples):
        raise Incomplete(f"{name}: every prediction is empty")
    mean = sum(sample["score"] for sample in samples) / len(samples)
    if abs(mean - result["score"]) > TOLERANCE:
        raise Incomplete(f"{name}: the mean of the samples is {mean:.4f}, OpenCompass reports {result['score']:.4f}")
    return {"mean": mean, "opencompass_mean": result["score"], "samples": samples}


def timers(path: Path) -> dict[str, float]:
    """Seconds of inference per data set, as OpenCompass's timer wrote them."""
    if not path.is_file():
        return {}
    entries = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {entry["dataset_name"]: entry["time"] for entry in entries}


def collect_all(config: Path, run: Path) -> dict[str, Any]:
    """The records of every data set of a finished run.

    Raises:
        Incomplete: for the first data set whose results cannot be accepted.
    """
    settings = read_config(config)
    model = settings["models"][0]["abbr"]
    seconds = timers(run / "predictions" / model / "timer" / "time.jsonl")
    datasets = {}
    for dataset in settings["datasets"]:
        name = dataset["abbr"]
        with open(dataset["path"], encoding="utf-8") as stream:
            rows = [json.loads(line) for line in stream]
        predictions = read_json(run / "predictions" / model / f"{name}.json", name)
        result = read_json(run / "results" / model / f"{name}.json", name)
        record = collect(name, rows, predictions, result, evaluator(dataset["eval_cfg"]["evaluator"]["type"]))
        datasets[name] = record | {"seconds": seconds.get(name)}
    return {"opencompass_version": importlib.metadata.version("opencompass"), "datasets": datasets}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m adrbench.eval.samples")
    parser.add_argument("config", type=Path)
    parser.add_argument("--work", type=Path, required=True, help="OpenCompass's work folder")
    parser.add_argument("--name", required=True, help="folder of this run inside it")
    parser.add_argument("--samples", type=Path, required=True, help="file to write")
    parser.add_argument("--trust-remote-code", action="store_true", help="let the tokenizer's own code run")
    parser.add_argument("--collect-only", action="store_true", help="score the predictions of a finished run")
    arguments = parser.parse_args()
    if not arguments.collect_only:
        run_opencompass(arguments.config, arguments.work, arguments.name, arguments.trust_remote_code)
    try:
        records = collect_all(arguments.config, arguments.work / arguments.name)
    except Incomplete as error:
        print(f"adrbench: incomplete: {error}", flush=True)
        sys.exit(INCOMPLETE)
    arguments.samples.write_text(json.dumps(records, indent=1, ensure_ascii=False), encoding="utf-8")


if __name__ == "__main__":
    main()
