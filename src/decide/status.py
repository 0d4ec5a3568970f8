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
from adrbench.decide import words
from adrbench.decide.verdict import GateResult, OptionResult, Status
from adrbench.decide.words import interval, join, metric, names, percent, text

# (arm, other): could ``arm`` still exceed ``other`` by more than the minimum gain?
MayExceed = Callable[[str, str], bool]


def is_out(option: OptionResult) -> bool:
    """Whether an option that could run is decided not to win."""
    failed = any(gate.verdict == "failed" for gate in option.gates)
    return failed or bool(option.violations) or option.objective.verdict == "worse"


def _of(option: OptionResult, what: Text) -> Text:
    """What is said of an option, after its title."""
    return text(f"{option.title.en}: {what.en}", f"{option.title.zh}: {what.zh}")


def why_out(option: OptionResult) -> Text:
    """The reason in a few words."""
    if option.violations:
        rules = names(v.rule for v in option.violations)
        return _of(option, text(f"outside the policy ({rules})", f"不符合约束 ({rules})"))
    failed = [gate for gate in option.gates if gate.verdict == "failed"]
    if failed:
        which = _which(failed)
        return _of(option, text(f"failed {which.en}", f"未通过 {which.zh}"))
    goal = option.objective
    what, gain = metric(goal.metric), f"{percent(goal.gain)} {interval(goal.gain_low, goal.gain_high)}"
    return _of(option, text(f"{what.en} {gain}, not enough", f"{what.zh} {gain}, 不足"))


def _which(gates: list[GateResult]) -> Text:
    """Gates in words, each with its tiers."""
    tiers: dict[tuple[str, str, int | None], list[str]] = {}
    for one in gates:
        tiers.setdefault((one.id, one.metric, one.percentile), []).extend([one.tier] if one.tier else [])
    return join((words.gate(*key, where) for key, where in tiers.items()), ", ", ", ")


def _for(what: Text, need: Text) -> Text:
    """What would decide something."""
    return text(f"for {what.en}, {need.en}", f"{what.zh}: {need.zh}")


def lacking(option: OptionResult) -> list[Text]:
    """What would decide an option that is still open, the greatest need of each kind; without its title."""
    if option.state != "measured":
        assert option.reason is not None
        return [option.reason]
    goal, still_open = option.objective, [gate for gate in option.gates if gate.verdict == "undecided"]
    by_rounds = [gate for gate in still_open if gate.rounds_needed is not None]
    by_pairs = [gate for gate in still_open if gate.pairs_needed is not None]
    others = [gate for gate in still_open if gate.rounds_needed is None and gate.pairs_needed is None]
    lines = _rounds(option, by_rounds)
    for gate in by_pairs:
        need = text(f"about {gate.pairs_needed:,} more sample pairs", f"约再增加 {gate.pairs_needed:,} 个样本对")
        lines.append(_for(_which([gate]), need))
    same: dict[tuple[str, str], list[GateResult]] = {}
    for gate in others:
        assert gate.needs is not None
        same.setdefault((gate.needs.en, gate.needs.zh), []).append(gate)
    lines += [_for(_which(together), text(en, zh)) for (en, zh), together in same.items()]
    if not still_open and goal.verdict == "better" and not option.eligible and option.p_value is not None:
        en = "more rounds: it passes and gains by itself, but as one of several options its p is "
        zh = "更多轮次: 单独看通过且有收益, 但作为多个选项之一, 其 p 为 "
        lines.append(text(f"{en}{option.p_value:.3f}", f"{zh}{option.p_value:.3f}"))
    if goal.verdict == "undecided" and goal.rounds_needed is None and goal.needs is not None:
        lines.append(_for(metric(goal.metric), goal.needs))
    return lines


def _rounds(option: OptionResult, gates: list[GateResult]) -> list[Text]:
    """Rounds that would decide these gates and, where rounds can, the objective; no line where none are planned."""
    goal, rounds, subjects = option.objective, [gate.rounds_needed or 0 for gate in gates], []
    if gates:
        subjects.append(_which(gates))
    if goal.verdict == "undecided" and goal.rounds_needed is not None:
        rounds.append(goal.rounds_needed)
        subjects.append(metric(goal.metric))
    if not rounds:
        return []
    n = max(rounds)
    need = text(f"about {n} rounds of the arm and the baseline", f"该 arm 与 baseline 各约 {n} 轮")
    return [_for(join(subjects, ", ", ", "), need)]


def all_lacking(options: list[OptionResult]) -> list[Text]:
    """What would decide each of these options; a need that several share is told once."""
    sharing: dict[tuple[str, str], list[OptionResult]] = {}
    for option in options:
        for need in lacking(option):
            sharing.setdefault((need.en, need.zh), []).append(option)
    return [
        text(f"{', '.join(o.title.en for o in those)}: {en}", f"{', '.join(o.title.zh for o in those)}: {zh}")
        for (en, zh), those in sharing.items()
    ]


def blocked(options: list[OptionResult], runnable: set[str]) -> Status:
    """The platform leaves nothing to compare: which options, and why, told once for each reason."""
    reasons: dict[tuple[str, str], list[OptionResult]] = {}
    for option in options:
        if option.name not in runnable and option.reason is not None:
            reasons.setdefault((option.reason.en, option.reason.zh), []).append(option)
    told = join(
        text(f"{', '.join(o.title.en for o in which)}: {en}", f"{', '.join(o.title.zh for o in which)}: {zh}")
        for (en, zh), which in reasons.items()
    )
    can = join((option.title for option in options if option.name in runnable), ", ", ", ")
    en = f"only {can.en} can run on this platform" if can.en else "none of the options can run on this platform"
    zh = f"该平台只能运行 {can.zh}" if can.zh else "该平台无法运行任何一个选项"
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
    what, least, noise = metric(goal.metric), f"{minimum_gain:.0%}", f"{goal.noise or 0.0:.1%}"
    return Status(
        word="Accepted",
        option=option.name,
        text=text(
            f"all gates passed; {what.en} {gain} against the baseline, above {least} and the A/A noise ({noise})",
            f"通过全部门槛; {what.zh} 相对 baseline {gain}, 超过 {least} 且超过 A/A 噪声 ({noise})",
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
    return Status(word="Proposed", option=None, text=text(f"missing: {missing.en}", f"尚缺: {missing.zh}"))


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
    lines = all_lacking(still_open)
    if not still_open:
        rules = names(v.rule for v in baseline.violations)
        lines = [text(f"an option that meets the policy: the baseline breaks {rules} and every other option is out",
                      f"符合约束的选项: baseline 违反 {rules}, 其他选项均已排除")]  # fmt: skip
    return _proposed(lines), lines
