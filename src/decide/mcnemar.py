"""McNemar's exact test: of the pairs in which one arm is right and the other wrong, which side has more?

It fits scores of two values. Tasks with partial credit are tested on full marks (100 against less), and a task on which
neither side ever has full marks (a summary scored by ROUGE) is not tested. The test is of equality: a small p says that
the two differ, a large one says nothing; whether a difference is small enough is the accuracy gate's question.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scipy.stats import binomtest

FULL_MARKS = 100.0


@dataclass(frozen=True)
class Discordant:
    """Pairs with one side right. ``binary``: all scores are 0 or 100, otherwise full marks count as right."""

    baseline_only: int
    arm_only: int
    p_value: float
    binary: bool


def mcnemar(baseline: Sequence[float], arm: Sequence[float]) -> Discordant | None:
    """Exact two-sided test; None where no side ever has full marks, so that there is nothing to be right at."""
    right = [(b >= FULL_MARKS, a >= FULL_MARKS) for b, a in zip(baseline, arm, strict=True)]
    if not any(b or a for b, a in right):
        return None
    losses, gains = sum(b and not a for b, a in right), sum(a and not b for b, a in right)
    p = float(binomtest(losses, losses + gains).pvalue) if losses + gains else 1.0
    return Discordant(losses, gains, p, all(score in (0.0, FULL_MARKS) for score in (*baseline, *arm)))
