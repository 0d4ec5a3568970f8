"""Which evidence a decision rests on: its own arms' and the stages that it names, and nothing else.

An arm that only ADR 0007 compares is not measured for ADR 0011. Pure functions of the configuration; the
paths themselves come from the workflow (``rules/common.smk``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from adrbench.config.arm import Arm
from adrbench.config.decision import Decision, Record, Strategy
from adrbench.config.platform import Platform

# The host and the model belong to every ADR.
ALWAYS = ("device", "model")
BY_ARM = ("serve", "eval")


def arms(decision: Record, platform: Platform) -> list[Arm]:
    """The arms that a decision is about, the baseline among them, in the platform's order.

    Of each option the first arm that the platform declares stands for it, as the decide stage takes it. A simulated
    KV scheme stands for nothing in a comparison of speeds: it has none of its own.
    """
    named = {platform.baseline.name}
    usable = {arm.name for arm in platform.arms if isinstance(decision, Strategy) or arm.kv_simulation is None}
    for option in decision.options if isinstance(decision, Decision | Strategy) else []:
        found = next((name for name in option.arms if name in usable), None)
        named |= {found} if found else set()
    return [arm for arm in platform.arms if arm.name in named]


def evidence(decision: Record, platform: Platform, everything: Mapping[str, Any]) -> dict[str, Any]:
    """Evidence paths of one decision, in the form of ``everything`` (all of the platform's, by stage).

    Refusals (``integrate/refusal-<arm>``) belong to the decision whose option the arm is.
    """
    mine = [arm.name for arm in arms(decision, platform)]
    wanted: dict[str, Any] = {}
    for stage, paths in everything.items():
        if stage in BY_ARM:
            wanted[stage] = {name: paths[name] for name in mine if name in paths} if stage in decision.stages else {}
        elif stage == "integrate":
            named = {f"refusal-{name}" for name in mine}
            mechanisms = {name for name in paths if not name.startswith("refusal-")}
            keep = named | (mechanisms if stage in decision.stages else set())
            wanted[stage] = {name: path for name, path in paths.items() if name in keep}
        elif stage == "profile":
            wanted[stage] = dict(paths) if stage in decision.stages else {}
        else:
            wanted[stage] = paths if stage in (*ALWAYS, *decision.stages) else None
    return wanted


def together(names: Iterable[str], decisions: Mapping[str, Record]) -> list[str]:
    """ADRs and those that are published along with them, each once."""
    found = list(names)
    for name in found:
        found += [other for other in (decisions[name].together if name in decisions else []) if other not in found]
    return found
