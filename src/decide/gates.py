"""The gates of one option: passed, failed or undecided, each with its interval and what would decide it.

Non-inferiority: a gate is passed when its whole interval meets the limit, failed when none of it does. Read
together, the gates of all tiers and options are many chances to err: that *some* gate failed must hold under Holm's
correction over all of them (``together``). That *all* gates of an option passed is a conjunction, which needs
no correction over gates and tiers; over options it gets one (``options``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from adrbench.config.decision import Gate
from adrbench.config.section import Text
from adrbench.decide.accuracy import Missing
from adrbench.decide.context import Context
from adrbench.decide.intervals import Comparison, Spread, combine_within, compare, quantile
from adrbench.decide.multiplicity import holm
from adrbench.decide.percentiles import bounds, resting_ranks, values_to_close
from adrbench.decide.planning import MOST_ROUNDS, NO_PLAN, Plan, most_pairs, rounds_needed
from adrbench.decide.records import TierRun
from adrbench.decide.verdict import Accuracy, GateResult, GateVerdict
from adrbench.decide.words import text

# How an interval over rounds was made.
HOW = {
    "blocks": (
        "t interval of the log ratio over {n} blocks of rounds run side by side, noise from all arms",
        "对 {n} 组并列轮次的对数比值作 t 区间, 噪声由全部 arm 合并估计",
    ),
    "paired": (
        "Student's t of the log ratios of {n} blocks (this arm scatters more than the others)",
        "对 {n} 组轮次的对数比值作 t 区间 (该 arm 的离散程度大于其他 arm)",
    ),
    "unpaired": (
        "Welch's t of the log values of at least {n} rounds, not run side by side: drift is not removed",
        "对各至少 {n} 轮的对数值作 Welch t 区间, 各轮并非并列运行, 未消除漂移",
    ),
    "point": ("{n} rounds that do not differ at all: no interval", "{n} 轮数值完全相同: 无法给出区间"),
}


# Halving stops here when a p value is sought: no family of gates is so large that a smaller one would matter.
SMALLEST_P = 1e-6
# A spread with fewer degrees of freedom is too uncertain to plan with: three rounds come first, then a plan.
LEAST_DF = 4
FIRST_ROUNDS = 3
TOO_NEAR = text(
    f"too near its limit to be decided by more rounds (more than {MOST_ROUNDS} for this noise): a quieter host, more "
    "prompts in each tier, or another limit declared anew",
    f"离限值太近, 无法靠增加轮次判定 (以当前噪声需超过 {MOST_ROUNDS} 轮): 换用更安静的主机, 增加每档的 prompt 数, "
    "或重新声明限值",
)


@dataclass(frozen=True)
class Estimate:
    """An interval, how it was made, and what would decide a gate that it does not decide."""

    value: float | None
    low: float | None
    high: float | None
    basis: Text
    needs: Text
    plan: Plan = NO_PLAN
    p_met: float | None = 1.0
    p_missed: float | None = 1.0


def at_most(low: float | None, high: float | None, limit: float) -> GateVerdict:
    """Verdict of "the value is at most ``limit``"; open bounds decide nothing on their side."""
    if high is not None and high <= limit:
        return "passed"
    if low is not None and low > limit:
        return "failed"
    return "undecided"


def _rounds_text(found: Comparison, context: Context, percentile: int, requests: int) -> Text:
    statistic_en, statistic_zh = "", ""
    if percentile == 99:
        high, low = resting_ranks(requests, 99)
        which = f"{low}" if high == low else f"{low}-{high}"
        statistic_en = f"; P99 of {requests} requests rests on number {which} from the slowest"
        statistic_zh = f"; {requests} 个请求的 P99 只取决于第 {which} 慢的请求"
    how = HOW[found.basis if found.basis in HOW else "point"]
    level = f"{context.confidence:.0%}"
    return text(
        f"{how[0].format(n=found.rounds)}, {level}{statistic_en}",
        f"{how[1].format(n=found.rounds)}, 置信度 {level}{statistic_zh}",
    )


def more_rounds(found: Comparison, limit_log: float, confidence: float) -> tuple[Text, Plan]:
    """Rounds that would decide a comparison that rests on repeated rounds."""
    if found.standard_error is None:
        en = "rounds that differ: identical values are copies, not repeats"
        return text(en, "数值互不相同的重复轮次: 完全相同的数值是副本而不是重复测量"), NO_PLAN
    sd = found.standard_error * math.sqrt(found.rounds)
    needed = rounds_needed(limit_log - found.log.value, sd, confidence)
    if needed is None:
        return TOO_NEAR, NO_PLAN
    return rounds_text(max(needed, found.rounds + 1), found.rounds)


def rounds_text(needed: int, present: int) -> tuple[Text, Plan]:
    return text(
        f"about {needed} rounds of the arm and the baseline (now {present})",
        f"该 arm 与 baseline 各约 {needed} 轮 (现有 {present} 轮)",
    ), Plan(rounds=needed)


def _from_rounds(gate: Gate, context: Context, found: Comparison, requests: int) -> Estimate:
    ratio = found.ratio()
    assert gate.percentile is not None
    basis = _rounds_text(found, context, gate.percentile, requests)
    needs, plan = more_rounds(found, math.log(gate.limit), context.confidence)
    missed = found.p_value(gate.limit)
    unknown = found.standard_error is None and found.basis != "exact"
    return Estimate(ratio.value, ratio.low, ratio.high, basis, needs, plan, 1.0 if unknown else 1 - missed, missed)


def _one_start(gate: Gate, context: Context, tier: str, arm: TierRun, baseline: TierRun) -> Estimate:
    """A ratio from one start of each arm.

    The requests of one start give distribution-free bounds of each percentile; half of the permitted
    error goes to them and half to the spread between starts, which one start cannot show and which is
    taken from the arms that were repeated. Without any repeat the interval is open on both sides.
    """
    percent, error = gate.percentile, 1 - context.confidence
    assert percent is not None
    value = arm.latencies[gate.metric][percent] / baseline.latencies[gate.metric][percent]
    spread = context.spread(tier, f"{gate.metric}.p{percent}")
    samples = [run.per_request.get(gate.metric, []) for run in (arm, baseline)]
    low = high = None
    p_met = p_missed = 1.0
    if spread is not None and all(samples):
        known = spread

        def within(permitted: float) -> tuple[float | None, float | None]:
            between = quantile(1 - permitted / 2, known.df) * known.sd * math.sqrt(2)
            parts = [bounds(sample, percent, _level(permitted)) for sample in samples]
            return combine_within(parts[0], parts[1], min(between, 300.0))

        low, high = within(error)
        p_met, p_missed = _p_values(within, gate.limit, error)
    basis = _one_start_basis(spread is not None, percent, min(map(len, samples)), _level(error))
    needs, plan = _plan_from_one_start(math.log(value / gate.limit), spread, context.confidence)
    least, present = values_to_close(percent, _level(error)), min(map(len, samples))
    if spread is not None and present < least:
        needs = text(
            f"{needs.en}; or {least} prompts in one start (now {present}): with fewer the upper bound stays open",
            f"{needs.zh}; 或单次启动 {least} 个 prompt (现有 {present} 个): 更少时上界不闭合",
        )
        plan = replace(plan, requests=least)
    return Estimate(value, low, high, basis, needs, plan, p_met, p_missed)


def _level(error: float) -> float:
    """Level of each side's bound of each arm: half of the error, two arms, two sides."""
    return 1 - error / 8


def _p_values(
    within: Callable[[float], tuple[float | None, float | None]], limit: float, error: float
) -> tuple[float, float]:
    """One-sided p values (met, missed) of an interval that is known as a function of its error: half of the
    smallest error at which it still decides, to a factor of 2; 1 where it does not decide at the permitted error."""
    verdict = at_most(*within(error), limit)
    if verdict == "undecided":
        return 1.0, 1.0
    smallest = error
    while smallest > SMALLEST_P and at_most(*within(smallest / 2), limit) == verdict:
        smallest /= 2
    return (smallest / 2, 1.0) if verdict == "passed" else (1.0, smallest / 2)


def _plan_from_one_start(margin: float, spread: Spread | None, confidence: float) -> tuple[Text, Plan]:
    """Rounds that would decide, by the spread of the arms that were repeated, if they say enough about it."""
    if spread is None or spread.df < LEAST_DF:
        return text(
            f"at least {FIRST_ROUNDS} rounds of the arm and the baseline (now 1)",
            f"该 arm 与 baseline 各至少 {FIRST_ROUNDS} 轮 (现有 1 轮)",
        ), Plan(rounds=FIRST_ROUNDS)
    planned = rounds_needed(margin, spread.sd * math.sqrt(2), confidence)
    return (TOO_NEAR, NO_PLAN) if planned is None else rounds_text(planned, 1)


def _one_start_basis(repeated: bool, percent: int, requests: int, level: float) -> Text:
    if not repeated:
        return text(
            "one server start of each arm and none repeated: the spread between starts is unknown, so is the interval",
            "各 arm 只启动一次且均无重复: 启动间的离散程度未知, 区间无法给出",
        )
    closing = values_to_close(percent, level)
    open_en, open_zh = "", ""
    if requests < closing:
        open_en = f"; below {closing} requests the upper bound of P{percent} is open"
        open_zh = f"; 少于 {closing} 个请求时 P{percent} 的上界不闭合"
    return text(
        f"one server start: distribution-free bounds of P{percent} from the order statistics of {requests} requests, "
        f"widened by the spread between starts of the arms that were repeated{open_en}",
        f"单次启动: 由 {requests} 个请求的次序统计量给出 P{percent} 的无分布界, "
        f"再按有重复的 arm 的启动间离散程度放宽{open_zh}",
    )


def _absent(tier: str) -> Estimate:
    lacking = text(
        f"a measurement of tier {tier} for the arm and the baseline", f"该 arm 与 baseline 在 {tier} 档的测量"
    )
    return Estimate(None, None, None, text("not measured", "未测量"), lacking)


def _latency(gate: Gate, context: Context, arm: str, tier: str) -> Estimate:
    ours, base = context.rounds(arm, tier), context.rounds(context.baseline, tier)
    if not ours or not base:
        return _absent(tier)
    if min(len(ours), len(base)) == 1:
        number = min(set(ours) & set(base), default=None)
        pair = [rounds[min(rounds) if number is None else number] for rounds in (ours, base)]
        return _one_start(gate, context, tier, pair[0], pair[1])
    metric = f"{gate.metric}.p{gate.percentile}"
    found = compare(context.all_values(tier, metric), arm, context.baseline, context.confidence, context.place)
    return _from_rounds(gate, context, found, ours[min(ours)].completed)


def _completion(context: Context, arm: str, tier: str) -> Estimate:
    """Fraction of the measured requests that completed: a count of what was asked, not a sample of more."""
    rounds = context.rounds(arm, tier).values()
    completed, failed = sum(run.completed for run in rounds), sum(run.failed for run in rounds)
    if not completed + failed:
        return _absent(tier)
    sent = completed + failed
    value = completed / sent
    basis = text(
        f"count: {completed} of {sent} requests of the accepted rounds; an incomplete round is rejected by its job",
        f"计数: 被接受轮次的 {sent} 个请求中完成 {completed} 个; 不完整的轮次会被其作业拒绝",
    )
    return Estimate(value, value, value, basis, basis, p_met=None, p_missed=None)


def _too_near(pairs: int) -> Text:
    most = most_pairs(pairs)
    return text(
        f"too near its limit to be decided by more samples (more than {most:,} pairs, now {pairs:,}): a larger model, "
        "another mix of tasks, or another margin declared anew",
        f"离限值太近, 无法靠增加样本判定 (需超过 {most:,} 个样本对, 现有 {pairs:,} 个): 换用更大的模型, 调整任务组合, "
        "或重新声明限值",
    )


def _accuracy(accuracy: Accuracy | Missing, confidence: float) -> Estimate:
    if isinstance(accuracy, Missing):
        return Estimate(None, None, None, accuracy.basis, accuracy.reason)
    mean, more = accuracy.mean, accuracy.more_pairs
    basis = text(
        f"bootstrap of {mean.pairs} sample pairs, tasks weighted equally, guarded by the score range, {confidence:.0%}",
        f"对 {mean.pairs} 个样本对作 bootstrap, 各任务等权, 以分数范围的端点作保护值, 置信度 {confidence:.0%}",
    )
    if more is None:
        needs = _too_near(mean.pairs)
    else:
        needs = text(
            f"about {more:,} more sample pairs (now {mean.pairs})", f"约再增加 {more:,} 个样本对 (现有 {mean.pairs} 个)"
        )
    return Estimate(mean.delta, mean.low, mean.high, basis, needs, Plan(pairs=more), mean.p_under, mean.p_over)


def _result(gate: Gate, tier: str | None, found: Estimate, paths: list[str]) -> GateResult:
    if gate.metric != "completion":
        verdict = at_most(found.low, found.high, gate.limit)
    elif found.value is None:
        verdict = "undecided"
    else:
        verdict = "passed" if found.value >= gate.limit else "failed"
    still_open = verdict == "undecided"
    return GateResult(
        id=gate.id,
        title=gate.title,
        tier=tier,
        metric=gate.metric,
        percentile=gate.percentile,
        value=found.value,
        low=found.low,
        high=found.high,
        limit=gate.limit,
        verdict=verdict,
        basis=found.basis,
        needs=found.needs if still_open else None,
        rounds_needed=found.plan.rounds if still_open else None,
        pairs_needed=found.plan.pairs if still_open else None,
        requests_needed=found.plan.requests if still_open else None,
        p_met=found.p_met,
        p_missed=found.p_missed,
        evidence=paths,
    )


def evaluate(context: Context, arm: str, accuracy: Accuracy | Missing) -> list[GateResult]:
    """Every gate of the decision for one arm, per tier where the gate is one of serving."""
    results = []
    for gate in context.spec.decision.gates:
        if gate.metric == "accuracy_delta":
            named = context.spec.evidence.eval
            paths = [named[name] for name in (context.baseline, arm) if name in context.evals]
            results.append(_result(gate, None, _accuracy(accuracy, context.confidence), paths))
            continue
        for tier in context.tiers:
            found = (
                _completion(context, arm, tier) if gate.metric == "completion" else _latency(gate, context, arm, tier)
            )
            arms = [arm] if gate.metric == "completion" else [context.baseline, arm]
            paths = [run.path for name in arms for run in context.rounds(name, tier).values()]
            results.append(_result(gate, tier, found, paths))
    return results


def together(gates: Mapping[str, list[GateResult]], error: float, settled: int) -> dict[str, list[GateResult]]:
    """The gates of all options with Holm-adjusted p values of failure; a failure that does not survive is open.

    Args:
        gates: option -> its gates; a count (completion) has no error and stays as it is.
        error: permitted in all, two-sided; a gate errs by missing on one side only.
        settled: gates of options that an earlier look put out, which stay in the family.
    """
    raw = {
        f"{option}/{place}": gate.p_missed
        for option, found in gates.items()
        for place, gate in enumerate(found)
        if gate.p_missed is not None
    }
    adjusted = holm(raw | {f"settled/{number}": 1.0 for number in range(settled)})
    return {
        option: [
            _corrected(gate, adjusted[f"{option}/{place}"], error, len(raw) + settled)
            if gate.p_missed is not None
            else gate
            for place, gate in enumerate(found)
        ]
        for option, found in gates.items()
    }


def _corrected(gate: GateResult, p_missed: float, error: float, family: int) -> GateResult:
    gate = gate.model_copy(update={"p_missed": p_missed})
    if gate.verdict != "failed" or p_missed <= error / 2:
        return gate
    # Its own interval decides, but not as one of so many: the same evidence once more is the least that could.
    more = text(
        f"more evidence: the interval misses the limit, but not after Holm's correction over {family} gates "
        f"(p {p_missed:.3f})",
        f"更多证据: 区间单独看不满足限值, 但经 {family} 项门槛的 Holm 校正后不成立 (p {p_missed:.3f})",
    )
    return gate.model_copy(update={"verdict": "undecided", "needs": more})
