"""The verdict of a record of facts: every check on the platform, and what follows when one fails.

Accepted when all pass; Blocked when one fails that the platform cannot do without; Proposed while one
is undecided, or fails in a way that has to be cleared up. The checks' intervals decide as gates do.
"""

from __future__ import annotations

from adrbench.config.decision import Check
from adrbench.config.section import Text
from adrbench.decide import schedule
from adrbench.decide.context import Context
from adrbench.decide.facts_spec import Evidences, FactsSpec, gather, named
from adrbench.decide.gates import at_most
from adrbench.decide.latency import table as latency_table
from adrbench.decide.noise import table as noise_table
from adrbench.decide.quantities import QUANTITIES, Row
from adrbench.decide.records import digests
from adrbench.decide.verdict import GateResult, GateVerdict, Status, Verdict
from adrbench.decide.words import join, text


def at_least(low: float | None, high: float | None, limit: float) -> GateVerdict:
    """Verdict of "the value is at least ``limit``"; open bounds decide nothing on their side."""
    if low is not None and low >= limit:
        return "passed"
    if high is not None and high < limit:
        return "failed"
    return "undecided"


def _result(check: Check, row: Row, limit: float, verdict: GateVerdict) -> GateResult:
    return GateResult(
        id=check.id,
        title=check.title,
        tier=row.tier,
        metric=check.quantity,
        percentile=None,
        value=row.value,
        low=row.low,
        high=row.high,
        limit=limit,
        verdict=verdict,
        basis=row.basis,
        needs=row.needs if verdict == "undecided" else None,
        evidence=row.files,
    )


def checked(check: Check, rows: list[Row]) -> list[GateResult]:
    """One result for each row and each side that the check limits."""
    results = []
    for row in rows:
        if check.at_least is not None:
            results.append(_result(check, row, check.at_least, at_least(row.low, row.high, check.at_least)))
        if check.at_most is not None:
            results.append(_result(check, row, check.at_most, at_most(row.low, row.high, check.at_most)))
    return results


def _told(result: GateResult) -> Text:
    where = f" ({result.tier})" if result.tier else ""
    return text(f"{result.id}{where}: {result.title.en}", f"{result.id}{where}: {result.title.zh}")


def _lacking(result: GateResult) -> Text:
    told, needs = _told(result), result.needs or text("more evidence", "更多证据")
    return text(f"{told.en}: {needs.en}", f"{told.zh}: {needs.zh}")


def status_of(found: Evidences, results: list[GateResult]) -> tuple[Status, list[Text]]:
    """The status, and what is missing (empty when Accepted)."""
    severity = {check.id: check.on_failure for check in found.spec.decision.checks}
    failed = [result for result in results if result.verdict == "failed"]
    barring = [_told(result) for result in failed if severity[result.id] == "blocked"]
    if barring:
        why = join(barring)
        return Status(word="Blocked", option=None, text=text(f"failed: {why.en}", f"不满足: {why.zh}")), barring
    unclear = [_told(result) for result in failed]
    lacking = [_lacking(result) for result in results if result.verdict == "undecided"]
    if unclear or lacking:
        open_points = join(unclear + lacking)
        en, zh = f"undecided; to clear up: {open_points.en}", f"未定; 待澄清: {open_points.zh}"
        return Status(word="Proposed", option=None, text=text(en, zh)), unclear + lacking
    checks = len({result.id for result in results})
    en, zh = f"all {checks} checks passed", f"{checks} 项检查全部通过"
    return Status(word="Accepted", option=named(found).en, text=text(en, zh)), []


def judge(spec: FactsSpec) -> Verdict:
    """The whole document of a record of facts."""
    found = gather(spec)
    results = [r for check in spec.decision.checks for r in checked(check, QUANTITIES[check.quantity](found))]
    status, lacking = status_of(found, results)
    comparison = spec.as_comparison()
    context = Context(comparison, {spec.baseline: found.baseline_runs} if found.baseline_runs else {}, {})
    context.blocks = schedule.blocks(spec.evidence.serve)
    return Verdict(
        decision=spec.decision.id,
        platform=spec.platform,
        policy=spec.policy,
        confidence=spec.decision.confidence,
        gain_rule="none",
        baseline=spec.baseline,
        status=status,
        options=[],
        checks=results,
        accuracy={},
        noise=noise_table(context),
        latency=latency_table(context),
        missing=lacking,
        evidence=digests(comparison),
    )
