"""The premises of the team's rules, as quantities of the evidence: does what a rule takes for granted hold here?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from adrbench.config.strategy import Premise, SchemeOption, TeamRule
from adrbench.decide import paired
from adrbench.decide.accuracy import Missing, by_class
from adrbench.decide.context import Context
from adrbench.decide.strategy_spec import Measured
from adrbench.decide.strategy_verdict import PremiseResult, PremiseVerdict, RuleResult
from adrbench.decide.verdict import Accuracy

# value, low, high
Interval = tuple[float, float, float]
# From the verdict that weighs most in a summary of several options to the least.
ORDER: tuple[PremiseVerdict, ...] = ("undecided", "unmeasured")


@dataclass(frozen=True)
class Facts:
    """What premises are read from. ``arms``: option -> arm that measures it on this platform."""

    context: Context
    measured: Measured
    arms: Mapping[str, str]
    accuracy: Mapping[str, Accuracy | Missing]


def exact(value: float) -> Interval:
    return value, value, value


def _delta(facts: Facts, _premise: Premise, option: str) -> Interval | None:
    found = facts.accuracy.get(facts.arms.get(option, ""))
    return (found.mean.delta, found.mean.low, found.mean.high) if isinstance(found, Accuracy) else None


def _delta_over(facts: Facts, premise: Premise, option: str) -> Interval | None:
    """Δ of ``option`` minus Δ of ``against``: the scores of ``against`` minus those of ``option``, pair by pair."""
    evals = facts.measured.evals
    ours, theirs = (evals.get(facts.arms.get(name, "")) for name in (option, premise.against or ""))
    if ours is None or theirs is None or isinstance(facts.accuracy.get(facts.arms[option]), Missing):
        return None
    tasks = ours.measured["tasks"]
    differences = {
        name: paired.differences(theirs.measured["tasks"][name]["scores"], task["scores"])
        for name, task in tasks.items()
    }
    found = paired.mean_interval(by_class(differences, tasks), facts.context.confidence)
    return found.value, found.low, found.high


def _scale_bytes(facts: Facts, _premise: Premise, option: str) -> Interval | None:
    layout = facts.measured.layout(facts.arms.get(option))
    return exact(layout["scale_bytes_per_token"]) if layout else None


def _wide_share(facts: Facts, premise: Premise, option: str) -> Interval | None:
    layout = facts.measured.layout(facts.arms.get(option))
    value = layout.get("wide_share", {}).get(str(premise.length))
    return None if value is None else exact(value)


def _outlier_heads(facts: Facts, _premise: Premise, _option: str) -> Interval | None:
    if facts.measured.calibrate is None:
        return None
    value = facts.measured.calibrate.measured.get("outliers", {}).get("head_share")
    return None if value is None else exact(float(value))


QUANTITIES: dict[str, Callable[[Facts, Premise, str], Interval | None]] = {
    "delta": _delta,
    "delta_over": _delta_over,
    "scale_bytes_per_token": _scale_bytes,
    "wide_share": _wide_share,
    "outlier_head_share": _outlier_heads,
}


def verdict(found: Interval | None, premise: Premise) -> PremiseVerdict:
    """Whether a premise holds: it needs the whole interval on its side, as a gate does."""
    if found is None:
        return "unmeasured"
    _, low, high = found
    if premise.at_least is not None:
        return "holds" if low >= premise.at_least else "refuted" if high < premise.at_least else "undecided"
    assert premise.at_most is not None
    return "holds" if high <= premise.at_most else "refuted" if low > premise.at_most else "undecided"


def held(facts: Facts, premise: Premise, option: str) -> PremiseResult:
    """One premise for one option."""
    found = QUANTITIES[premise.quantity](facts, premise, option)
    value, low, high = found or (None, None, None)
    limit = premise.at_least if premise.at_least is not None else premise.at_most
    assert limit is not None
    return PremiseResult(
        option=option,
        quantity=premise.quantity,
        value=value,
        low=low,
        high=high,
        limit=limit,
        side="at_least" if premise.at_least is not None else "at_most",
        verdict=verdict(found, premise),
    )


def rule_result(facts: Facts, rule: TeamRule, options: list[SchemeOption], arch: str) -> RuleResult:
    """A rule with its premise held against the evidence of each of its options."""
    named = rule.named(options, arch)
    results = [held(facts, rule.premise, option) for option in named] if rule.premise else []
    words = {result.verdict for result in results}
    if not results:
        summary = "preference"
    elif len(words) == 1:
        summary = next(iter(words))
    else:
        summary = next((word for word in ORDER if word in words), "mixed")
    return RuleResult(
        id=rule.id,
        title=rule.title,
        effect=rule.effect,
        options=named,
        premise=rule.premise.text if rule.premise else None,
        results=results,
        verdict=summary,
    )
