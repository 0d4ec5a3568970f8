"""Figures of one arm over all positions and by context length, each with its interval over segments."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from adrbench.agreement.divergence import Floats, Positions
from adrbench.decide.segments import ratio_interval
from numpy.typing import NDArray


def buckets(edges: Sequence[int], positions: int) -> Iterator[tuple[str, slice]]:
    """(name, positions) of each bucket; position j has j + 1 tokens before it. The first bucket is ``all``.

    Raises:
        ValueError: an edge that leaves a bucket empty.
    """
    yield "all", slice(0, positions)
    if not edges:
        return
    inner = [0, *edges, positions]
    for start, end in pairwise(inner):
        if not start < end:
            raise ValueError(f"edges {list(edges)} do not split {positions} positions: a bucket would be empty")
        yield f"{start + 1}-{end}", slice(start, end)


def _shown(over: Floats, under: Floats, confidence: float) -> dict[str, float] | None:
    """A ratio of two sums over segments with its interval; None where the denominator is zero."""
    if not under.sum() > 0:
        return None
    found = ratio_interval(over, under, confidence)
    return {"value": found.value, "low": found.low, "high": found.high}


def _perplexity(nll: Floats, confidence: float) -> dict[str, float] | None:
    found = _shown(nll.sum(axis=1), np.full(len(nll), float(nll.shape[1])), confidence)
    return None if found is None else {key: math.exp(value) for key, value in found.items()}


def figures(found: Positions, where: slice, confidence: float) -> dict[str, Any]:
    """``measured.arms[arm].buckets[name]``: shares and means over the positions of one bucket.

    ``perplexity_ratio`` is arm / baseline, paired by position: exp of the mean difference of the negative
    log-probabilities.
    """
    equal, sure = found.equal[:, where], found.sure[:, where]
    count = np.full(len(equal), float(equal.shape[1]))

    def total(values: NDArray[Any]) -> Floats:
        summed: Floats = np.asarray(values, dtype=np.float64).sum(axis=1)
        return summed

    baseline, arm = found.baseline_nll[:, where], found.arm_nll[:, where]
    return {
        "positions": int(equal.size),
        "agreement": _shown(total(equal), count, confidence),
        "sure_positions": int(sure.sum()),
        "sure_agreement": _shown(total(equal & sure), total(sure), confidence),
        "kl_nats": _shown(total(found.kl[:, where]), count, confidence),
        "lumped_probability": float(found.lumped[:, where].mean()),
        "perplexity": _perplexity(arm, confidence),
        "baseline_perplexity": _perplexity(baseline, confidence),
        "perplexity_ratio": _perplexity(arm - baseline, confidence),
    }


def by_bucket(found: Positions, edges: Sequence[int], confidence: float) -> dict[str, dict[str, Any]]:
    """Figures of every bucket by its name."""
    return {name: figures(found, where, confidence) for name, where in buckets(edges, found.equal.shape[1])}
