"""One simulated experiment: server starts in their interleaved order, and what the decide stage makes of them.

The starts go through the code that real evidence goes through (``adrbench.decide``); adaptive runs go through the
stage's own status and stopping rule.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from adrbench.decide import interleave, status, stopping
from adrbench.decide.intervals import Comparison, compare
from adrbench.decide.multiplicity import holm
from adrbench.decide.noise import of_comparison, own_spread
from adrbench.decide.objective import gain_verdict
from adrbench.decide.sequential import look_confidence
from adrbench.decide.verdict import ObjectiveResult, OptionResult
from adrbench.decide.words import text
from decide_noise import Noise

BASELINE = "baseline"
Values = dict[str, dict[int, float]]


@dataclass(frozen=True)
class Design:
    """What is run and how it is decided."""

    gains: tuple[float, ...]  # true gain of each option over the baseline, as a fraction
    rounds: int = 5
    control: int = 2  # runs of the baseline per block
    scatter: float = 1.0  # spread of the options' starts relative to the baseline's
    minimum_gain: float = 0.05
    rule: str = "estimate"
    confidence: float = 0.95

    @cached_property
    def arms(self) -> dict[str, int]:
        """Arm -> rounds."""
        return {BASELINE: self.control * self.rounds} | {f"option{i}": self.rounds for i in range(len(self.gains))}

    @cached_property
    def blocks(self) -> dict[tuple[str, int], int]:
        """(arm, round) -> block."""
        number = interleave.count(self.arms)
        return {(arm, r): interleave.block(r, n, number) for arm, n in self.arms.items() for r in range(1, n + 1)}

    def place(self, arm: str, number: int) -> int:
        """Block of a run."""
        return self.blocks[arm, number]


def measure(design: Design, noise: Noise, rng: np.random.Generator) -> Values:
    """One experiment: every start in its interleaved order; arm -> round -> value."""
    order = interleave.plan(design.arms, int(rng.integers(1 << 30)))
    true = {BASELINE: 0.0} | {f"option{i}": math.log1p(gain) for i, gain in enumerate(design.gains)}
    values: Values = {arm: {} for arm in design.arms}
    scatter = np.array([1.0 if arm == BASELINE else design.scatter for arm, _ in order])
    for (arm, number), deviation in zip(order, noise.draw(rng, len(order), scatter), strict=True):
        values[arm][number] = 100.0 * math.exp(true[arm] + float(deviation))
    return values


def until(values: Values, design: Design, blocks: int) -> Values:
    """What exists after the first blocks."""
    return {arm: {r: v for r, v in rounds.items() if design.place(arm, r) <= blocks} for arm, rounds in values.items()}


@dataclass(frozen=True)
class Judged:
    """Verdict of every option and its comparison, by the functions that the decide stage uses."""

    verdicts: dict[str, str]
    found: dict[str, Comparison]


def decide(values: Values, design: Design, confidence: float, family: int | None = None) -> Judged:
    """Verdict of every option.

    Args:
        family: options that the error is shared among, when some have been dropped before.
    """
    where = design.place
    options = [arm for arm in values if arm != BASELINE]
    found: dict[str, Comparison] = {arm: compare(values, arm, BASELINE, confidence, where) for arm in options}
    tested = 1.0 if design.rule == "estimate" else 1.0 + design.minimum_gain
    raw = {arm: found[arm].p_value(tested) for arm in options}
    dropped = {f"dropped{i}": 1.0 for i in range((family or 0) - len(options))}
    adjusted = holm(raw | dropped)
    spread = own_spread(values[BASELINE], partial(where, BASELINE))
    verdicts = {
        arm: gain_verdict(
            found[arm],
            of_comparison(spread, found[arm], confidence, len(values[arm]), len(values[BASELINE])),
            adjusted[arm],
            design.minimum_gain,
            design.rule,
            confidence,
        )
        for arm in options
    }
    return Judged(verdicts, found)


def _result(arm: str, verdict: str) -> OptionResult:
    """An option without gates, as the status and the stopping rule read it."""
    goal = ObjectiveResult.model_construct(
        metric="rate", verdict=verdict, gain=0.0, gain_low=None, gain_high=None, noise=0.0, rounds_needed=2, needs=None
    )
    return OptionResult.model_construct(
        name=arm, title=text(arm, arm), arm=arm, state="measured", reason=None, violations=[], gates=[], objective=goal,
        eligible=verdict in ("better", "baseline"), p_value=None,
    )  # fmt: skip


@dataclass(frozen=True)
class Adaptive:
    """Outcome of one adaptive run: the option of the status line, options that some look called better, starts."""

    option: str | None
    better: frozenset[str]
    starts: int


def adaptive(values: Values, design: Design, first: int = 2) -> Adaptive:
    """Looks after every round from ``first``; the status and the stopping rule of the decide stage."""
    looks = list(range(first, design.rounds + 1))
    options = [arm for arm in values if arm != BASELINE]
    out: dict[str, OptionResult] = {}
    better: set[str] = set()
    used: set[tuple[str, int]] = set()
    arms: Sequence[str] = [BASELINE, *options]
    for now in looks:
        present = {arm: rounds for arm, rounds in until(values, design, now).items() if arm in arms}
        used |= {(arm, r) for arm, rounds in present.items() for r in rounds}
        confidence = look_confidence(looks, now, design.confidence)
        judged = decide(present, design, confidence, family=len(options))
        better |= {arm for arm, verdict in judged.verdicts.items() if verdict == "better"}
        out |= {arm: _result(arm, "worse") for arm, verdict in judged.verdicts.items() if verdict == "worse"}
        results = [_result(BASELINE, "baseline")]
        results += [out.get(arm) or _result(arm, judged.verdicts[arm]) for arm in options]

        def may_exceed(arm: str, other: str, now: Values = present, confidence: float = confidence) -> bool:
            high = compare(now, arm, other, confidence, design.place).log.high
            return high is None or math.expm1(min(high, 700.0)) > design.minimum_gain

        found, _ = status.decide(results, set(values), set(), design.minimum_gain, may_exceed)
        after = stopping.step(results, BASELINE, found.word == "Proposed", now, looks[-1], {}, None)
        if after.stop:
            return Adaptive(found.option, frozenset(better), len(used))
        arms = after.arms
    raise AssertionError("the last look stops")
