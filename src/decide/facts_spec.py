"""The specification of a facts job, and the evidence that its quantities are read from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from adrbench import specs
from adrbench.config.decision import Decision, Facts, Objective
from adrbench.config.measurement import Tier
from adrbench.config.platform import Device
from adrbench.config.section import Text
from adrbench.decide.records import TierRun, load_serve, load_single
from adrbench.decide.spec import ArmInfo, DecideSpec, EvidencePaths, TierInfo
from adrbench.evidence import Evidence
from pydantic import BaseModel, ConfigDict


class FactsSpec(BaseModel):
    """One facts job: the checks of one decision on one platform. ``declared`` is the platform's device section.

    ``baseline_title``: what records call the baseline; None: its name.
    """

    model_config = ConfigDict(extra="forbid")

    platform: str
    decision: Facts
    policy: str
    baseline: str
    baseline_title: Text | None = None
    declared: Device
    tiers: list[Tier]
    evidence: EvidencePaths

    def as_comparison(self) -> DecideSpec:
        """The baseline compared with nothing: what the noise and latency tables of a comparison are made from."""
        record = self.decision
        decision = Decision.model_construct(
            id=record.id,
            number=record.number,
            title=record.title,
            question=record.question,
            policy=record.policy,
            options=[],
            gates=[],
            objective=Objective(metric="output_tokens_per_s", minimum_gain=0.0),
            confidence=record.confidence,
        )
        return DecideSpec.model_construct(
            platform=self.platform,
            decision=decision,
            policy=self.policy,
            arms=[ArmInfo(name=self.baseline, baseline=True)],
            tiers=[TierInfo(name=tier.name, weight=tier.weight) for tier in self.tiers],
            evidence=self.evidence,
        )


def parse_facts(raw: dict[str, Any]) -> FactsSpec:
    """The validated specification.

    Raises:
        JobError: ``spec``, naming the key and what is wrong with it.
    """
    return specs.parse(FactsSpec, raw, "facts")


@dataclass(frozen=True)
class Evidences:
    """What was measured of the platform. ``baseline_runs``: round -> tier -> run. None: not measured."""

    spec: FactsSpec
    device: Evidence | None
    model: Evidence | None
    baseline_runs: dict[int, dict[str, TierRun]]

    def rounds(self, tier: str) -> list[TierRun]:
        return [tiers[tier] for _, tiers in sorted(self.baseline_runs.items()) if tier in tiers]

    def path(self, stage: str) -> str:
        return str(getattr(self.spec.evidence, stage))


def gather(spec: FactsSpec) -> Evidences:
    """Read the evidence that exists.

    Raises:
        JobError: ``evidence`` or ``bad-value``, naming file and key.
    """
    runs = load_serve(spec.as_comparison())
    return Evidences(
        spec, load_single(spec.evidence.device), load_single(spec.evidence.model), runs.get(spec.baseline, {})
    )


def named(found: Evidences) -> Text:
    """What an accepted status names: the device as it was probed, or the baseline arm."""
    if found.spec.decision.subject == "baseline" or found.device is None:
        return found.spec.baseline_title or Text(en=found.spec.baseline, zh=found.spec.baseline)
    name = f"{found.device.resolved['name']} ({found.device.resolved['arch']})"
    return Text(en=name, zh=name)
