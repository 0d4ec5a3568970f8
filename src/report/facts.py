"""A record of facts: what the host is, its checks, and published figures beside the baseline's."""

from __future__ import annotations

from adrbench.config.decision import Facts
from adrbench.report.context import Context, both
from adrbench.report.lookup import MISSING, Cell, ratio
from adrbench.report.view import Phrase, Shown, phrase
from adrbench.report.view_records import CheckCell, Fact, ReferenceRow, ReferenceTable

CHECK_UNITS = {
    "identified": "fraction",
    "fp8_self_check": "count",
    "weights_of_memory": "fraction",
    "tiers_of_kv_pool": "fraction",
    "rounds_measured": "count",
    "completion": "fraction",
    "reference_ratio": "ratio",
}
# Properties of the host, in the order of the table: key of the device's resolved settings.
PROPERTIES = ("name", "arch", "vendor", "driver", "runtime", "vllm", "torch", "vllm_platform_class")
LISTS = ("kv_cache_dtypes", "candidate_backends")


def stack(context: Context) -> list[Fact]:
    """What the host and its software turned out to be; what a platform does not have is left out."""
    store, rows = context.store, []
    for key in PROPERTIES:
        cell = store.cell("device", "resolved", key)
        if cell and cell.value != "":
            rows.append(Fact(Phrase(f"stack.{key}"), cell))
    count = store.raw("device", "measured", "devices") or []
    for index in range(len(count)):
        memory = store.cell("device", "measured", "devices", index, "memory_bytes", unit="bytes")
        rows.append(Fact(phrase("stack.memory", index=str(index)), memory))
    for key in LISTS:
        found = store.raw("device", "resolved", key) or []
        cells = [store.element("device", i, "resolved", key) for i in range(len(found))]
        if cells:
            rows.append(Fact(Phrase(f"stack.{key}"), phrase("stack.list", items=cells)))
    return rows


def checks(context: Context) -> list[CheckCell]:
    """Every check with its interval, verdict, and what would decide it."""
    decision, rows = context.spec.decision, []
    limits = {check.id: check for check in decision.checks} if isinstance(decision, Facts) else {}
    for index, result in enumerate(context.store.raw("decide", "checks") or []):
        unit, declared = CHECK_UNITS.get(result["metric"], "number"), limits.get(result["id"])
        at_most = declared is not None and declared.at_most == result["limit"]
        rows.append(
            CheckCell(
                id=result["id"],
                title=both(result["title"]),
                tier=result["tier"] or "",
                value=context.store.interval("decide", "checks", index, value="value", unit=unit),
                side="at_most" if at_most else "at_least",
                limit=context.store.cell("decide", "checks", index, "limit", unit=unit),
                verdict=result["verdict"],
                needs=both(result.get("needs")),
                basis=both(result["basis"]),
            )
        )
    return rows


def reference(context: Context) -> ReferenceTable | None:
    """Published figures by tier; None where the decision has none."""
    decision = context.spec.decision
    if not isinstance(decision, Facts) or decision.reference is None:
        return None
    compared = context.spec.platform.name in decision.reference.platforms
    rows = []
    for index, tier in enumerate(context.tiers):
        official: Cell = MISSING
        if index < len(decision.reference.tokens_per_s):
            official = context.store.element("decision", index, "reference", "tokens_per_s", unit="quoted_tokens_per_s")
        measured = context.over_rounds(context.baseline, tier, "measured", "output_tokens_per_s", unit="tokens_per_s")
        rows.append(ReferenceRow(tier, official, measured, ratio(measured, official) if compared else MISSING))
    return ReferenceTable(decision.reference.source, decision.reference.platforms, compared, rows)


def in_tier(tier: str) -> Shown:
    """A tier in brackets; nothing where a value is of no tier."""
    return phrase("checks.in_tier", tier=tier) if tier else ""


def numbers(context: Context) -> list[Shown]:
    """Of a record of the baseline: its output throughput in every tier."""
    decision = context.spec.decision
    if not isinstance(decision, Facts) or decision.subject != "baseline":
        return []
    values = [
        phrase("turning.value", value=rate, tier=in_tier(tier))
        for tier in context.tiers
        if (rate := context.over_rounds(context.baseline, tier, "measured", "output_tokens_per_s", unit="tokens_per_s"))
    ]
    return [phrase("summary.numbers", values=values)] if values else []


def in_words(rows: list[CheckCell]) -> list[Shown]:
    """One part for each check by its title: its values over the tiers, and the verdict; two where tiers disagree."""
    groups: dict[tuple[str, str], list[CheckCell]] = {}
    for row in rows:
        groups.setdefault((row.id, row.verdict), []).append(row)
    found: list[Shown] = [
        phrase(
            "checks.told",
            title=own[0].title,
            values=[phrase("turning.value", value=row.value, tier=in_tier(row.tier)) for row in own],
            verdict=Phrase(f"verdict.{verdict}"),
        )
        for (_, verdict), own in groups.items()
    ]
    return found or [Phrase("unverified")]
