"""The status line: Accepted, Proposed or Blocked, by one rule.

1. Fewer than two options can run on the platform: Blocked.
2. An option that passed all gates, meets the policy and is better than the baseline wins when no other
   option that is still open could exceed it by more than the minimum gain. Options within the minimum
   gain of each other count as equal: the first in the decision file wins. A stretch option wins only
   when every ordinary one is out.
3. When every other option is out (a gate failed, not better, or outside the policy), the baseline stays.
4. Otherwise Proposed, with what would decide it. Never a winner inside the noise.
"""

from __future__ import annotations

from collections.abc import Callable

from adrbench.config.section import Text
from adrbench.decide.verdict import GateResult, OptionResult, Status
from adrbench.decide.words import interval, join, names, percent, text

# (arm, other): could ``arm`` still exceed ``other`` by more than the minimum gain?
MayExceed = Callable[[str, str], bool]


def is_out(option: OptionResult) -> bool:
    """Whether an option that could run is decided not to win."""
    failed = any(gate.verdict == "failed" for gate in option.gates)
    return failed or bool(option.violations) or option.objective.verdict == "worse"


def why_out(option: OptionResult) -> Text:
    """The reason in a few words."""
    if option.violations:
        rules = names(v.rule for v in option.violations)
        return text(f"{option.name}: outside the policy ({rules})", f"{option.name}: 不符合约束 ({rules})")
    failed = [gate for gate in option.gates if gate.verdict == "failed"]
    if failed:
        which = names(f"{gate.id}{f' ({gate.tier})' if gate.tier else ''}" for gate in failed)
        return text(f"{option.name}: failed {which}", f"{option.name}: 未通过 {which}")
    goal = option.objective
    gain = f"{percent(goal.gain)} {interval(goal.gain_low, goal.gain_high)}"
    return text(f"{option.name}: gain {gain}, not enough", f"{option.name}: 增益 {gain}, 不足")


def _which(open_gates: list[GateResult]) -> str:
    """Gates with their tiers: "G01-TTFT (short, long), G01-Δ"."""
    tiers: dict[str, list[str]] = {}
    for gate in open_gates:
        tiers.setdefault(gate.id, []).extend([gate.tier] if gate.tier else [])
    return ", ".join(f"{gate} ({', '.join(where)})" if where else gate for gate, where in tiers.items())


def lacking(option: OptionResult) -> list[Text]:
    """What would decide an option that is still open, the greatest need of each kind."""
    if option.state != "measured":
        assert option.reason is not None
        return [text(f"{option.name}: {option.reason.en}", f"{option.name}: {option.reason.zh}")]
    name, goal = option.name, option.objective
    still_open = [gate for gate in option.gates if gate.verdict == "undecided"]
    by_rounds = [gate for gate in still_open if gate.rounds_needed is not None]
    by_pairs = [gate for gate in still_open if gate.pairs_needed is not None]
    others = [gate for gate in still_open if gate.rounds_needed is None and gate.pairs_needed is None]
    rounds, subjects = [gate.rounds_needed or 0 for gate in by_rounds], [_which(by_rounds)] if by_rounds else []
    if goal.verdict == "undecided" and goal.rounds_needed is not None:
        rounds, subjects = [*rounds, goal.rounds_needed], [*subjects, goal.metric]
    lines = []
    if rounds:
        n, what = max(rounds), ", ".join(subjects)
        en = f"{name}: about {n} rounds of the arm and the baseline ({what})"
        lines.append(text(en, f"{name}: 该 arm 与 baseline 各约 {n} 轮 ({what})"))
    for gate in by_pairs:
        en = f"{name}: about {gate.pairs_needed:,} more sample pairs ({gate.id})"
        lines.append(text(en, f"{name}: 约再增加 {gate.pairs_needed:,} 个样本对 ({gate.id})"))
    same: dict[tuple[str, str], list[GateResult]] = {}
    for gate in others:
        assert gate.needs is not None
        same.setdefault((gate.needs.en, gate.needs.zh), []).append(gate)
    for (en, zh), together in same.items():
        what = _which(together)
        lines.append(text(f"{name}: {en} ({what})", f"{name}: {zh} ({what})"))
    if not still_open and goal.verdict == "better" and not option.eligible and option.p_value is not None:
        en = f"{name}: more rounds: it passes and gains by itself, but as one of several options its p is "
        zh = f"{name}: 更多轮次: 单独看通过且有收益, 但作为多个选项之一, 其 p 为 "
        lines.append(text(f"{en}{option.p_value:.3f}", f"{zh}{option.p_value:.3f}"))
    if goal.verdict == "undecided" and goal.rounds_needed is None and goal.needs is not None:
        lines.append(text(f"{name}: {goal.needs.en} ({goal.metric})", f"{name}: {goal.needs.zh} ({goal.metric})"))
    return lines


def blocked(options: list[OptionResult], runnable: set[str]) -> Status:
    """The platform leaves nothing to compare: which options, and why, told once for each reason."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for option in options:
        if option.name not in runnable and option.reason is not None:
            reasons.setdefault((option.reason.en, option.reason.zh), []).append(option.name)
    told = join(text(f"{', '.join(which)}: {en}", f"{', '.join(which)}: {zh}") for (en, zh), which in reasons.items())
    can = names(option.name for option in options if option.name in runnable)
    en = f"only {can} can run on this platform" if can else "none of the options can run on this platform"
    zh = f"该平台只能运行 {can}" if can else "该平台无法运行任何一个选项"
    return Status(word="Blocked", option=None, text=text(f"{en}. {told.en}", f"{zh}. {told.zh}"))


def winner(options: list[OptionResult], stretch: set[str], may_exceed: MayExceed) -> OptionResult | None:
    """The option that displaces the baseline, if one does (rule 2)."""
    contenders = [option for option in options if option.objective.verdict != "baseline" and not is_out(option)]
    field = [option for option in contenders if option.name not in stretch] or contenders

    def beaten(rival: OptionResult, option: OptionResult) -> bool:
        if rival.arm is None or option.arm is None or rival.state != "measured":
            return False
        return not may_exceed(rival.arm, option.arm)

    for option in field:
        if option.eligible and all(beaten(rival, option) for rival in field if rival is not option):
            return option
    return None


def _accepted(option: OptionResult, minimum_gain: float) -> Status:
    goal = option.objective
    gain = f"{percent(goal.gain)} {interval(goal.gain_low, goal.gain_high)}"
    least, noise = f"{minimum_gain:.0%}", f"{goal.noise or 0.0:.1%}"
    return Status(
        word="Accepted",
        option=option.name,
        text=text(
            f"all gates passed; {goal.metric} {gain} against the baseline, above {least} and the A/A noise ({noise})",
            f"通过全部门槛; {goal.metric} 相对 baseline {gain}, 超过 {least} 且超过 A/A 噪声 ({noise})",
        ),
    )


def _baseline_stays(baseline: OptionResult, others: list[OptionResult]) -> Status:
    reasons = join(why_out(option) for option in others)
    return Status(
        word="Accepted",
        option=baseline.name,
        text=text(f"the baseline stays: {reasons.en}", f"保持 baseline: {reasons.zh}"),
    )


def _proposed(lines: list[Text]) -> Status:
    lines = lines or [text("the comparison of the options that beat the baseline", "优于 baseline 的各选项之间的比较")]
    missing = join(lines)
    return Status(
        word="Proposed", option=None, text=text(f"undecided; missing: {missing.en}", f"未定; 尚缺: {missing.zh}")
    )


def decide(
    options: list[OptionResult], runnable: set[str], stretch: set[str], minimum_gain: float, may_exceed: MayExceed
) -> tuple[Status, list[Text]]:
    """The status, and what is missing (empty unless Proposed).

    Args:
        options: in the decision file's order.
        runnable: names of the options that the platform can run, as declared.
    """
    if len(runnable) < 2:
        return blocked(options, runnable), []
    running = [option for option in options if option.name in runnable]
    baseline = next((option for option in running if option.objective.verdict == "baseline"), None)
    if baseline is None:
        lines = [text("a measurement of the baseline as one of the options", "作为选项之一的 baseline 的测量")]
        return _proposed(lines), lines
    best = winner(running, stretch, may_exceed)
    if best is not None:
        return _accepted(best, minimum_gain), []
    others = [option for option in running if option is not baseline]
    still_open = [option for option in others if not is_out(option)]
    if not still_open and not baseline.violations:
        return _baseline_stays(baseline, others), []
    lines = [line for option in still_open for line in lacking(option)]
    if not still_open:
        rules = names(v.rule for v in baseline.violations)
        lines = [text(f"an option that meets the policy: the baseline breaks {rules} and every other option is out",
                      f"符合约束的选项: baseline 违反 {rules}, 其他选项均已排除")]  # fmt: skip
    return _proposed(lines), lines
