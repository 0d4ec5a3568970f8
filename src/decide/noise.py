"""The noise floor: the baseline against itself (A/A), per tier and metric."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from itertools import combinations, pairwise

from adrbench.decide.blocks import UNEQUAL_LEVEL
from adrbench.decide.context import Context
from adrbench.decide.intervals import Comparison, Spread, pooled_spread, quantile
from adrbench.decide.records import series
from adrbench.decide.verdict import Noise
from scipy.special import fdtri

# A floor beyond this gain (as a fraction) says only that the repeats were too few.
MOST_FLOOR = 9.0


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


def _useful(noise: float | None) -> float | None:
    """None for a floor above tenfold: two starts leave one degree of freedom and bound nothing."""
    return None if noise is None or noise > MOST_FLOOR else noise


def of_comparison(
    own: Spread | None, found: Comparison, confidence: float, arm_rounds: int, baseline_rounds: int
) -> float | None:
    """The noise that a gain must exceed: what equal arms would show with these rounds, as a fraction.

    The spread is the one that the comparison rests on, to which the baseline's repeats contribute. Only
    where the baseline scatters significantly more against itself (F test at 10 %) does its own count.
    None where the baseline was never repeated: there is no A/A, and nothing can be said to exceed it.
    """
    if own is None or found.standard_error is None or found.df is None:
        return None
    common = found.standard_error / math.sqrt(1 / arm_rounds + 1 / baseline_rounds)
    if (own.sd / common) ** 2 > float(fdtri(own.df, found.df, 1 - UNEQUAL_LEVEL)):
        return floor(own, confidence, arm_rounds, baseline_rounds)
    return math.expm1(min(quantile(confidence, found.df) * found.standard_error, 690.0))


def differences(values: Mapping[int, float], block_of: Callable[[int], int | None]) -> tuple[list[float], bool]:
    """Differences (as fractions) between starts of the baseline, and whether they ran side by side.

    Successive starts inside a block; where no block holds two, successive rounds, whose differences hold drift, too.
    """
    groups: dict[int | None, list[int]] = {}
    for number in sorted(values):
        groups.setdefault(block_of(number), []).append(number)
    groups.pop(None, None)
    pairs = [pair for numbers in groups.values() for pair in pairwise(numbers)]
    beside = bool(pairs)
    return [values[b] / values[a] - 1 for a, b in (pairs or pairwise(sorted(values)))], beside


# Rounds of both arms for which the least effect is shown.
SHOWN_ROUNDS = (1, 2, 3, 5, 10)


def against_itself(
    values: Mapping[int, float], confidence: float, block_of: Callable[[int], int | None]
) -> Noise | None:
    """A/A of one metric; None with fewer than two rounds."""
    if len(values) < 2:
        return None
    pairs = combinations(sorted(values), 2)
    first, second = max(pairs, key=lambda pair: abs(math.log(values[pair[1]] / values[pair[0]])))
    spread = own_spread(values, block_of)
    shown, beside = differences(values, block_of)
    least = {n: 0.0 if spread is None else _useful(floor(spread, confidence, n, n)) for n in SHOWN_ROUNDS}
    return Noise(
        a=values[first],
        b=values[second],
        ratio=values[second] / values[first],
        rounds=len(values),
        sd=0.0 if spread is None else spread.sd,
        floor=least[1],
        df=0 if spread is None else spread.df,
        differences=shown,
        side_by_side=beside,
        least=least,
    )


def table(context: Context) -> dict[str, dict[str, Noise]]:
    """A/A of every tier and metric that the baseline has at least twice; the platform's own where it is evidence."""
    if context.floor is not None:
        return context.floor.noise
    result: dict[str, dict[str, Noise]] = {}
    for tier in context.tiers:
        for metric, values in series(context.runs, context.baseline, tier):
            noise = against_itself(values, context.confidence, partial(context.place, context.baseline))
            if noise is not None:
                result.setdefault(tier, {})[metric] = noise
    return result
