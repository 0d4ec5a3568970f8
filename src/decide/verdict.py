"""The document that a decide job writes, and the report reads: every number of an ADR's verdict.

It is derived, not measured: the same evidence gives the same document, byte for byte, so it holds no
time stamp. ``null`` as a bound means open: the data cannot bound that side.
"""

from __future__ import annotations

from typing import Any, Literal

from adrbench.config.section import Text
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
    ``rounds_needed`` (of the arm and the baseline, in all) or ``pairs_needed`` (more of samples); ``requests_needed``
    (prompts of one start) where with fewer the percentile's upper bound stays open.

    ``p_met``: one-sided p value of "the limit is not met" (small: passed), ``p_missed`` of "the limit is met" (small:
    failed), Holm-adjusted over all gates, tiers and options; None for a count, which has no error.
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
    requests_needed: int | None = None
    p_met: float | None = None
    p_missed: float | None = None
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
    """One option. ``absent``: not measured, or not comparable; ``blocked``: the platform cannot run it.

    ``p_value``: of "some gate is not met, or there is no gain", Holm-adjusted over the options; an option wins only
    below the permitted error. ``decided_at``: rounds at the look of an adaptive run that put it out; its numbers are
    those of that look.
    """

    name: str
    title: Text
    arm: str | None
    state: Literal["measured", "blocked", "absent"]
    reason: Text | None
    violations: list[Violation]
    gates: list[GateResult]
    objective: ObjectiveResult
    eligible: bool
    p_value: float | None = None
    decided_at: int | None = None


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
    """The mean over tasks, each task with the same weight; p values as in ``paired.Difference``."""

    delta: float
    low: float
    high: float
    pairs: int
    p_over: float = 1.0
    p_under: float = 1.0


class Accuracy(Document):
    """Accuracy of one arm against the baseline. ``more_pairs``: pairs that would decide the gate.

    None when it is decided, or when the measured difference is too near the limit to plan for.
    """

    tasks: dict[str, TaskDifference]
    mean: MeanDifference
    more_pairs: int | None
    exact_agreement: float


class Elsewhere(Document):
    """Accuracy of another model, on a platform that has its real weights: for information, no gate reads it.

    Differences are to that platform's own baseline. ``same``: arms declared alike on both platforms; ``refused``:
    arm -> why its run is not compared.
    """

    platform: str
    title: Text
    baseline: str
    titles: dict[str, Text] = {}
    same: list[str] = []
    accuracy: dict[str, Accuracy]
    refused: dict[str, Text] = {}


class Noise(Document):
    """The baseline against itself: the two rounds that differ most, and all differences.

    ``ratio`` is b / a, ``sd`` the standard deviation of the logarithm over rounds, with ``df`` degrees of freedom,
    ``floor`` the difference (as a fraction) that one round against one would show at the decision's confidence; None
    when the repeats are too few to bound it. ``differences``: of two starts of one block each (``side_by_side``) or,
    where the baseline runs once in a block, of successive rounds, drift included; as fractions. ``least``: rounds of
    both arms -> gain that equal arms would show.
    """

    a: float
    b: float
    ratio: float
    rounds: int
    sd: float
    floor: float | None
    df: int = 0
    differences: list[float] = []
    side_by_side: bool = False
    least: dict[int, float | None] = {}


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
    """One server start, in the order in which they really ran.

    ``block`` holds what is compared side by side, ``planned`` is the place (from 1) that the recorded seed gave it,
    ``late``: it ran out of turn and is not paired.
    """

    arm: str
    round: int
    started_at: str
    late: bool
    block: int | None = None
    planned: int | None = None


class Order(Document):
    """The planned order of starts against the real one, from start times.

    ``seed`` shuffles each block. ``out_of_turn``: starts that did not keep their place among the runs that exist
    (the fewest that must move); ``blocks_mixed``: starts before the last of an earlier block. ``unpaired``: late ones.
    """

    seed: int
    starts: int
    blocks: int
    out_of_turn: int
    blocks_mixed: int
    unpaired: int
    text: Text


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


class Dropped(Document):
    """An option that a look put out, and why."""

    option: str
    arm: str | None
    reason: Text


class LookTaken(Document):
    """One look of an adaptive run: what was started for it, how sure it was, and what it decided."""

    rounds: int
    confidence: float
    starts: int
    minutes: float
    arms: list[str]
    dropped: list[Dropped]
    status: str


class AdaptiveRun(Document):
    """What an adaptive run measured, and what it saved against the full grid.

    Minutes are accelerator minutes of serving (minutes of a server x its devices); ``spent_minutes`` adds the accuracy
    runs and is what ``budget_minutes`` limits. The grid is every arm in every planned round; its minutes come
    from the mean of each arm's own starts. ``rounds``: arm -> rounds measured; ``next``: arms of the next round (empty:
    it has stopped); ``saved``: fraction of the grid's minutes. ``spec``: of this look (``adaptive.AdaptiveSpec``), from
    which, with the evidence, all looks can be taken again (``adaptive.replay``).
    """

    spec: dict[str, Any]

    planned: list[int]
    looks: list[LookTaken]
    stop: Literal["decided", "budget", "plan", "needs other evidence"] | None
    reason: Text
    rounds: dict[str, int]
    next: list[str]
    budget_minutes: float | None
    spent_minutes: float
    starts: int
    grid_starts: int
    minutes: float
    grid_minutes: float
    saved: float


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
    elsewhere: Elsewhere | None = None
    noise: dict[str, dict[str, Noise]]
    latency: dict[str, dict[str, dict[str, Latency]]]
    confounded: list[Confounded] = []
    order: list[Run] = []
    ordering: Order | None = None
    adaptive: AdaptiveRun | None = None
    drift: list[Drift] = []
    steady: list[Steady] = []
    missing: list[Text] = []
    strategy: StrategyResult | None = None
    evidence: dict[str, str] = Field({}, description="SHA-256 of every evidence file that was read")
