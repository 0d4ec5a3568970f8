"""How much more evidence would decide: rounds for ratios, pairs for accuracy.

A plan is an estimate from the spread seen so far; it aims at ``POWER``, the chance that the planned
amount really decides if the true value is the one measured now.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from adrbench.decide.paired import SCORE_RANGE, weights
from scipy.stats import nct, norm
from scipy.stats import t as student

POWER = 0.9
# A plan beyond these is none: nobody runs it, and the value lies too near its limit to be decided by more of the same.
MOST_ROUNDS = 100
# Pairs in all: more than the long-context test sets in common use have, or so many times what the tasks give now.
MOST_PAIRS = 5_000
MOST_TIMES_THE_PAIRS = 20


@dataclass(frozen=True)
class Plan:
    """What would decide: ``rounds`` of the arm and the baseline in all, or ``pairs`` more of samples.

    ``requests``: of one start, below which a percentile's upper bound is open whatever they show.
    """

    rounds: int | None = None
    pairs: int | None = None
    requests: int | None = None


NO_PLAN = Plan()


def power_of_rounds(margin: float, sd: float, rounds: int, confidence: float) -> float:
    """Chance that ``rounds`` pairs put the whole interval beyond a limit that is ``margin`` away.

    Args:
        margin: distance on the log scale.
        sd: of one round's log ratio.
    """
    if rounds < 2:
        return 0.0
    crossing = student.ppf((1 + confidence) / 2, rounds - 1)
    return float(nct.sf(crossing, rounds - 1, abs(margin) / sd * math.sqrt(rounds)))


def _least(good: Callable[[int], bool], start: int, most: int) -> int | None:
    """Least number from ``start`` to ``most`` that is good, for a condition that stays true once true."""
    top = start
    while not good(top):
        if top >= most:
            return None
        top = min(most, 2 * top)
    bottom = start
    while bottom < top:
        middle = (bottom + top) // 2
        bottom, top = (bottom, middle) if good(middle) else (middle + 1, top)
    return top


def rounds_needed(margin: float, sd: float, confidence: float, power: float = POWER) -> int | None:
    """Rounds of both arms that decide with ``power``; None where more than ``MOST_ROUNDS`` would be needed."""
    if not sd > 0 or margin == 0:
        return None
    return _least(lambda n: power_of_rounds(margin, sd, n, confidence) >= power, 2, MOST_ROUNDS)


def expected_bound(tasks: Sequence[Sequence[float]], factor: float, side: int) -> tuple[float, float]:
    """Mean and variance of the guarded mean (``paired``) with ``factor`` times the pairs, all like those measured.

    Args:
        side: 1 for the upper bound (guard at +100), -1 for the lower.
    """
    each = [weight / factor for weight in weights(tasks)]
    guard, extra = side * SCORE_RANGE, max(each)
    value = float(np.mean([np.mean(task) for task in tasks]))
    mean = (value + extra * guard) / (1 + extra)
    pairs = zip(each, tasks, strict=True)
    spread = sum(factor * w**2 * float(np.sum((np.asarray(task) - mean) ** 2)) for w, task in pairs)
    return mean, (spread + (extra * (guard - mean)) ** 2) / (1 + extra) ** 2


def most_pairs(present: int) -> int:
    """Pairs in all beyond which none are planned, for a run that has ``present``."""
    return max(MOST_PAIRS, MOST_TIMES_THE_PAIRS * present)


def pairs_needed(tasks: Sequence[Sequence[float]], limit: float, confidence: float, power: float = POWER) -> int | None:
    """Pairs in all (in the tasks' present proportion) that decide "difference <= limit" with ``power``.

    None where the measured difference is so near the limit that more than ``most_pairs`` would be needed.
    """
    present = sum(len(task) for task in tasks)
    value = float(np.mean([np.mean(task) for task in tasks]))
    side = 1 if value <= limit else -1
    reach = float(norm.ppf((1 + confidence) / 2)) + float(norm.ppf(power))

    def decided(pairs: int) -> bool:
        mean, variance = expected_bound(tasks, pairs / present, side)
        return side * mean + reach * math.sqrt(variance) <= side * limit

    return _least(decided, present, most_pairs(present))
