"""Accuracy of another model beside a record whose own model has random weights: shown, and read by no gate.

The decide stage computed the differences, each to that platform's own baseline (``decide.accuracy.elsewhere``).
"""

from __future__ import annotations

from adrbench.report.accuracy import task_differences
from adrbench.report.context import Context, both
from adrbench.report.lookup import MISSING, Cell
from adrbench.report.view import Phrase, Shown, phrase
from adrbench.report.view_records import Elsewhere, ElsewhereRow

KEY = ("elsewhere", "accuracy")


def delta_elsewhere(context: Context, arm: str) -> Cell:
    """Δ of the arm that another platform declares as this one does, with its interval; missing where there is none.

    Nor is there one where the baselines are not alike, too: it would stand beside gains over this platform's, and be of
    something else.
    """
    found = context.store.raw("decide", "elsewhere") or {}
    if found.get("baseline") != context.baseline or not {arm, context.baseline} <= set(found["same"]):
        return MISSING
    return _mean(context, arm)


def _mean(context: Context, arm: str) -> Cell:
    return context.store.interval("decide", *KEY, arm, "mean", value="delta", unit="points")


def _title(context: Context, arm: str) -> Shown:
    return both(context.store.raw("decide", "elsewhere", "titles", arm)) or arm


def _row(context: Context, arm: str) -> ElsewhereRow:
    store = context.store
    alike = arm in (store.raw("decide", "elsewhere", "same") or [])
    return ElsewhereRow(
        arm=arm,
        title=_title(context, arm),
        here=Phrase("elsewhere.alike" if alike else "elsewhere.not_here"),
        tasks=task_differences(store, *KEY, arm),
        mean=_mean(context, arm),
        pairs=store.cell("decide", *KEY, arm, "mean", "pairs", unit="count"),
        exact=store.cell("decide", *KEY, arm, "exact_agreement", unit="fraction"),
    )


def elsewhere(context: Context) -> Elsewhere | None:
    """The other platform's accuracy as the decide stage found it; None where there is none to show."""
    found = context.store.raw("decide", "elsewhere")
    if not found or not (found["accuracy"] or found["refused"]):
        return None
    refused: list[Shown] = [
        phrase("elsewhere.refused", title=_title(context, arm), needs=both(why))
        for arm, why in found["refused"].items()
    ]
    return Elsewhere(
        platform=found["platform"],
        title=both(found["title"]),
        baseline=_title(context, found["baseline"]),
        confidence=context.store.cell("decide", "confidence", unit="fraction"),
        rows=[_row(context, arm) for arm in sorted(found["accuracy"], key=lambda arm: arm not in found["same"])],
        refused=refused,
    )
