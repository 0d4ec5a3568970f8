"""Accuracy: whether each task measures anything, and the difference of each arm to the baseline."""

from __future__ import annotations

from typing import Any, Literal

from adrbench.report.context import Context
from adrbench.report.lookup import Cell, Store
from adrbench.report.view import DeltaRow, Phrase, Shown, TaskRow, phrase

PERFECT = 100.0
Why = Literal["unmeasured", "corrected", "more", "unbounded", "near"]


def _verdict(mean: Cell, difference: Cell) -> Shown:
    """A task measures something when the document helps beyond the noise and the score is not at its end."""
    if not difference:
        return Phrase("tasks.no_control")
    if mean.amount >= PERFECT:
        return Phrase("tasks.saturated")
    if difference.low is not None and difference.low > 0:
        return Phrase("tasks.measures")
    return Phrase("tasks.no_signal")


def task_rows(context: Context) -> list[TaskRow]:
    """Tasks of the baseline, with the control that gets the question without the document."""
    store, name = context.store, f"eval/{context.baseline}"
    rows = []
    for task in store.raw(name, "measured", "tasks") or {}:
        key = ("measured", "tasks", task)
        mean = store.cell(name, *key, "mean", unit="score")
        difference = store.interval(name, *key, "control", value="difference", unit="points")
        rows.append(
            TaskRow(
                name=task,
                metric=store.cell(name, *key, "metric"),
                samples=store.cell(name, *key, "samples", unit="count"),
                prompt_tokens=store.cell(name, *key, "prompt_tokens", "median", unit="count"),
                mean=mean,
                control=store.cell(name, *key, "control", "mean", unit="score"),
                difference=difference,
                verdict=_verdict(mean, difference),
            )
        )
    return rows


def delta(store: Store, arm: str) -> Cell:
    """Δ of the mean of the task classes: baseline minus arm, in points, with its interval."""
    return store.interval("decide", "accuracy", arm, "mean", value="delta", unit="points")


def why_open(part: dict[str, Any], needed: str, limit: float | None = None) -> Why:
    """Why a gate or an objective is undecided.

    Args:
        needed: key of the planned number, ``pairs_needed`` or ``rounds_needed``.
        limit: of a gate, whose own interval may lie on one side of it.
    """
    if part["value"] is None:
        return "unmeasured"
    low, high = part["low"], part["high"]
    if limit is not None and ((low is not None and low > limit) or (high is not None and high <= limit)):
        return "corrected"
    if part.get(needed) is not None:
        return "more"
    return "unbounded" if low is None or high is None else "near"


def _why_open(context: Context, arm: str) -> Why | None:
    """Why the accuracy gate of the option that an arm stands for is undecided; None where it is not."""
    for option in context.store.raw("decide", "options") or []:
        for gate in option["gates"] if option["arm"] == arm else []:
            if gate["metric"] == "accuracy_delta" and gate["verdict"] == "undecided":
                return why_open(gate, "pairs_needed", gate["limit"])
    return None


def _note(context: Context, arm: str) -> Phrase:
    """Whether the pairs decide the gate, in words."""
    key = ("accuracy", arm)
    more = context.store.cell("decide", *key, "more_pairs", unit="count")
    pairs = context.store.cell("decide", *key, "mean", "pairs", unit="count")
    exact = context.store.cell("decide", *key, "exact_agreement", unit="fraction")
    word = "more" if more else {None: "enough", "corrected": "corrected"}.get(_why_open(context, arm), "near")
    return phrase(f"accuracy.{word}", title=context.title(arm), more=more, pairs=pairs, exact=exact)


def task_differences(store: Store, *key: str) -> list[tuple[str, Cell, Cell, Cell]]:
    """(task, the arm's score, Δ, pairs) of each task of an ``Accuracy`` at a key of the decide document."""
    return [
        (
            task,
            store.cell("decide", *key, "tasks", task, "arm", unit="score"),
            store.interval("decide", *key, "tasks", task, value="delta", unit="points"),
            store.cell("decide", *key, "tasks", task, "n", unit="count"),
        )
        for task in store.raw("decide", *key, "tasks") or {}
    ]


def delta_rows(context: Context) -> list[DeltaRow]:
    """Every compared arm: per task its score, Δ and pairs; the mean, and how many more pairs would decide."""
    store, rows = context.store, []
    for arm in store.raw("decide", "accuracy") or {}:
        if arm == context.baseline:
            continue
        key = ("accuracy", arm)
        rows.append(
            DeltaRow(
                arm=arm,
                title=context.title(arm),
                tasks=task_differences(store, *key),
                mean=delta(store, arm),
                pairs=store.cell("decide", *key, "mean", "pairs", unit="count"),
                more=store.cell("decide", *key, "more_pairs", unit="count"),
                exact=store.cell("decide", *key, "exact_agreement", unit="fraction"),
                note=_note(context, arm),
            )
        )
    return rows
