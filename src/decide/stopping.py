"""When an adaptive run stops, and what it measures next. Pure functions of the options' results.

After each look the options that are out (a gate failed, not better, outside the policy) are dropped: they get no
further round, and what put them out stands. The others and the baseline get another round while it can change
something. Stopping and dropping follow from intervals at the look's own confidence (``sequential``), so that the
repeated looks together err no more than one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from adrbench.decide.status import is_out
from adrbench.decide.verdict import OptionResult

Stop = Literal["decided", "budget", "plan", "needs other evidence"]


@dataclass(frozen=True)
class Step:
    """What follows a look: ``stop`` is None while ``arms`` (the baseline first) get another round."""

    stop: Stop | None
    arms: tuple[str, ...] = ()


def wants_rounds(option: OptionResult) -> bool:
    """Whether more rounds could decide something about an option: its objective or a gate of serving."""
    if option.objective.verdict == "undecided":
        return True
    if not option.eligible and all(gate.verdict == "passed" for gate in option.gates):
        # It passes by itself, but not yet as one of several.
        return True
    return any(gate.verdict == "undecided" and gate.metric != "accuracy_delta" for gate in option.gates)


def step(
    options: Sequence[OptionResult],
    baseline: str,
    proposed: bool,
    rounds: int,
    most: int,
    next_minutes: Mapping[str, float],
    left_minutes: float | None,
) -> Step:
    """What follows a look.

    Args:
        proposed: the decision is still open.
        rounds: rounds at this look, of ``most`` planned.
        next_minutes: accelerator minutes that one more round of an arm is expected to take.
        left_minutes: of the budget; None without one.
    """
    if not proposed:
        return Step("decided")
    still_open = [o for o in options if o.state == "measured" and o.objective.verdict != "baseline" and not is_out(o)]
    # Two options that both beat the baseline are told apart by rounds, too.
    if not any(map(wants_rounds, still_open)) and sum(option.eligible for option in still_open) < 2:
        return Step("needs other evidence")
    if rounds >= most:
        return Step("plan")
    arms = tuple(dict.fromkeys([baseline, *(option.arm for option in still_open if option.arm)]))
    if left_minutes is not None and sum(next_minutes.get(arm, 0.0) for arm in arms) > left_minutes:
        return Step("budget")
    return Step(None, arms)
