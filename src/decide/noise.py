"""The noise floor: the baseline against itself (A/A), per tier and metric."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from itertools import combinations

from adrbench.decide.context import Context
from adrbench.decide.intervals import Spread, pooled_spread, quantile
from adrbench.decide.records import series
from adrbench.decide.verdict import Noise


def own_spread(values: Mapping[int, float], block_of: Callable[[int], int | None]) -> Spread | None:
    """Spread of one arm between its own starts.

    From starts of the same block where there are any, which drift separates least; else from all its rounds.
    """
    groups: dict[int | None, list[float]] = {}
    for number, value in values.items():
        groups.setdefault(block_of(number), []).append(value)
    groups.pop(None, None)
    return pooled_spread(list(groups.values())) or pooled_spread([list(values.values())])


def floor(spread: Spread | None, confidence: float, arm_rounds: int, baseline_rounds: int) -> float | None:
    """The gain (as a fraction) that no difference at all would show at this confidence.

    The half-width of a comparison of ``arm_rounds`` with ``baseline_rounds`` rounds of the *same* arm,
    from that arm's spread between starts. None where it was never repeated.
    """
    if spread is None:
        return None
    half = quantile(confidence, spread.df) * spread.sd * math.sqrt(1 / arm_rounds + 1 / baseline_rounds)
    # exp overflows beyond; a floor of 1e300 and none at all forbid the same.
    return math.expm1(min(half, 690.0))


def against_itself(
    values: Mapping[int, float], confidence: float, block_of: Callable[[int], int | None]
) -> Noise | None:
    """A/A of one metric; None with fewer than two rounds."""
    if len(values) < 2:
        return None
    pairs = combinations(sorted(values), 2)
    first, second = max(pairs, key=lambda pair: abs(math.log(values[pair[1]] / values[pair[0]])))
    spread = own_spread(values, block_of)
    return Noise(
        a=values[first],
        b=values[second],
        ratio=values[second] / values[first],
        rounds=len(values),
        sd=0.0 if spread is None else spread.sd,
        floor=0.0 if spread is None else floor(spread, confidence, 1, 1),
    )


def table(context: Context) -> dict[str, dict[str, Noise]]:
    """A/A of every tier and metric that the baseline has at least twice."""
    result: dict[str, dict[str, Noise]] = {}
    for tier in context.tiers:
        for metric, values in series(context.runs, context.baseline, tier):
            noise = against_itself(values, context.confidence, partial(context.place, context.baseline))
            if noise is not None:
                result.setdefault(tier, {})[metric] = noise
    return result
