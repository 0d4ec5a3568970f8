"""The specification of a strategy job, and the evidence that its rules are held against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from adrbench import specs
from adrbench.config.decision import Decision, Gate, Objective, Strategy
from adrbench.config.section import Text
from adrbench.decide.records import load_eval, load_single
from adrbench.decide.spec import ArmInfo, DecideSpec, EvidencePaths, Violation
from adrbench.evidence import Evidence
from pydantic import BaseModel, ConfigDict


class StrategySpec(BaseModel):
    """One strategy job: the rules of one decision on one platform. ``arch`` is the declared architecture."""

    model_config = ConfigDict(extra="forbid")

    platform: str
    decision: Strategy
    policy: str
    baseline: str
    arch: str
    arms: list[ArmInfo]
    violations: dict[str, list[Violation]] = {}
    evidence: EvidencePaths
    random_weights: bool = False
    several_hosts: bool = False

    def as_comparison(self) -> DecideSpec:
        """The accuracy gate as a comparison has it, with nothing served."""
        record = self.decision
        gate = Gate(
            id="G01-Δ",
            title=Text(
                en=f"accuracy loss at most {record.limit:g} points", zh=f"精度损失不超过 {record.limit:g} 个百分点"
            ),
            metric="accuracy_delta",
            limit=record.limit,
        )
        decision = Decision.model_construct(
            id=record.id,
            number=record.number,
            title=record.title,
            question=record.question,
            policy=record.policy,
            options=[],
            gates=[gate],
            objective=Objective(metric="kv_pool_tokens", minimum_gain=1 / record.memory_at_most - 1),
            confidence=record.confidence,
            delta=record.delta,
        )
        return DecideSpec.model_construct(
            platform=self.platform,
            decision=decision,
            policy=self.policy,
            arms=self.arms,
            tiers=[],
            evidence=self.evidence,
            random_weights=self.random_weights,
            several_hosts=self.several_hosts,
        )


def parse_strategy(raw: dict[str, Any]) -> StrategySpec:
    """The validated specification.

    Raises:
        JobError: ``spec``, naming the key and what is wrong with it.
    """
    return specs.parse(StrategySpec, raw, "strategy")


@dataclass(frozen=True)
class Measured:
    """Evidence of a strategy: accuracy runs by arm, memory and calibration documents (None: not made)."""

    evals: dict[str, Evidence]
    memory: Evidence | None
    calibrate: Evidence | None

    def layout(self, arm: str | None) -> dict[str, Any]:
        """``layout`` of an arm's scheme in the memory evidence; empty where there is none."""
        found = self.memory.measured["arms"].get(arm) if self.memory and arm else None
        return dict(found["layout"]) if found else {}

    def pool(self, arm: str | None) -> dict[str, Any]:
        """``pool`` of an arm, measured or computed; empty where there is none."""
        found = self.memory.measured["arms"].get(arm) if self.memory and arm else None
        return dict(found["pool"]) if found and found["pool"] else {}


def gather(spec: StrategySpec) -> Measured:
    """Read the evidence that exists.

    Raises:
        JobError: ``evidence`` or ``bad-value``, naming file and key.
    """
    found = load_eval(spec.as_comparison())
    return Measured(found, load_single(spec.evidence.memory), load_single(spec.evidence.calibrate))
