"""A median and how well it is known, from few samples and without assuming their distribution."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

CONFIDENCE = 0.95


def _interval_rank(count: int) -> int:
    """How many of the smallest (and largest) of ``count`` samples lie outside the median's interval."""
    outside, tail = 0, 0.0
    for rank in range(count // 2):
        tail += math.comb(count, rank) / 2**count
        if 2 * tail > 1 - CONFIDENCE:
            break
        outside = rank
    return outside


def median_interval(values: Sequence[float]) -> dict[str, Any]:
    """Median with the order-statistic interval that holds the true median at 95 % (or as near as few allow).

    ``coverage`` is the confidence that the interval really has, for independent samples: with fewer than
    six samples the interval is their whole range and the coverage is below 95 %.

    Raises:
        ValueError: no values.
    """
    if not values:
        raise ValueError("a median of no samples")
    ordered = sorted(values)
    outside = _interval_rank(len(ordered))
    tail = sum(math.comb(len(ordered), rank) for rank in range(outside + 1)) / 2 ** len(ordered)
    return {
        "median": statistics.median(ordered),
        "low": ordered[outside],
        "high": ordered[len(ordered) - 1 - outside],
        "samples": len(ordered),
        "coverage": max(0.0, 1 - 2 * tail),
    }
