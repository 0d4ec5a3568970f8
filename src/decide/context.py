"""What every rule of a decision reads: the specification, the evidence, and which rounds pair up."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from adrbench.decide.intervals import Spread, pooled_spread
from adrbench.decide.records import Runs, TierRun, by_round
from adrbench.decide.sequential import look_confidence
from adrbench.decide.spec import DecideSpec
from adrbench.decide.verdict import Noise
from adrbench.evidence import Evidence
from adrbench.job import JobError


class Floor(Protocol):
    """What is needed of ``noise_floor.NoiseFloor``, which imports this module's users."""

    blocks: dict[int, int]
    values: dict[str, dict[str, dict[int, float]]]
    noise: dict[str, dict[str, Noise]]


@dataclass
class Context:
    """Evidence of one decide job.

    ``refused``: arm -> why it is not compared; ``dropped``: arms that an earlier look put out. ``blocks``:
    (arm, round) -> block of runs that were measured side by side; ``unpaired``: arm -> rounds that were not.
    ``floor``: the platform's noise floor, where it is evidence of its own (``noise_floor.NoiseFloor``).
    """

    spec: DecideSpec
    runs: Runs
    evals: dict[str, Evidence]
    integrations: dict[str, Evidence] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    dropped: set[str] = field(default_factory=set)
    unpaired: dict[str, set[int]] = field(default_factory=dict)
    blocks: dict[tuple[str, int], int] = field(default_factory=dict)
    floor: Floor | None = None

    @property
    def baseline(self) -> str:
        return self.spec.baseline

    @property
    def confidence(self) -> float:
        """Confidence of every interval: the decision's, or this look's share where it is looked at repeatedly."""
        if not self.spec.looks or not self.runs:
            return self.spec.decision.confidence
        try:
            return look_confidence(self.spec.looks, self.blocks_present, self.spec.decision.confidence)
        except ValueError as error:
            raise JobError("spec", f"decide specification: looks: {error}") from None

    @property
    def blocks_present(self) -> int:
        """Greatest block that the baseline has completed."""
        return max((self.blocks[self.baseline, number] for number in self.runs.get(self.baseline, {})), default=0)

    @property
    def option_arms(self) -> set[str]:
        """Arms that the decision's options name."""
        return {arm for option in self.spec.decision.options for arm in option.arms}

    @property
    def compared(self) -> list[str]:
        """Arms that are compared: neither refused nor put out by an earlier look."""
        return [arm for arm in self.runs if arm not in self.refused and arm not in self.dropped]

    @property
    def tiers(self) -> list[str]:
        return [tier.name for tier in self.spec.tiers]

    def rounds(self, arm: str, tier: str) -> dict[int, TierRun]:
        """Rounds of an arm that have this tier."""
        return {r: tiers[tier] for r, tiers in sorted(self.runs.get(arm, {}).items()) if tier in tiers}

    def values(self, arm: str, tier: str, metric: str) -> dict[int, float]:
        """Round -> value of a metric named as in ``records.METRICS``."""
        return by_round(self.runs, arm, tier, metric)

    def all_values(self, tier: str, metric: str) -> dict[str, dict[int, float]]:
        """arm -> round -> value, of all arms that are compared."""
        return {arm: self.values(arm, tier, metric) for arm in self.compared}

    def spread(self, tier: str, metric: str) -> Spread | None:
        """Spread between starts, pooled over all comparable arms that were repeated."""
        return pooled_spread([list(rounds.values()) for rounds in self.all_values(tier, metric).values()])

    def place(self, arm: str, number: int) -> int | None:
        """Block of a run; None for one that was not measured beside the others."""
        return None if number in self.unpaired.get(arm, set()) else self.blocks[arm, number]
