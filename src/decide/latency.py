"""Latency percentiles of every arm and tier, with the bounds that the requests themselves give."""

from __future__ import annotations

import math

from adrbench.decide.context import Context
from adrbench.decide.intervals import quantile
from adrbench.decide.percentiles import bounds
from adrbench.decide.records import LATENCIES, TierRun
from adrbench.decide.verdict import Latency


def _mean(values: list[float]) -> float:
    """Geometric mean."""
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def _between_rounds(values: list[float], confidence: float) -> tuple[float, float] | None:
    """t interval of the geometric mean over rounds."""
    logs = [math.log(value) for value in values]
    if len(logs) < 2:
        return None
    mean = math.fsum(logs) / len(logs)
    error = math.sqrt(sum((x - mean) ** 2 for x in logs) / (len(logs) - 1) / len(logs))
    half = quantile(confidence, len(logs) - 1) * error
    return math.exp(max(mean - half, -700.0)), math.exp(min(mean + half, 700.0))


def summarise(runs: list[TierRun], metric: str, confidence: float) -> Latency:
    """Percentiles of one arm, tier and metric over its rounds.

    P99's bounds are distribution-free, from all requests together. With several rounds they are never
    narrower than the t interval between rounds: requests of one start are no independent sample.
    """
    p50, p90, p99 = ([run.latencies[metric][p] for run in runs] for p in (50, 90, 99))
    requests = [value for run in runs for value in run.per_request.get(metric, [])]
    low = high = None
    if requests:
        low, high = bounds(requests, 99, (1 + confidence) / 2)
    over_rounds = _between_rounds(p99, confidence)
    if over_rounds:
        low = None if low is None else min(low, over_rounds[0])
        high = None if high is None else max(high, over_rounds[1])
    return Latency(
        p50=_mean(p50),
        p90=_mean(p90),
        p99=_mean(p99),
        p99_low=low,
        p99_high=high,
        requests=len(requests) or None,
        rounds=len(runs),
    )


def table(context: Context) -> dict[str, dict[str, dict[str, Latency]]]:
    """arm -> tier -> metric."""
    result: dict[str, dict[str, dict[str, Latency]]] = {}
    for arm in context.runs:
        for tier in context.tiers:
            runs = list(context.rounds(arm, tier).values())
            if runs:
                result.setdefault(arm, {})[tier] = {m: summarise(runs, m, context.confidence) for m in LATENCIES}
    return result
