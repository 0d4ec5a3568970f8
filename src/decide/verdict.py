"""The document that a decide job writes, and the report reads: every number of an ADR's verdict.

It is derived, not measured: the same evidence gives the same document, byte for byte, so it holds no
time stamp. ``null`` as a bound means open: the data cannot bound that side.
"""

from __future__ import annotations

from typing import Literal

from adrbench.config.models import Text
from adrbench.decide.spec import Violation
from adrbench.decide.strategy_verdict import StrategyResult
from pydantic import BaseModel, ConfigDict, Field

SCHEMA_VERSION = 1

GateVerdict = Literal["passed", "failed", "undecided"]
ObjectiveVerdict = Literal["better", "worse", "undecided", "baseline"]


class Document(BaseModel):
    """Base of all parts: unknown keys are errors, NaN and infinity are refused."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class GateResult(Document):
    """One gate for one option (and tier). ``value`` is a ratio, points or a fraction, as ``limit`` is.

    ``basis`` says how the interval was made, ``needs`` what would decide an undecided gate: for short,
    ``rounds_needed`` (of the arm and the baseline, in all) or ``pairs_needed`` (more of samples).
    """

    id: str
    title: Text
    tier: str | None
    metric: str
    percentile: int | None
    value: float | None
    low: float | None
    high: float | None
    limit: float
    verdict: GateVerdict
    basis: Text
    needs: Text | None = None
    rounds_needed: int | None = None
    pairs_needed: int | None = None
    evidence: list[str]


class ObjectiveResult(Document):
    """The objective of one option; gains are fractions of the baseline.

    ``value`` is the arm's own, averaged over tiers and rounds. ``noise`` is the gain that the baseline
    shows against itself at the decision's confidence (None: never repeated), ``p_value`` Holm-adjusted
    over the options. ``worse`` means decided: not better by the minimum gain.
    """

    metric: str
    value: float | None
    low: float | None
    high: float | None
    gain: float | None
    gain_low: float | None
    gain_high: float | None
    noise: float | None
    p_value: float | None
    verdict: ObjectiveVerdict
    basis: Text
    needs: Text | None = None
    rounds_needed: int | None = None


class OptionResult(Document):
    """One option. ``absent``: not measured, or not comparable; ``blocked``: the platform cannot run it."""

    name: str
    title: Text
    arm: str | None
    state: Literal["measured", "blocked", "absent"]
    reason: Text | None
    violations: list[Violation]
    gates: list[GateResult]
    objective: ObjectiveResult
    eligible: bool


class McNemar(Document):
    """Pairs in which one side alone is right, and the exact p value of equality (``mcnemar.py``)."""

    baseline_only: int
    arm_only: int
    p_value: float
    binary: bool


class TaskDifference(Document):
    """Means (0-100) of one task, and baseline minus arm in points.

    ``task`` is its class: several lengths of one class share its weight in the mean.
    """

    task: str | None = None
    length_tokens: int | None = None
    mcnemar: McNemar | None = None

    baseline: float
    arm: float
    delta: float
    low: float
    high: float
    n: int


class MeanDifference(Document):
    """The mean over tasks, each task with the same weight."""

    delta: float
    low: float
    high: float
    pairs: int


class Accuracy(Document):
    """Accuracy of one arm against the baseline. ``more_pairs``: pairs that would decide the gate.

    None when it is decided, or when the measured difference is too near the limit to plan for.
    """

    tasks: dict[str, TaskDifference]
    mean: MeanDifference
    more_pairs: int | None
    exact_agreement: float


class Noise(Document):
    """The baseline against itself: the two rounds that differ most.

    ``ratio`` is b / a, ``sd`` the standard deviation of the logarithm over rounds, ``floor`` the
    difference (as a fraction) that one round against one would show at the decision's confidence; None when
    the repeats are too few to bound it.
    """

    a: float
    b: float
    ratio: float
    rounds: int
    sd: float
    floor: float | None


class Latency(Document):
    """Percentiles in ms: the geometric mean over rounds, and distribution-free bounds of P99."""

    p50: float
    p90: float
    p99: float
    p99_low: float | None
    p99_high: float | None
    requests: int | None
    rounds: int


class Confounded(Document):
    """A setting in which an arm differs from the baseline beside the one it was made for."""

    arm: str
    factor: str
    baseline: str
    value: str


class Run(Document):
    """One server start, in the order in which they really ran."""

    arm: str
    round: int
    started_at: str
    late: bool


class Drift(Document):
    """Change of a metric per hour over the run, as a fraction, the arms' own levels removed."""

    metric: str
    tier: str
    per_hour: float
    low: float
    high: float
    verdict: Literal["drift", "none seen"]


class Steady(Document):
    """Change of a request time from the first to the last request of a round, as a fraction, after the warm-up."""

    arm: str
    tier: str
    metric: str
    change: float
    low: float
    high: float
    rounds: int
    verdict: Literal["trend", "none seen"]


class Look(Document):
    """One of several planned looks, with the confidence of its intervals: together they keep the nominal one."""

    rounds: int
    planned: list[int]
    confidence: float


class Status(Document):
    """The status line."""

    word: Literal["Accepted", "Proposed", "Blocked"]
    option: str | None
    text: Text


class Verdict(Document):
    """The whole document."""

    schema_version: int = SCHEMA_VERSION
    decision: str
    platform: str
    policy: str
    confidence: float
    look: Look | None = None
    gain_rule: str
    baseline: str
    status: Status
    options: list[OptionResult]
    checks: list[GateResult] = Field([], description="of a record of facts: each check, ``metric`` its quantity")
    accuracy: dict[str, Accuracy]
    noise: dict[str, dict[str, Noise]]
    latency: dict[str, dict[str, dict[str, Latency]]]
    confounded: list[Confounded] = []
    order: list[Run] = []
    drift: list[Drift] = []
    steady: list[Steady] = []
    missing: list[Text] = []
    strategy: StrategyResult | None = None
    evidence: dict[str, str] = Field({}, description="SHA-256 of every evidence file that was read")
