"""The samples of a run: generated or read, fitted to their length, written as JSON lines."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adrbench.eval.spec import TaskSpec
from adrbench.eval.tasks import Draft, Sample, Task, load_tasks
from adrbench.eval.tasks.base import fit, seed_of
from adrbench.eval.testset import check_file
from adrbench.evidence import canonical, digest_text, write_text
from adrbench.job import JobError
from tokenizers import Tokenizer

CONTROL = "-control"


@dataclass(frozen=True)
class Dataset:
    """One task's samples. ``source`` is ``synthetic``, or names the real files and their digests."""

    task: Task
    settings: TaskSpec
    samples: list[Sample]
    source: dict[str, Any]

    @property
    def name(self) -> str:
        return self.settings.name

    @property
    def max_new_tokens(self) -> int:
        return self.settings.max_new_tokens or self.task.max_new_tokens

    def rows(self, control: bool = False) -> list[dict[str, Any]]:
        """What OpenCompass reads: one dict per sample, in order."""
        return [
            {
                "index": sample.index,
                "prompt": sample.control if control else sample.prompt,
                "answers": sample.answers,
                "form": sample.form,
                "tokens": sample.control_tokens if control else sample.prompt_tokens,
            }
            for sample in self.samples
        ]


def token_counter(model: Path) -> Callable[[str], int]:
    """Counts tokens of plain text by the model's own tokenizer.

    Raises:
        JobError: ``no-tokenizer`` when the folder has no readable ``tokenizer.json``.
    """
    path = model / "tokenizer.json"
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises a bare Exception for a missing and for a damaged file
        raise JobError("no-tokenizer", f"{path}: {error}; accuracy texts are cut to length by this file") from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)


def _sample(draft: Draft, index: int, tokens: int, count: Callable[[str], int]) -> Sample:
    return Sample(**draft.__dict__, index=index, prompt_tokens=tokens, control_tokens=count(draft.control))


def generate(task: Task, settings: TaskSpec, count: Callable[[str], int]) -> Dataset:
    """Invented texts: a pure function of task, settings and tokenizer."""
    samples = []
    for index in range(settings.samples):
        try:
            draft, tokens = fit(
                task, seed_of(settings.name, settings.seed, index), index, settings.length_tokens, count
            )
        except ValueError as error:
            raise JobError("task-length", f"eval.tasks[{settings.name}].length_tokens: {error}") from None
        samples.append(_sample(draft, index, tokens, count))
    return Dataset(task, settings, samples, {"kind": "synthetic"})


def read_real(task: Task, settings: TaskSpec, folder: Path, count: Callable[[str], int]) -> Dataset:
    """A seeded selection of a real test set, drawn evenly from the task's files.

    Raises:
        JobError: ``test-set`` when a file is missing or incomplete, has too few rows, or a row cannot be used.
    """
    per_file: list[list[dict[str, Any]]] = []
    digests: dict[str, str] = {}
    for choices in task.source.files:
        status = check_file(task, folder, choices)
        if not status.used:
            raise JobError(
                "test-set",
                f"eval.data.{task.source.collection}: {status.path} is {status.status}: {status.problem}; "
                "repair the folder, or leave the key out to use generated texts",
            )
        with open(status.path, encoding="utf-8") as stream:  # not splitlines: texts contain other line separators
            rows = [json.loads(line) for line in stream if line.strip()]
        random.Random(seed_of(settings.name, settings.seed, choices[0])).shuffle(rows)
        per_file.append(rows)
        digests[status.path] = status.sha256
    order = [rows[i] for i in range(max(map(len, per_file))) for rows in per_file if i < len(rows)]
    if len(order) < settings.samples:
        raise JobError("test-set", f"{folder}: {task.name} asks for {settings.samples} samples, there are {len(order)}")
    samples = []
    for index, row in enumerate(order[: settings.samples]):
        try:
            draft = task.source.read(row, settings.length_tokens, count)
        except (KeyError, ValueError, TypeError) as error:
            raise JobError(
                "test-set", f"{folder}: {task.name}: row {row.get('index', row.get('_id', index))}: {error}"
            ) from None
        samples.append(_sample(draft, index, count(draft.prompt), count))
    return Dataset(task, settings, samples, {"kind": task.source.collection, "folder": str(folder), "sha256": digests})


def build(settings: list[TaskSpec], data: dict[str, str], count: Callable[[str], int]) -> list[Dataset]:
    """The data sets of a run, in the order of the settings.

    Raises:
        JobError: ``unknown-task`` or ``test-set``, or what a task refuses.
    """
    tasks, sets = load_tasks(), []
    for setting in settings:
        if setting.kind not in tasks:
            raise JobError("unknown-task", f"eval.tasks: {setting.kind!r} is not a task; known: {', '.join(tasks)}")
        task = tasks[setting.kind]
        folder = data.get(task.source.collection)
        sets.append(read_real(task, setting, Path(folder), count) if folder else generate(task, setting, count))
    return sets


def digest(datasets: list[Dataset], control: bool) -> str:
    """One digest over everything the model is asked and the evaluators compare with."""
    parts = [[d.name, d.max_new_tokens, d.rows(), d.rows(control=True) if control else None] for d in datasets]
    return digest_text(canonical(parts))


def write(datasets: list[Dataset], folder: Path, control: bool) -> list[str]:
    """Write ``<task>.jsonl`` and, with ``control``, ``<task>-control.jsonl``; their names."""
    names = []
    for dataset in datasets:
        for without in (False, True) if control else (False,):
            names.append(f"{dataset.name}{CONTROL if without else ''}.jsonl")
            lines = (json.dumps(row, ensure_ascii=False) for row in dataset.rows(without))
            write_text(folder / names[-1], "\n".join(lines) + "\n")
    return names
