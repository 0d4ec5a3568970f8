"""The premises of the team's rules, as quantities of the evidence: does what a rule takes for granted hold here?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from adrbench.config.strategy import Premise, SchemeOption, TeamRule
from adrbench.decide import paired
from adrbench.decide.accuracy import Missing, by_class
from adrbench.decide.context import Context
from adrbench.decide.strategy_spec import Measured
from adrbench.decide.strategy_verdict import PremiseResult, PremiseVerdict, RuleResult, RuleVerdict
from adrbench.decide.verdict import Accuracy


@dataclass(frozen=True)
class Found:
    """A quantity's value and interval. ``p_value``: two-sided, of lying on the wrong side of the limit; None: exact."""

    value: float
    low: float
    high: float
    p_value: float | None = None


# From the verdict that weighs most in a summary of several options to the least.
ORDER: tuple[PremiseVerdict, ...] = ("undecided", "unmeasured")


@dataclass(frozen=True)
class Facts:
    """What premises are read from. ``arms``: option -> arm that measures it on this platform."""

    context: Context
    measured: Measured
    arms: Mapping[str, str]
    accuracy: Mapping[str, Accuracy | Missing]


def exact(value: float) -> Found:
    return Found(value, value, value)


def _limit(premise: Premise) -> float:
    limit = premise.at_least if premise.at_least is not None else premise.at_most
    assert limit is not None
    return limit


def _paired(facts: Facts, premise: Premise, ours: str, theirs: str) -> Found | None:
    """Scores of arm ``theirs`` minus those of arm ``ours``, pair by pair, held against the premise's limit."""
    mine, other = facts.measured.evals.get(ours), facts.measured.evals.get(theirs)
    if mine is None or other is None or isinstance(facts.accuracy.get(ours), Missing):
        return None
    tasks = mine.measured["tasks"]
    differences = {
        name: paired.differences(other.measured["tasks"][name]["scores"], task["scores"])
        for name, task in tasks.items()
    }
    found = paired.mean_interval(by_class(differences, tasks), facts.context.confidence, _limit(premise))
    return Found(found.value, found.low, found.high, min(1.0, 2 * min(found.p_over, found.p_under)))


def _delta(facts: Facts, premise: Premise, option: str) -> Found | None:
    return _paired(facts, premise, facts.arms.get(option, ""), facts.context.baseline)


def _delta_over(facts: Facts, premise: Premise, option: str) -> Found | None:
    """Δ of ``option`` minus Δ of ``against``: the scores of ``against`` minus those of ``option``."""
    return _paired(facts, premise, facts.arms.get(option, ""), facts.arms.get(premise.against or "", ""))


def _scale_bytes(facts: Facts, _premise: Premise, option: str) -> Found | None:
    layout = facts.measured.layout(facts.arms.get(option))
    return exact(layout["scale_bytes_per_token"]) if layout else None


def _wide_share(facts: Facts, premise: Premise, option: str) -> Found | None:
    layout = facts.measured.layout(facts.arms.get(option))
    value = layout.get("wide_share", {}).get(str(premise.length))
    return None if value is None else exact(value)


def _outlier_heads(facts: Facts, _premise: Premise, _option: str) -> Found | None:
    if facts.measured.calibrate is None:
        return None
    value = facts.measured.calibrate.measured.get("outliers", {}).get("head_share")
    return None if value is None else exact(float(value))


QUANTITIES: dict[str, Callable[[Facts, Premise, str], Found | None]] = {
    "delta": _delta,
    "delta_over": _delta_over,
    "scale_bytes_per_token": _scale_bytes,
    "wide_share": _wide_share,
    "outlier_head_share": _outlier_heads,
}


def verdict(found: Found | None, premise: Premise) -> PremiseVerdict:
    """Whether a premise holds: it needs the whole interval on its side, as a gate does."""
    if found is None:
        return "unmeasured"
    low, high = found.low, found.high
    if premise.at_least is not None:
        return "holds" if low >= premise.at_least else "refuted" if high < premise.at_least else "undecided"
    assert premise.at_most is not None
    return "holds" if high <= premise.at_most else "refuted" if low > premise.at_most else "undecided"


def held(facts: Facts, premise: Premise, option: str) -> PremiseResult:
    """One premise for one option."""
    found = QUANTITIES[premise.quantity](facts, premise, option)
    return PremiseResult(
        option=option,
        quantity=premise.quantity,
        value=found.value if found else None,
        low=found.low if found else None,
        high=found.high if found else None,
        limit=_limit(premise),
        side="at_least" if premise.at_least is not None else "at_most",
        verdict=verdict(found, premise),
        p_value=found.p_value if found else None,
    )


def summary(results: list[PremiseResult]) -> RuleVerdict:
    """A rule's verdict from those of its premises."""
    words = {result.verdict for result in results}
    if not results:
        return "preference"
    if len(words) == 1:
        return next(iter(words))
    return next((word for word in ORDER if word in words), "mixed")


def rule_result(facts: Facts, rule: TeamRule, options: list[SchemeOption], arch: str) -> RuleResult:
    """A rule with its premise held against the evidence of each of its options."""
    named = rule.named(options, arch)
    results = [held(facts, rule.premise, option) for option in named] if rule.premise else []
    return RuleResult(
        id=rule.id,
        title=rule.title,
        effect=rule.effect,
        options=named,
        premise=rule.premise.text if rule.premise else None,
        results=results,
        verdict=summary(results),
    )
