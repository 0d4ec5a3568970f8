"""Additive model of runs in blocks: logarithm = arm + block + noise.

The least-squares fit compares arms inside blocks only, so that what a block does to all of its runs
(drift, a busy neighbour) cancels, and it estimates the noise from all arms together: three arms in five
blocks leave 8 degrees of freedom where one pair of arms alone leaves 4. It assumes that arms scatter
alike on the log scale. Where an arm scatters significantly more than the others (F test at 10 %), its
comparison falls back to Student's t of its own differences. With two arms and one run each per block both
are the paired t test; with one block and a repeated baseline it is the t test with the baseline's spread.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import fdtri

# (arm, block, logarithm) of one run.
Point = tuple[str, int, float]

# An arm whose own scatter is that improbable under a common one is judged by its own. The level is liberal,
# because a wrong common scatter costs false switches and a wrong own one costs only some power; at 5 % arms
# that scatter twice as much as the baseline exceed the permitted error (benchmarks/decide_simulation.py).
UNEQUAL_LEVEL = 0.10


@dataclass(frozen=True)
class Fit:
    """A fitted model: arm effects, their covariance up to the noise, and the noise.

    ``covariance`` is the pseudo-inverse of X'X for all coefficients. ``identity`` projects on what the data
    can tell: a contrast that it changes cannot be estimated.
    """

    arms: tuple[str, ...]
    effects: np.ndarray
    covariance: np.ndarray
    identity: np.ndarray
    variance: float
    df: int

    def difference(self, arm: str, other: str) -> tuple[float, float] | None:
        """(difference of effects, its standard error in units of the noise SD); None if no block links them."""
        contrast = np.zeros(len(self.effects))
        contrast[self.arms.index(arm)], contrast[self.arms.index(other)] = 1.0, -1.0
        if np.abs(contrast @ self.identity - contrast).max() > 1e-8:
            return None
        return float(contrast @ self.effects), math.sqrt(float(contrast @ self.covariance @ contrast))


@dataclass(frozen=True)
class Design:
    """What the least-squares fit owes to which runs exist, not to their values: the same for all metrics and tiers."""

    arms: tuple[str, ...]
    matrix: np.ndarray
    inverse: np.ndarray
    covariance: np.ndarray
    identity: np.ndarray
    rank: int


@lru_cache(maxsize=256)
def _design(runs: tuple[tuple[str, int], ...]) -> Design:
    """Design matrix of arms and blocks and its pseudo-inverse."""
    arms, numbers = tuple(dict.fromkeys(arm for arm, _ in runs)), tuple(dict.fromkeys(number for _, number in runs))
    column = {name: place for place, name in enumerate((*arms, *numbers))}
    matrix = np.zeros((len(runs), len(column)))
    rows = np.arange(len(runs))
    matrix[rows, [column[arm] for arm, _ in runs]] = 1.0
    matrix[rows, [column[number] for _, number in runs]] = 1.0
    # Singular values of such a table of zeros and ones are 0 or far from it: there is no doubt about the rank.
    left, singular, right = np.linalg.svd(matrix, full_matrices=False)
    rank = int((singular > 1e-9 * singular[0]).sum())
    left, singular, right = left[:, :rank], singular[:rank], right[:rank]
    inverse = (right.T / singular) @ left.T
    return Design(arms, matrix, inverse, (right.T / singular**2) @ right, right.T @ right, rank)


@lru_cache(maxsize=1024)
def fit(points: tuple[Point, ...]) -> Fit:
    """Least squares of the additive model; ``variance`` is nan without degrees of freedom."""
    design = _design(tuple((arm, number) for arm, number, _ in points))
    y = np.array([p[2] for p in points])
    effects = design.inverse @ y
    residual = y - design.matrix @ effects
    df = len(points) - design.rank
    variance = float(residual @ residual) / df if df > 0 else math.nan
    return Fit(design.arms, effects, design.covariance, design.identity, variance, df)


def own_differences(points: Sequence[Point], arm: str, other: str) -> list[float]:
    """Difference of two arms in each block that has both (means where an arm ran several times)."""
    values: Mapping[str, dict[int, list[float]]] = {arm: {}, other: {}}
    for name, number, value in points:
        if name in values:
            values[name].setdefault(number, []).append(value)
    shared = sorted(set(values[arm]) & set(values[other]))
    return [sum(values[arm][n]) / len(values[arm][n]) - sum(values[other][n]) / len(values[other][n]) for n in shared]


def scatters_more(points: Sequence[Point], arm: str, other: str) -> bool:
    """Whether an arm's own differences scatter more than the other arms lead to expect."""
    own = own_differences(points, arm, other)
    rest = fit(tuple(p for p in points if p[0] != arm))
    if len(own) < 3 or rest.df < 1 or not rest.variance > 0:
        return False
    runs = sum(p[0] == other for p in points) / len({p[1] for p in points if p[0] == other})
    expected = rest.variance * (1 + 1 / runs)
    return float(np.var(own, ddof=1)) / expected > float(fdtri(len(own) - 1, rest.df, 1 - UNEQUAL_LEVEL))
