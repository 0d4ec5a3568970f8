"""Distribution-free confidence bounds of a percentile, from order statistics.

For n independent values with distribution function F and the q-quantile x_q, the number of values at
or below x_q is binomial(n, q). So the k-th smallest value is a lower bound of x_q with probability
P(Bin(n, q) >= k) and an upper bound with probability P(Bin(n, q) <= k - 1), whatever F is. (David and
Nagaraja, Order Statistics, section 7.1.) A sample too small for a level has no such k: the bound is open.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.stats import binom


def percentile(values: Sequence[float], percent: float) -> float:
    """Sample percentile with linear interpolation, as ``vllm bench serve`` reports it."""
    return float(np.percentile(values, percent))


def lower_rank(n: int, q: float, level: float) -> int | None:
    """Greatest rank (from 1) whose order statistic is below the q-quantile with probability ``level``."""
    k = int(binom.ppf(1 - level, n, q))
    while k >= 0 and binom.cdf(k, n, q) > 1 - level:
        k -= 1
    return k + 1 if k >= 0 else None


def upper_rank(n: int, q: float, level: float) -> int | None:
    """Least rank (from 1) whose order statistic is above the q-quantile with probability ``level``."""
    k = int(binom.ppf(level, n, q))
    return k + 1 if k < n else None


def bounds(values: Sequence[float], percent: float, level: float) -> tuple[float | None, float | None]:
    """Lower and upper bound of a percentile, each at one-sided ``level``; None where the bound is open.

    Args:
        values: independent values of one population.
        percent: 0 < percent < 100.
        level: confidence of each side, such as 0.975 for a two-sided 95 %.
    """
    if not values or not all(map(math.isfinite, values)):
        raise ValueError("a percentile needs at least one value, all finite")
    ordered = sorted(values)
    low = lower_rank(len(ordered), percent / 100, level)
    high = upper_rank(len(ordered), percent / 100, level)
    return None if low is None else ordered[low - 1], None if high is None else ordered[high - 1]


def values_to_close(percent: float, level: float) -> int:
    """Least number of values with which the upper bound of a percentile is not open: 1 - q^n >= level."""
    return math.ceil(math.log(1 - level) / math.log(percent / 100))


def resting_ranks(n: int, percent: float) -> tuple[int, int]:
    """Ranks from the greatest (1 = greatest) of the two values that a sample percentile interpolates."""
    position = (n - 1) * percent / 100
    return n - math.floor(position), n - math.ceil(position)
