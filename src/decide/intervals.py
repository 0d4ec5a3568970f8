"""Intervals of a ratio between two arms whose unit is the round (one fresh server start).

All work is on logarithms: latencies and rates are positive, their noise is multiplicative, and the ratio
of geometric means is the exponential of a difference of means. Requests inside one round share a server
start, so they are no substitute for rounds.

Which interval is used follows from what exists, best first:

``exact``     a value that no round changed (a deterministic setting): an interval without width
``blocks``    at least two blocks hold both arms: additive model of arm and block (``blocks``)
``paired``    the same, for an arm that scatters more than the others: Student's t of its own differences
``unpaired``  at least two rounds of both arms, but not side by side: Welch's t; drift is not removed
``pooled``    one round of an arm: the spread between starts is taken from the arms that were repeated
``point``     no arm was repeated: the spread between starts is unknown and so is the interval
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from adrbench.decide.blocks import Point, fit, own_differences, scatters_more
from scipy.special import stdtr, stdtrit

Basis = Literal["exact", "blocks", "paired", "unpaired", "pooled", "point"]


@dataclass(frozen=True)
class Interval:
    """A value and its bounds; None is an open bound."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Spread:
    """Standard deviation of a logarithm between server starts, and its degrees of freedom."""

    sd: float
    df: int


@dataclass(frozen=True)
class Comparison:
    """Logarithm of the ratio arm / baseline.

    ``standard_error`` and ``df`` are None where the interval does not rest on a t distribution.
    """

    log: Interval
    basis: Basis
    standard_error: float | None = None
    df: float | None = None
    rounds: int = 0

    def ratio(self) -> Interval:
        """The ratio itself, with its bounds."""
        low, high = (None if bound is None else math.exp(bound) for bound in (self.log.low, self.log.high))
        return Interval(math.exp(self.log.value), low, high)

    def p_value(self, ratio: float) -> float:
        """One-sided p value of "the true ratio is at most ``ratio``"; 1 where nothing is known."""
        excess = self.log.value - math.log(ratio)
        if self.basis == "exact":
            return 0.0 if excess > 0 else 1.0
        if self.standard_error is None or self.df is None:
            return 1.0
        return float(stdtr(self.df, -excess / self.standard_error))


def quantile(confidence: float, df: float) -> float:
    """Two-sided Student quantile: mean +- quantile x standard error covers with ``confidence``."""
    return float(stdtrit(df, (1 + confidence) / 2))


def _positive(values: Iterable[float]) -> None:
    if not all(math.isfinite(value) and value > 0 for value in values):
        raise ValueError("a ratio needs positive finite values")


def pooled_spread(groups: Iterable[Sequence[float]]) -> Spread | None:
    """Spread between starts of the logarithm, pooled over arms (one group each) with at least two rounds.

    It assumes that all arms scatter alike on the log scale. None when no arm was repeated, or when the
    repeats do not differ at all: a clock that never differs measured nothing.
    """
    squares, df = 0.0, 0
    for group in groups:
        _positive(group)
        if len(group) >= 2:
            logs = np.log(group)
            squares += float(np.sum((logs - logs.mean()) ** 2))
            df += len(group) - 1
    return Spread(math.sqrt(squares / df), df) if df and squares > 0 else None


def _student(
    value: float, standard_error: float, df: float, confidence: float, basis: Basis, rounds: int
) -> Comparison:
    if not standard_error > 0:
        # Repeats of a noisy quantity that do not differ prove a copy or a stuck clock, not precision.
        return Comparison(Interval(value, None, None), "point", rounds=rounds)
    half = quantile(confidence, df) * standard_error
    return Comparison(Interval(value, value - half, value + half), basis, standard_error, df, rounds)


def compare(
    values: Mapping[str, Mapping[int, float]],
    arm: str,
    other: str,
    confidence: float,
    place: Callable[[str, int], int | None] = lambda _arm, number: number,
    deterministic: bool = False,
) -> Comparison:
    """Ratio ``arm`` / ``other`` from the per-round values of all arms.

    Args:
        values: arm -> round -> value (> 0); arms beside the two help to estimate the noise.
        confidence: two-sided.
        place: block of a run; None for a run that was not measured beside the others.
        deterministic: the quantity has no noise of its own; rounds that agree then have no width.

    Raises:
        ValueError: one of the two has no round, or a value is not positive and finite.
    """
    _positive(value for rounds in values.values() for value in rounds.values())
    x, y = (np.log(list(values.get(name, {}).values())) for name in (arm, other))
    if not len(x) or not len(y):
        raise ValueError("both arms need at least one round")
    if deterministic and len(set(values[arm].values())) == 1 and len(set(values[other].values())) == 1:
        value = math.log(next(iter(values[arm].values())) / next(iter(values[other].values())))
        return Comparison(Interval(value, value, value), "exact", rounds=min(len(x), len(y)))
    points = _points(values, place)
    own = own_differences(points, arm, other)
    if len(own) >= 2:
        return _in_blocks(points, arm, other, own, confidence)
    value, rounds = float(x.mean() - y.mean()), min(len(x), len(y))
    if rounds >= 2:
        a, b = x.var(ddof=1) / len(x), y.var(ddof=1) / len(y)
        if a + b > 0:
            df = (a + b) ** 2 / (a**2 / (len(x) - 1) + b**2 / (len(y) - 1))
            return _student(value, math.sqrt(a + b), float(df), confidence, "unpaired", rounds)
        return Comparison(Interval(value, None, None), "point", rounds=rounds)
    spread = pooled_spread([list(rounds.values()) for rounds in values.values()])
    if spread is None:
        return Comparison(Interval(value, None, None), "point", rounds=rounds)
    error = spread.sd * math.sqrt(1 / len(x) + 1 / len(y))
    return _student(value, error, spread.df, confidence, "pooled", rounds)


def _points(values: Mapping[str, Mapping[int, float]], place: Callable[[str, int], int | None]) -> tuple[Point, ...]:
    """Runs that were measured beside others, with their blocks."""
    placed = [(name, place(name, r), math.log(value)) for name, rounds in values.items() for r, value in rounds.items()]
    return tuple((name, number, value) for name, number, value in placed if number is not None)


def _in_blocks(points: tuple[Point, ...], arm: str, other: str, own: list[float], confidence: float) -> Comparison:
    if not scatters_more(points, arm, other):
        fitted = fit(points)
        found = fitted.difference(arm, other)
        if found is not None and fitted.df > 0:
            value, factor = found
            error = factor * math.sqrt(fitted.variance) if not _constant(own) else 0.0
            return _student(value, error, fitted.df, confidence, "blocks", len(own))
    differences = np.array(own)
    return _student(
        float(differences.mean()), _standard_error(differences), len(own) - 1, confidence, "paired", len(own)
    )


def _constant(values: Sequence[float]) -> bool:
    """Whether values differ by rounding only."""
    return max(values) - min(values) <= 1e-12 * (1 + max(map(abs, values)))


def _standard_error(values: np.ndarray) -> float:
    """Standard error of the mean; 0 where the values differ by rounding only."""
    return 0.0 if _constant(list(values)) else float(values.std(ddof=1)) / math.sqrt(len(values))


def add_tiers(parts: Sequence[tuple[float, Mapping[int, float]]]) -> dict[int, float]:
    """Weighted geometric mean over tiers, per round; rounds that miss a tier are left out.

    Args:
        parts: (weight, round -> value) of each tier; weights need not sum to 1.
    """
    total = sum(weight for weight, _ in parts)
    rounds = set.intersection(*(set(values) for _, values in parts)) if parts else set()
    _positive(value for _, values in parts for value in values.values())
    return {r: math.exp(sum(w * math.log(v[r]) for w, v in parts) / total) for r in sorted(rounds)}


def combine_within(
    arm: tuple[float | None, float | None], baseline: tuple[float | None, float | None], between: float
) -> tuple[float | None, float | None]:
    """Bounds of a ratio from bounds of its parts, widened by a log half-width ``between`` starts.

    The worst corner of the two intervals: if each part holds, so does the ratio, so that the error
    rates of the parts add up at most (Bonferroni). An open part leaves the side open that rests on it.
    """
    low = None if arm[0] is None or baseline[1] is None else arm[0] / baseline[1] * math.exp(-between)
    high = None if arm[1] is None or baseline[0] is None else arm[1] / baseline[0] * math.exp(between)
    return low, high
