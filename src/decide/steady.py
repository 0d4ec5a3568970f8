"""Is the load of a round steady? The trend of request times inside rounds, after the warm-up.

Warm-up requests are sent before a tier and are not in its measurements. Then the first requests, as
many as run at once, meet an empty server and are left out here. What remains should have no trend: a
trend means that caches, clocks or queues were still settling, and percentiles mix two states.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from adrbench.decide.context import Context
from adrbench.decide.intervals import quantile
from adrbench.decide.records import TierRun
from adrbench.decide.verdict import Steady

METRIC = "e2el_ms"
LEAST_REQUESTS = 6


@dataclass(frozen=True)
class Trend:
    """Change of a logarithm from the first to the last request, its standard error, and degrees of freedom."""

    change: float
    error: float
    df: int


def trend(values: Sequence[float], skip: int) -> Trend | None:
    """Least-squares trend over the requests in sending order, the first ``skip`` left out.

    None when fewer than six requests remain. Its error takes requests for independent.
    """
    kept = list(values[skip:])
    if len(kept) < LEAST_REQUESTS:
        return None
    x, y = np.linspace(-0.5, 0.5, len(kept)), np.log(kept)
    change = float(x @ y / (x @ x))
    residual = y - y.mean() - change * x
    df = len(kept) - 2
    return Trend(change, math.sqrt(float(residual @ residual) / df / float(x @ x)), df)


def combine(trends: Sequence[Trend], confidence: float) -> tuple[float, float, float] | None:
    """Mean change over rounds and its interval; with one round that of its own requests."""
    if not trends:
        return None
    if len(trends) == 1:
        value, error, df = trends[0].change, trends[0].error, trends[0].df
    else:
        changes = np.array([t.change for t in trends])
        value, df = float(changes.mean()), len(changes) - 1
        error = float(changes.std(ddof=1)) / math.sqrt(len(changes))
    half = quantile(confidence, df) * error
    return value, value - half, value + half


def _skip(run: TierRun) -> int:
    """Requests that met an empty server: as many as run at once."""
    return int((run.document.asked.get("tier") or {}).get("concurrency") or 0)


def table(context: Context) -> list[Steady]:
    """Every arm and tier; the error rate is shared among them (Bonferroni)."""
    cells = [(arm, tier) for arm in context.runs for tier in context.tiers if context.rounds(arm, tier)]
    confidence = 1 - (1 - context.confidence) / max(1, len(cells))
    found = []
    for arm, tier in cells:
        runs = context.rounds(arm, tier).values()
        trends = [t for run in runs if (t := trend(run.per_request.get(METRIC, []), _skip(run))) is not None]
        fit = combine(trends, confidence)
        if fit is None:
            continue
        change, low, high = (math.expm1(max(-700.0, min(value, 700.0))) for value in fit)
        found.append(
            Steady(
                arm=arm,
                tier=tier,
                metric=METRIC,
                change=change,
                low=low,
                high=high,
                rounds=len(trends),
                verdict="trend" if low > 0 or high < 0 else "none seen",
            )
        )
    return found
