"""What every part of a report needs: the specification, the documents, and the names in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from adrbench.config.arm import Arm
from adrbench.config.decision import Decision, Strategy
from adrbench.config.section import Text
from adrbench.report.lookup import Cell, Store, median
from adrbench.report.spec import Spec, serve_name


def both(text: Any) -> Text | str:
    """A text of a JSON document: a mapping of both languages, or one string for both."""
    if isinstance(text, dict) and {"en", "zh"} <= text.keys():
        return Text(en=str(text["en"]), zh=str(text["zh"]))
    return "" if text is None else str(text)


@dataclass(frozen=True)
class Context:
    spec: Spec
    store: Store

    @property
    def baseline(self) -> str:
        return self.spec.platform.baseline.name

    @property
    def tiers(self) -> list[str]:
        return [tier.name for tier in self.spec.platform.tiers]

    def arm(self, name: str) -> Arm | None:
        return next((arm for arm in self.spec.platform.arms if arm.name == name), None)

    def title(self, arm: str) -> Text | str:
        declared = self.arm(arm)
        return declared.title if declared and declared.title else arm

    def served_arms(self) -> list[str]:
        """Served arms that this decision is about (its options' and the baseline), the baseline first."""
        options = self.spec.decision.options if isinstance(self.spec.decision, Decision | Strategy) else []
        named = {arm for option in options for arm in option.arms} | {self.baseline}
        order = sorted(self.spec.platform.arms, key=lambda arm: not arm.baseline)
        return [
            arm.name
            for arm in order
            if arm.name in named and any(self.documents(arm.name, tier) for tier in self.tiers)
        ]

    def documents(self, arm: str, tier: str) -> list[str]:
        """Evidence of one arm in one tier, by round."""
        names = [serve_name(arm, number, tier) for number in self.spec.evidence.serve.get(arm, {})]
        return [name for name in names if self.store.has(name)]

    def over_rounds(self, arm: str, tier: str, *key: str, unit: str) -> Cell:
        """Median over the rounds of one arm in one tier."""
        return median([self.store.cell(name, *key, unit=unit) for name in self.documents(arm, tier)])

    def resolved(self, arm: str, key: str, unit: str = "number") -> Cell:
        """What vLLM resolved for an arm, from its first served tier."""
        for tier in self.tiers:
            for name in self.documents(arm, tier):
                return self.store.cell(name, "resolved", key, unit=unit)
        return self.store.cell(f"eval/{arm}", "resolved", key, unit=unit)
