"""Every statement of a strategy about Δ, decided together: the chance that any of them is wrong stays as declared.

A statement is a scheme's gate, or a rule's premise about a sampled quantity. Each rests on an interval of its own; with
seventeen schemes one interval in twenty misses somewhere almost always. So a verdict stands only if it survives
Holm's procedure over all statements, two-sided, at the decision's error; one that does not is undecided. A
premise that asks what the gate asks (Δ of the same scheme against the same limit) is the same statement, not another.
"""

from __future__ import annotations

from collections.abc import Mapping

from adrbench.decide.multiplicity import holm
from adrbench.decide.premises import summary
from adrbench.decide.strategy_verdict import PremiseResult, RuleResult
from adrbench.decide.verdict import GateResult
from adrbench.decide.words import text

Statement = tuple[str, str, float]
"""What is asked, of which scheme, and the limit."""


def _of_gate(option: str, gate: GateResult) -> tuple[Statement, float] | None:
    if gate.p_met is None or gate.p_missed is None or gate.value is None:
        return None
    return ("delta", option, gate.limit), min(1.0, 2 * min(gate.p_met, gate.p_missed))


def _of_premise(rule: RuleResult, result: PremiseResult) -> tuple[Statement, float] | None:
    if result.p_value is None or result.option is None:
        return None
    name = result.quantity if result.quantity == "delta" else f"{rule.id} {result.quantity}"
    return (name, result.option, result.limit), result.p_value


def adjusted(gates: Mapping[str, list[GateResult]], rules: list[RuleResult]) -> dict[Statement, float]:
    """Holm-adjusted two-sided p value of every statement. ``gates``: by option."""
    found = [_of_gate(option, gate) for option, own in gates.items() for gate in own]
    found += [_of_premise(rule, result) for rule in rules for result in rule.results]
    raw: dict[Statement, float] = {}
    for one in found:
        if one is not None:
            raw[one[0]] = max(one[1], raw.get(one[0], 0.0))
    names = {str(statement): statement for statement in raw}
    return {names[name]: p for name, p in holm({str(s): p for s, p in raw.items()}).items()}


def corrected_gate(option: str, gate: GateResult, family: Mapping[Statement, float], error: float) -> GateResult:
    """A gate with its adjusted p value; undecided where the verdict does not survive."""
    own = _of_gate(option, gate)
    if own is None or gate.verdict == "undecided":
        return gate
    p_value = family[own[0]]
    side = "p_met" if gate.verdict == "passed" else "p_missed"
    gate = gate.model_copy(update={side: p_value / 2})
    if p_value <= error:
        return gate
    more = text(
        f"more sample pairs: its own interval decides, but not after Holm's correction over {len(family)} statements "
        f"(p {p_value:.3f})",
        f"更多样本对: 区间单独看已可判定, 但经 {len(family)} 项陈述的 Holm 校正后不成立 (p {p_value:.3f})",
    )
    return gate.model_copy(update={"verdict": "undecided", "needs": more})


def corrected_rule(rule: RuleResult, family: Mapping[Statement, float], error: float) -> RuleResult:
    """A rule whose premises are decided only where they survive."""
    results = []
    for result in rule.results:
        own = _of_premise(rule, result)
        if own is not None:
            p_value = family[own[0]]
            decided = result.verdict in ("holds", "refuted") and p_value > error
            word = "undecided" if decided else result.verdict
            result = result.model_copy(update={"p_value": p_value, "verdict": word})
        results.append(result)
    return rule.model_copy(update={"results": results, "verdict": summary(results)})
