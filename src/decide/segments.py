"""Intervals of ratios of sums over segments of text: positions of one segment are not independent, segments are.

Bootstrap over whole segments. With few segments a percentile interval is too narrow: it behaves like a normal interval
with the variance divided by n instead of n - 1. The "expanded" percentiles of Hesterberg (What Teachers Should Know
About the Bootstrap, 2015, section 4.3) correct both: the tail is Phi(-sqrt(n / (n - 1)) t), t Student's quantile with
n - 1 degrees of freedom.
"""

from __future__ import annotations

import math

import numpy as np
from adrbench.decide.paired import DRAWS, SEED, Difference
from numpy.typing import NDArray
from scipy.stats import norm
from scipy.stats import t as student

Floats = NDArray[np.float64]


def expanded_tail(n: int, confidence: float) -> float:
    """Tail of the bootstrap distribution at which an interval over ``n`` segments ends."""
    if n < 2:
        raise ValueError(f"{n} segment gives no interval; at least 2 are needed")
    return float(norm.cdf(-math.sqrt(n / (n - 1)) * student.ppf((1 + confidence) / 2, n - 1)))


def ratio_interval(over: Floats, under: Floats, confidence: float, draws: int = DRAWS, seed: int = SEED) -> Difference:
    """Interval of sum(over) / sum(under); the same for the same data.

    Args:
        over: numerator of each segment, ``[segments]``; ``under`` its denominator, not negative.

    Raises:
        ValueError: fewer than two segments, or nothing in the denominator.
    """
    n = len(over)
    tail = expanded_tail(n, confidence)
    if not under.sum() > 0:
        raise ValueError("the denominators are all zero")
    weights = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=draws).astype(np.float64)
    below = weights @ under
    kept = below > 0
    values = (weights @ over)[kept] / below[kept]
    value = float(over.sum() / under.sum())
    low, high = np.quantile(values, [tail, 1 - tail])
    return Difference(value, min(value, float(low)), max(value, float(high)))
