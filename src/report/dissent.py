"""What speaks against the verdict, and what would change it: from the decision's own intervals."""

from __future__ import annotations

from typing import Any

from adrbench.config.decision import Decision, Strategy
from adrbench.report import strategy
from adrbench.report.accuracy import delta
from adrbench.report.context import Context
from adrbench.report.facts import in_tier, in_words
from adrbench.report.lookup import Cell
from adrbench.report.serving import throughput_ratio
from adrbench.report.view import GateRow, OptionRow, Phrase, Shown, phrase
from adrbench.report.view_records import CheckCell


def _winner(context: Context) -> str | None:
    word, option = (context.store.raw("decide", "status", key) for key in ("word", "option"))
    return option if word == "Accepted" else None


def _in_unit(gate: GateRow, cell: Cell) -> Shown:
    """A gate's number with its unit, where the number does not show it."""
    return phrase("value.points", value=cell) if gate.metric == "accuracy_delta" and cell else cell


def _gate(gate: GateRow, key: str, **more: Shown) -> Phrase:
    values = {"value": _in_unit(gate, gate.value), "limit": _in_unit(gate, gate.limit)}
    return phrase(key, option=gate.option_title, gate=gate.words, tier=in_tier(gate.tier), **values, **more)


def _worse(context: Context, option: OptionRow, gates: list[GateRow]) -> list[Shown]:
    """Where the accepted option is worse than the baseline as measured, although every gate holds."""
    lines: list[Shown] = [
        _gate(gate, "dissent.slower")
        for gate in gates
        if gate.option == option.name and gate.metric.endswith("_ms") and gate.value and gate.value.amount > 1
    ]
    arm = option.arm or ""
    found = delta(context.store, arm)
    if found and found.amount > 0:
        lines.append(phrase("dissent.accuracy", option=option.title, delta=found))
    for tier in context.tiers:
        cell = throughput_ratio(context, arm, tier)
        if cell and cell.amount < 1:
            lines.append(phrase("dissent.throughput", option=option.title, tier=tier, relative=cell))
    return lines


def _obstacles(option: OptionRow) -> Shown:
    """Why an option that gains does not win: its gates, its policy, or the gain itself."""
    for verdict in ("failed", "undecided"):
        found = [option.gate_words[gate] for gate, word in option.gates.items() if word == verdict]
        if found:
            return phrase("summary.gates", verdict=Phrase(f"verdict.{verdict}"), gates=found)
    if option.violations:
        return phrase("dissent.policy", violations=option.violations)
    return Phrase(f"dissent.gain_{option.verdict or 'undecided'}")


def _rivals(options: list[OptionRow], metric: Phrase, baseline: str, chosen: str | None) -> list[Shown]:
    """Other options that are better than the baseline as measured."""
    return [
        phrase("dissent.rival", option=option.title, metric=metric, gain=option.gain, why=_obstacles(option))
        for option in options
        if option.name != chosen and option.arm not in (None, baseline) and option.gain and option.gain.amount > 0
    ]


def dissent(context: Context, options: list[OptionRow], gates: list[GateRow], checks: list[CheckCell]) -> list[Shown]:
    """Evidence against the verdict as it stands. Empty: none was measured."""
    if not isinstance(context.spec.decision, Decision):
        return in_words([row for row in checks if row.verdict != "passed"]) if _open(checks) else []
    chosen = _winner(context)
    lines: list[Shown] = []
    for option in options:
        if option.name == chosen and option.arm not in (None, context.baseline):
            lines += _worse(context, option, gates)
    metric = Phrase(f"metric.{context.spec.decision.objective.metric}")
    return lines + _rivals(options, metric, context.baseline, chosen)


def _open(checks: list[CheckCell]) -> bool:
    return any(row.verdict != "passed" for row in checks)


def _margin(gate: GateRow) -> float:
    """How near the bound that decides comes to the limit, as a share of the limit; small is near."""
    bound = gate.value.low if gate.metric == "completion" else gate.value.high
    if bound is None or not gate.limit:
        return 0.0
    return abs(gate.limit.amount - bound) / (abs(gate.limit.amount) or 1.0)


def _in_groups(gates: list[GateRow], verdict: str) -> list[Shown]:
    """One line for each gate with this verdict: its values over the tiers, and what would decide them."""
    groups: dict[tuple[str, Any], list[GateRow]] = {}
    for gate in gates:
        if gate.verdict == verdict:
            groups.setdefault((gate.gate, str(gate.needs)), []).append(gate)
    return [
        phrase(
            f"turning.{verdict}",
            option=rows[0].option_title,
            gate=rows[0].words,
            values=[phrase("turning.value", value=_in_unit(row, row.value), tier=in_tier(row.tier)) for row in rows],
            limit=_in_unit(rows[0], rows[0].limit),
            needs=rows[0].needs,
        )
        for rows in groups.values()
    ]


def _of_option(option: OptionRow, gates: list[GateRow], metric: Phrase, minimum: Cell) -> list[Shown]:
    """What would turn one measured option round."""
    own = [gate for gate in gates if gate.option == option.name]
    lines = _in_groups(own, "failed") + _in_groups([gate for gate in own if gate.needs], "undecided")
    passed = [gate for gate in own if gate.verdict == "passed"]
    if passed and not lines:
        lines.append(_gate(min(passed, key=_margin), "turning.nearest"))
    if option.gain:
        word = "turning.gain_kept" if option.verdict == "better" else "turning.gain"
        lines.append(phrase(word, option=option.title, metric=metric, gain=option.gain, minimum=minimum))
    return lines


def turning(context: Context, options: list[OptionRow], gates: list[GateRow], checks: list[CheckCell]) -> list[Shown]:
    """What would change the decision, the general case last."""
    lines: list[Shown] = []
    if isinstance(context.spec.decision, Decision):
        minimum = context.store.cell("decision", "objective", "minimum_gain", unit="fraction")
        metric = Phrase(f"metric.{context.spec.decision.objective.metric}")
        for option in options:
            if option.state == "measured" and option.arm != context.baseline:
                lines += _of_option(option, gates, metric, minimum)
            elif option.state != "measured" and option.reason:
                lines.append(phrase("turning.blocked", option=option.title, reason=option.reason))
    if isinstance(context.spec.decision, Strategy):
        lines += strategy.turning(options, context)
    for row in checks:
        side = Phrase(f"checks.{row.side}", {"limit": row.limit})
        lines.append(phrase("turning.check", title=row.title, tier=in_tier(row.tier), value=row.value, limit=side))
    return [*lines, Phrase("turning.always")]
