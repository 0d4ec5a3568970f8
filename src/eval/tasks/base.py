"""What a task class of the accuracy stage is, and how a sample is grown to its length in tokens.

A task is one file in this folder that ends in ``TASK = Task(...)``. Its ``compose`` writes one
sample: a prompt with a document in it, the same question without the document (the control), and
the answers. ``compose`` is a pure function of (seed, index, units, target): more units mean a longer
document around the same question, so the length can be found by bisection.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Count = Callable[[str], int]
Compose = Callable[[int, int, int], "Draft"]


@dataclass(frozen=True)
class Draft:
    """One sample as text; ``document`` is what ``control`` lacks, ``form`` the kind of question."""

    prompt: str
    control: str
    document: str
    answers: list[str]
    form: str


@dataclass(frozen=True)
class Sample(Draft):
    """A draft of the asked length; ``*_tokens`` count the user message, without the chat template."""

    index: int
    prompt_tokens: int
    control_tokens: int


@dataclass(frozen=True)
class Source:
    """Where real data of a task class lies inside a user's folder, and how a row becomes a draft.

    Attributes:
        collection: key of the config section ``data`` (``longbench`` or ``ruler``).
        files: paths below that folder; the first that exists of each inner tuple is read.
        fields: what each JSON line must have.
        lines: number of lines of the published file, None where it depends on how it was made.
        read: (row, budget in tokens or None, count) to a draft.
    """

    collection: str
    files: tuple[tuple[str, ...], ...]
    fields: tuple[str, ...]
    lines: int | None
    read: Callable[[dict[str, Any], int | None, Count], Draft]


@dataclass(frozen=True)
class Task:
    """One task class.

    Attributes:
        name: key in the config and file name.
        title: what a report calls it.
        metric: name of the score; all are 0-100, more is better.
        evaluator: import path of OpenCompass's evaluator class.
        compose: (seed, index, units) to one draft; forms of question alternate by index.
        source: real data by path.
        max_new_tokens: default output limit.
    """

    name: str
    title: str
    metric: str
    evaluator: str
    compose: Compose
    source: Source
    max_new_tokens: int


def seed_of(*parts: object) -> int:
    """A 64-bit seed from any values; Python's ``hash`` differs between processes."""
    return int.from_bytes(hashlib.sha256("\0".join(map(str, parts)).encode()).digest()[:8], "big")


def fit(task: Task, seed: int, index: int, target: int, count: Count) -> tuple[Draft, int]:
    """The longest draft of at most ``target`` tokens, with its length.

    Raises:
        ValueError: when even the shortest document does not fit.
    """

    def length(units: int) -> int:
        return count(task.compose(seed, index, units).prompt)

    if length(0) > target:
        raise ValueError(f"{task.name}: {target} tokens are too few, the shortest document needs {length(0)}")
    low, high = 0, 1
    while length(high) <= target:
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if length(middle) <= target else (low, middle)
    draft = task.compose(seed, index, low)
    return draft, count(draft.prompt)


def spread(items: list[str], filler: list[str], rng: random.Random) -> list[str]:
    """``items`` at random places among ``filler``, whose order is kept."""
    texts = list(filler)
    for item in items:
        texts.insert(rng.randint(0, len(texts)), item)
    return texts
