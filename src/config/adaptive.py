"""What an adaptive decision measures: its arms, their rounds at each look, and the specification of a look.

Pure functions of a validated configuration and of what the look before asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from adrbench.config import records, servers
from adrbench.config.decision import Decision
from adrbench.config.load import Run
from adrbench.decide.interleave import Order


def comparison(run: Run, adr: str) -> Decision:
    """The decision, which must be one that compares arms.

    Raises:
        ValueError: it is not in the configuration, or compares nothing.
    """
    found = run.decisions.get(adr)
    if not isinstance(found, Decision):
        able = [name for name, decision in run.decisions.items() if isinstance(decision, Decision)]
        raise ValueError(f"{adr!r} is no decision of this run that compares arms; there are {', '.join(able)}")
    return found


def option_arms(run: Run, adr: str) -> list[str]:
    """Arms that are measured for a decision: the baseline first, then those of options that may win here.

    An option that the platform cannot serve or whose arm breaks the decision's policy is decided without a measurement.
    With fewer than two options left there is nothing to compare, and no arm.
    """
    decision = comparison(run, adr)
    policy, served = decision.policy_for(run.platform.name), {arm.name: arm for arm in run.serving_arms()}
    declared = {arm.name for arm in run.platform.arms}
    first = [next((name for name in option.arms if name in declared), None) for option in decision.options]
    runnable = [name for name in first if name in served]
    if len(runnable) < 2:
        return []
    baseline = run.platform.baseline.name
    allowed = [name for name in runnable if name is not None and not run.violations(served[name], policy)]
    return list(dict.fromkeys([baseline, *allowed]))


def starts_per_round(run: Run, adr: str) -> dict[str, int]:
    """arm -> server starts per round; the baseline as often as the platform's file repeats it."""
    order = Order({arm.name: len(run.rounds(arm)) for arm in run.serving_arms()}, run.platform.serve.order_seed)
    baseline = run.platform.baseline.name
    return {arm: order.control if arm == baseline else 1 for arm in option_arms(run, adr)}


def rounds(run: Run, adr: str, look: int, before: Mapping[str, Any] | None) -> dict[str, int]:
    """arm -> rounds that exist at a look.

    Args:
        look: rounds of each arm that is still open.
        before: ``adaptive`` of the look before: its ``rounds``, and ``next``, the arms that it asks for; None at the
            first look.
    """
    each = starts_per_round(run, adr)
    if before is None:
        return {arm: look * starts for arm, starts in each.items()}
    return dict(before["rounds"]) | {arm: look * each[arm] for arm in before["next"] if arm in each}


def spec(run: Run, adr: str, look: int, evidence: dict[str, Any], previous: str | None) -> dict[str, Any]:
    """``AdaptiveSpec`` of a look (decide/adaptive.py)."""
    plan = comparison(run, adr).adaptive
    return {
        "platform": run.platform.name,
        "decide": records.decide(run, adr, evidence) | {"looks": plan.looks},
        "rounds": look,
        "previous": previous,
        "per_block": starts_per_round(run, adr),
        "devices": {arm: servers.devices(run, run.platform.arm(arm)) for arm in option_arms(run, adr)},
        "budget_minutes": run.main.budget_minutes or plan.budget_minutes,
    }
