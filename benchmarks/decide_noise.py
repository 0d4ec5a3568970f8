"""Noise between server starts: as a model that is drawn from, and fitted to recorded starts.

The noise of one start is log-normal with heavy tails (Student's t with ``tail_df`` degrees of freedom, scaled
to ``sd``), on a machine that drifts by ``drift`` over the whole run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from adrbench import evidence
from scipy.stats import t as student


@dataclass(frozen=True)
class Noise:
    """Noise of one metric between server starts, on the log scale."""

    sd: float
    tail_df: float = 4.0
    drift: float = 0.05

    def draw(self, rng: np.random.Generator, size: int, scatter: np.ndarray | float = 1.0) -> np.ndarray:
        """Deviations of ``size`` consecutive starts; ``scatter`` multiplies the spread of each, not the drift."""
        heavy = rng.standard_t(self.tail_df, size) * math.sqrt((self.tail_df - 2) / self.tail_df)
        return self.sd * scatter * heavy + self.drift * np.linspace(0, 1, size)


def fit_noise(series: Sequence[Sequence[float]]) -> Noise:
    """Noise of recorded starts: one series per arm, tier and metric, in the order in which they ran.

    Each series is stripped of its own level and linear trend and scaled to unit spread for the tails; the
    spread and the trend are the medians over series. Tails are a maximum-likelihood fit of Student's t.

    Raises:
        ValueError: no series has the 4 starts that a level, a trend and a spread need.
    """
    spreads, trends, scaled = [], [], []
    for values in series:
        if len(values) < 4:
            continue
        logs, time_axis = np.log(values), np.linspace(0, 1, len(values))
        slope, level = np.polyfit(time_axis, logs, 1)
        residual = logs - level - slope * time_axis
        spread = math.sqrt(float(residual @ residual) / (len(values) - 2))
        if spread > 0:
            spreads.append(spread)
            trends.append(abs(float(slope)))
            scaled += (residual / spread).tolist()
    if not spreads:
        raise ValueError("at least 4 recorded starts of one arm are needed to fit the noise")
    tail_df = float(student.fit(scaled, floc=0.0)[0])
    return Noise(float(np.median(spreads)), min(max(tail_df, 3.0), 100.0), float(np.median(trends)))


def recorded(folder: Path) -> list[list[float]]:
    """Series of output throughput and median TTFT of every arm and tier below ``results/<platform>/serve``."""
    found: dict[tuple[str | None, str | None, str], list[tuple[str, float]]] = {}
    for path in sorted(folder.glob("*/r*/*.json")):
        document = evidence.read(path)
        for metric, value in (
            ("output_tokens_per_s", document.measured["output_tokens_per_s"]),
            ("ttft_ms", document.measured["ttft_ms"]["p50"]),
        ):
            found.setdefault((document.arm, document.tier, metric), []).append((document.started_at, value))
    return [[value for _, value in sorted(runs)] for runs in found.values()]
