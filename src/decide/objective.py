"""The objective: how much better than the baseline, beyond the noise and by enough to be worth a switch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from adrbench.config.section import Text
from adrbench.decide import words
from adrbench.decide.context import Context
from adrbench.decide.gates import FIRST_ROUNDS, HOW, more_rounds, rounds_text
from adrbench.decide.intervals import Comparison, Interval, add_tiers, compare, quantile
from adrbench.decide.multiplicity import holm
from adrbench.decide.noise import of_comparison, own_spread
from adrbench.decide.planning import NO_PLAN, Plan
from adrbench.decide.verdict import ObjectiveResult, ObjectiveVerdict
from adrbench.decide.words import text

# Its value follows from the configuration and the free memory; rounds that agree show no noise.
DETERMINISTIC = {"kv_pool_tokens", "kv_usable_tokens"}


@dataclass(frozen=True)
class Gain:
    """An arm's objective per round and its comparison with the baseline; ``missing`` where there is none."""

    values: dict[int, float]
    found: Comparison | None
    noise: float | None
    missing: Text | None = None


def per_round(context: Context, arm: str) -> dict[int, float] | Text:
    """Round -> objective, averaged over tiers by their weights (geometric mean); a text says what is missing."""
    metric = context.spec.decision.objective.metric
    return _per_round(context, arm, {tier: context.values(arm, tier, metric) for tier in context.tiers})


def of_floor(context: Context) -> tuple[dict[int, float], Callable[[int], int | None]] | None:
    """Round -> objective of every start of the baseline in the platform's noise floor, and their blocks."""
    if context.floor is None:
        return None
    metric = context.spec.decision.objective.metric
    values = {tier: context.floor.values.get(tier, {}).get(metric, {}) for tier in context.tiers}
    found = _per_round(context, context.baseline, values)
    return None if isinstance(found, Text) else (found, context.floor.blocks.get)


def _per_round(context: Context, arm: str, by_tier: Mapping[str, dict[int, float]]) -> dict[int, float] | Text:
    metric = context.spec.decision.objective.metric
    what = words.metric(metric)
    if metric == "kv_pool_tokens":
        # One server has one pool: every tier of a round reports the same.
        merged = {r: v for tier in context.tiers for r, v in by_tier[tier].items()}
        return merged or text(f"{what.en} of arm {arm}", f"arm {arm} 的{what.zh}")
    parts = []
    for tier in context.spec.tiers:
        values = by_tier[tier.name]
        if not values:
            return text(
                f"{what.en} of arm {arm} in tier {tier.name} (above 0)",
                f"arm {arm} 在 {tier.name} 档的{what.zh} (须大于 0)",
            )
        parts.append((tier.weight, values))
    complete = add_tiers(parts)
    return complete or text(f"a round of arm {arm} with all tiers", f"arm {arm} 包含全部档位的一轮")


def between(context: Context, arm: str, other: str) -> Gain:
    """Gain of ``arm`` over ``other``, with the A/A noise of ``other`` at the same numbers of rounds."""
    found = {name: per_round(context, name) for name in context.compared}
    for name in (arm, other):
        missing = found.get(name) or text(f"a measurement of arm {name}", f"arm {name} 的测量")
        if isinstance(missing, Text):
            return Gain({}, None, None, missing=missing)
    values = {name: rounds for name, rounds in found.items() if isinstance(rounds, dict)}
    deterministic = context.spec.decision.objective.metric in DETERMINISTIC
    compared = compare(values, arm, other, context.confidence, context.place, deterministic)
    if deterministic and len(set(values[other].values())) == 1:
        noise: float | None = 0.0
    else:
        stored = of_floor(context) if other == context.baseline else None
        rounds, block_of = stored or (values[other], partial(context.place, other))
        spread = own_spread(rounds, block_of)
        noise = of_comparison(spread, compared, context.confidence, len(values[arm]), len(values[other]))
    return Gain(values[arm], compared, noise)


def _level(values: Mapping[int, float], confidence: float, deterministic: bool) -> Interval:
    """Geometric mean over rounds and its t interval; open with one round."""
    logs = [math.log(value) for value in values.values()]
    mean = math.fsum(logs) / len(logs)
    if deterministic and len(set(logs)) == 1:
        value = next(iter(values.values()))
        return Interval(value, value, value)
    if len(logs) < 2 or len(set(logs)) == 1:
        return Interval(math.exp(mean), None, None)
    error = math.sqrt(sum((x - mean) ** 2 for x in logs) / (len(logs) - 1) / len(logs))
    half = quantile(confidence, len(logs) - 1) * error
    # With two very different rounds the half-width can exceed what a float can hold.
    return Interval(math.exp(mean), math.exp(max(mean - half, -700.0)), math.exp(min(mean + half, 700.0)))


def _basis(found: Comparison) -> Text:
    special = {
        "exact": text("the same in every round: no noise", "各轮完全相同: 无噪声"),
        "pooled": text(
            "one round of an arm: the spread between starts is that of the arms that were repeated",
            "某个 arm 只有一轮: 启动间的离散程度取自有重复的 arm",
        ),
        "point": text("no repeated round: the noise is unknown", "没有重复轮次: 噪声未知"),
    }
    if found.basis in special:
        return special[found.basis]
    en, zh = HOW[found.basis]
    return text(en.format(n=found.rounds), zh.format(n=found.rounds))


def gain_verdict(
    gain: Comparison, noise: float | None, p_value: float, minimum_gain: float, rule: str, confidence: float
) -> ObjectiveVerdict:
    """``better`` needs the minimum gain, the noise floor and the family's error rate, all three.

    The lower bound of a two-sided interval errs half as often as the interval; the adjusted p value is held
    against the whole error, because that is what all options together may err.

    Args:
        noise: gain that the baseline shows against itself; None: unknown, and nothing is better.
        p_value: adjusted for the family, of "the ratio is at most the tested one".
        rule: ``lower_bound`` or ``estimate`` (``DecideSpec.gain_rule``).
    """
    low, high, value = gain.log.low, gain.log.high, math.expm1(gain.log.value)
    enough = value >= minimum_gain if rule == "estimate" else low is not None and math.expm1(low) > minimum_gain
    if enough and noise is not None and value > noise and p_value <= 1 - confidence:
        return "better"
    if high is not None and math.expm1(min(high, 700.0)) <= minimum_gain:
        return "worse"
    return "undecided"


def _tested_ratio(context: Context) -> float:
    """The ratio that a better arm must exceed beyond doubt."""
    return 1.0 if context.spec.gain_rule == "estimate" else 1.0 + context.spec.decision.objective.minimum_gain


def _needs(context: Context, gain: Gain) -> tuple[Text, Plan]:
    """What would decide an undecided objective."""
    found = gain.found
    assert found is not None
    limit = math.log(_tested_ratio(context))
    if found.standard_error is None or gain.noise is None or found.basis == "pooled":
        return rounds_text(FIRST_ROUNDS, found.rounds)
    return more_rounds(found, limit, context.confidence)


def unmeasured(context: Context, reason: Text) -> ObjectiveResult:
    """The objective of an option without a measurement."""
    return ObjectiveResult(
        metric=context.spec.decision.objective.metric,
        value=None,
        low=None,
        high=None,
        gain=None,
        gain_low=None,
        gain_high=None,
        noise=None,
        p_value=None,
        verdict="undecided",
        basis=text("not measured", "未测量"),
        needs=reason,
    )


def _own(context: Context, values: dict[int, float]) -> Interval:
    return _level(values, context.confidence, context.spec.decision.objective.metric in DETERMINISTIC)


def of_baseline(context: Context) -> ObjectiveResult:
    """The baseline's own objective."""
    values = per_round(context, context.baseline)
    if isinstance(values, Text):
        return unmeasured(context, values).model_copy(update={"verdict": "baseline"})
    own = _own(context, values)
    return ObjectiveResult(
        metric=context.spec.decision.objective.metric, value=own.value, low=own.low, high=own.high,
        gain=0.0, gain_low=0.0, gain_high=0.0, noise=None, p_value=None, verdict="baseline",
        basis=text("the baseline itself", "baseline 本身"),
    )  # fmt: skip


def _fraction(log: float | None) -> float | None:
    return None if log is None else math.expm1(min(log, 700.0))


def evaluate(context: Context, arms: list[str], settled: int) -> tuple[dict[str, ObjectiveResult], dict[str, float]]:
    """The objective of every arm against the baseline, and the p values before Holm's correction over these arms.

    Args:
        settled: options that an earlier look put out; they stay in the family.
    """
    gains = {arm: between(context, arm, context.baseline) for arm in arms}
    ratio = _tested_ratio(context)
    raw = {arm: gain.found.p_value(ratio) for arm, gain in gains.items() if gain.found is not None}
    adjusted = holm(raw | {f"settled/{number}": 1.0 for number in range(settled)})
    results = {}
    for arm, gain in gains.items():
        if gain.found is None:
            results[arm] = unmeasured(context, gain.missing or text("a measurement", "测量"))
            continue
        own, log = _own(context, gain.values), gain.found.log
        verdict = gain_verdict(
            gain.found,
            gain.noise,
            adjusted[arm],
            context.spec.decision.objective.minimum_gain,
            context.spec.gain_rule,
            context.confidence,
        )
        needs, plan = _needs(context, gain) if verdict == "undecided" else (None, NO_PLAN)
        results[arm] = ObjectiveResult(
            metric=context.spec.decision.objective.metric,
            value=own.value,
            low=own.low,
            high=own.high,
            gain=_fraction(log.value),
            gain_low=_fraction(log.low),
            gain_high=_fraction(log.high),
            noise=gain.noise,
            p_value=adjusted[arm],
            verdict=verdict,
            basis=_basis(gain.found),
            needs=needs,
            rounds_needed=plan.rounds,
        )
    return results, raw


def may_exceed(context: Context, arm: str, other: str) -> bool:
    """Whether ``arm`` could still be better than ``other`` by more than the minimum gain."""
    found = between(context, arm, other).found
    if found is None or found.log.high is None:
        return True
    return math.expm1(found.log.high) > context.spec.decision.objective.minimum_gain
