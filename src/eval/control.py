"""Does a task measure anything? The model with the document against the model without it."""

from __future__ import annotations

import random
from collections.abc import Sequence

RESAMPLES = 5000


def paired_difference(
    scores: Sequence[float], control: Sequence[float], seed: int = 0, resamples: int = RESAMPLES
) -> tuple[float, float, float]:
    """(mean difference, low, high): percentile bootstrap over sample pairs, 95 %.

    With few samples the interval is somewhat too narrow; with all differences equal it has no width.

    Raises:
        ValueError: when the two are not paired.
    """
    if len(scores) != len(control) or not scores:
        raise ValueError(f"{len(scores)} scores against {len(control)} controls cannot be paired")
    differences = [score - other for score, other in zip(scores, control, strict=True)]
    size, rng = len(differences), random.Random(seed)
    means = sorted(sum(rng.choices(differences, k=size)) / size for _ in range(resamples))
    return sum(differences) / size, means[round(0.025 * (resamples - 1))], means[round(0.975 * (resamples - 1))]
