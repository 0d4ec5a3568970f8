"""What a strategy adds to a verdict: every rule with its premise, every scheme with its place. See ``verdict.py``."""

from __future__ import annotations

from typing import Literal

from adrbench.config.section import Text
from pydantic import BaseModel, ConfigDict

PremiseVerdict = Literal["holds", "refuted", "undecided", "unmeasured"]
RuleVerdict = Literal["holds", "refuted", "mixed", "undecided", "unmeasured", "preference"]
Role = Literal["baseline", "must", "stretch", "other"]


class Part(BaseModel):
    """Base of all parts: unknown keys are errors, NaN and infinity are refused."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class PremiseResult(Part):
    """A rule's premise for one option. ``option`` None: the premise is about the model, not about an option.

    ``p_value``: two-sided, of "the verdict is wrong", Holm-adjusted over the statements of the decision; None for a
    quantity that is not sampled.
    """

    option: str | None
    quantity: str
    value: float | None
    low: float | None
    high: float | None
    limit: float
    side: Literal["at_least", "at_most"]
    verdict: PremiseVerdict
    p_value: float | None = None


class RuleResult(Part):
    """One rule on this architecture. ``verdict`` is the worst of its premises; ``preference``: it has none."""

    id: str
    title: Text
    effect: Literal["must", "stretch", "exclude"]
    options: list[str]
    premise: Text | None
    results: list[PremiseResult]
    verdict: RuleVerdict


class SchemeResult(Part):
    """One scheme's place. ``rank`` orders ``stretch`` options by Δ; ``reason`` says why it cannot win, if it cannot."""

    option: str
    arm: str | None
    role: Role
    excluded_by: list[str]
    lifted: list[str]
    gate: Literal["passed", "failed", "undecided"] | None
    memory_ratio: float | None
    rank: int | None = None
    eligible: bool
    reason: Text


class StrategyResult(Part):
    """Rules and schemes of one strategy on one architecture.

    ``statements``: how many statements about Δ were decided together (gates of all schemes and premises); their
    verdicts hold at the decision's confidence for all of them at once, the printed intervals each for itself.
    """

    arch: str
    statements: int
    limit: float
    memory_at_most: float
    rules: list[RuleResult]
    schemes: list[SchemeResult]
