"""Accuracy differences, paired by sample and averaged over task classes with equal weights.

Two arms answer the same questions; most pairs have equal scores and a few differ by much. With 14 such
pairs a normal or bootstrap interval can be far too narrow, and has no width at all when all pairs agree.
So the interval is a bootstrap with a guard. Pair i of a task with n pairs weighs w_i = 1 / (tasks x n).
One extra value at the worst possible difference is added with the greatest of these weights, every weight is
multiplied by a random Exp(1) number, and the weighted mean is taken. The upper bound is the quantile of
that mean with the guard at +100, the lower bound the one with the guard at -100.

With one task and differences of 0 or 100 this is the Clopper-Pearson interval: 14 equal pairs give
100 x (1 - 0.025^(1/14)) = 23 points, the two-sided form of the rule of three. For other bounded
differences it is Gaffke's bound of the mean, which is supported by simulation rather than by a proof
(Learned-Miller and Thomas, A New Confidence Interval for the Mean of a Bounded Random Variable, 2019); the
guard of the greatest weight follows the interval of Fay and Feuer (1997) for weighted sums of counts.
The tests simulate its coverage. It needs independent samples with scores in [0, 100] and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

SCORE_RANGE = 100.0
DRAWS = 10_000
SEED = 20_260_609
# Random numbers held at once.
BLOCK = 4_000_000


@dataclass(frozen=True)
class Difference:
    """A difference in points; both bounds are closed, because scores are bounded.

    ``p_over``: one-sided p value of "the true difference is at most the limit" (small: it exceeds the limit),
    ``p_under`` of "it exceeds the limit"; 1 where no limit was given.
    """

    value: float
    low: float
    high: float
    p_over: float = 1.0
    p_under: float = 1.0


def differences(baseline: Sequence[float], arm: Sequence[float]) -> list[float]:
    """Baseline minus arm per sample, in points.

    Raises:
        ValueError: the two are not paired, or a score lies outside [0, 100].
    """
    if len(baseline) != len(arm) or not baseline:
        raise ValueError(f"{len(baseline)} scores of the baseline against {len(arm)} of the arm cannot be paired")
    wrong = [score for score in (*baseline, *arm) if not 0 <= score <= SCORE_RANGE]
    if wrong:
        raise ValueError(f"a score is {wrong[0]}; scores lie between 0 and {SCORE_RANGE:.0f}")
    return [b - a for b, a in zip(baseline, arm, strict=True)]


def weights(tasks: Sequence[Sequence[float]]) -> list[float]:
    """Weight of one pair of each task: every task counts the same."""
    if not tasks or any(not len(task) for task in tasks):
        raise ValueError("each task needs at least one pair")
    return [1 / (len(tasks) * len(task)) for task in tasks]


def _random_sums(
    tasks: Sequence[Sequence[float]], rng: np.random.Generator, draws: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Randomly weighted sum of the differences, sum of the weights, and weight of the guard, per draw."""
    sums, totals, each = np.zeros(draws), np.zeros(draws), weights(tasks)
    for task, weight in zip(tasks, each, strict=True):
        # Equal values share one gamma number: the sum of their exponential ones.
        values, counts = np.unique(np.asarray(task, dtype=float), return_counts=True)
        step = max(1, BLOCK // len(values))
        for start in range(0, draws, step):
            random = weight * rng.standard_gamma(counts, (min(step, draws - start), len(values)))
            sums[start : start + step] += random @ values
            totals[start : start + step] += random.sum(axis=1)
    # The guard decides the tail when most pairs agree: its exponential numbers are spread evenly, not drawn.
    guard = -np.log1p(-(np.arange(draws) + 0.5) / draws)
    return sums, totals, max(each) * guard


def mean_interval(
    tasks: Sequence[Sequence[float]],
    confidence: float,
    limit: float | None = None,
    draws: int = DRAWS,
    seed: int = SEED,
) -> Difference:
    """Interval of the mean over tasks of the mean difference, in points; the same for the same data.

    Args:
        tasks: differences of each task (in [-100, 100]); every task weighs the same.
        confidence: two-sided.
        limit: in points, for the p values: the smallest error at which the bound still lies beyond it.
    """
    sums, totals, guard = _random_sums(tasks, np.random.default_rng(seed), draws)
    tail = (1 - confidence) / 2
    value = math.fsum(w * math.fsum(task) for w, task in zip(weights(tasks), tasks, strict=True))
    lower, upper = ((sums + side * guard * SCORE_RANGE) / (totals + guard) for side in (-1, 1))
    low, high = float(np.quantile(lower, tail)), float(np.quantile(upper, 1 - tail))
    if limit is None:
        return Difference(value, min(value, low), max(value, high))
    # One more than counted: so few draws cannot say that a p value is 0.
    over, under = (float(1 + np.count_nonzero(beyond)) / (draws + 1) for beyond in (lower <= limit, upper > limit))
    return Difference(value, min(value, low), max(value, high), min(1.0, over), min(1.0, under))


def agreement(tasks: Sequence[Sequence[float]]) -> float:
    """Fraction of pairs with equal scores."""
    pairs = [difference for task in tasks for difference in task]
    return sum(difference == 0 for difference in pairs) / len(pairs)
