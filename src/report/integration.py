"""Block A: each way of putting a backend into vLLM, as far as this platform exercised it."""

from __future__ import annotations

from adrbench.config.arm import Mechanism
from adrbench.report.context import Context, both
from adrbench.report.lookup import MISSING
from adrbench.report.statements import judged
from adrbench.report.team import Layer
from adrbench.report.view import NOT_MEASURED, Integration, Phrase, Shown, phrase


def _mechanism(context: Context, name: str) -> Mechanism | None:
    return next((m for m in context.spec.platform.integrate if m.name == name), None)


def exercised(mechanism: Mechanism | None) -> Shown:
    """What the platform file says to do."""
    if mechanism is None:
        return NOT_MEASURED
    if mechanism.blocked is not None:
        return Phrase("integrate.not_exercised")
    if mechanism.plugin is None:
        return phrase("integrate.flag", backend=mechanism.attention_backend or "")
    if mechanism.plugin.mechanism == "L2":
        return phrase("integrate.priority", backends=list(mechanism.plugin.priority))
    return phrase("integrate.register", backend=mechanism.plugin.backend or "")


def _plugin_active(context: Context, document: str, name: str) -> bool:
    reports = context.store.raw(document, "resolved", "plugin") or []
    return any(report.get("mechanism") == name for report in reports)


def state(context: Context, document: str, mechanism: Mechanism | None) -> tuple[Shown, Shown]:
    """(state, what it means) of one level, from its evidence."""
    store = context.store
    if not store.has(document):
        return NOT_MEASURED, Phrase("integrate.no_evidence")
    blocked = store.raw(document, "measured", "blocked")
    if blocked:
        return Phrase("integrate.blocked"), both(blocked)
    resolved = store.cell(document, "resolved", "attention_backend")
    if store.raw(document, "measured", "ignored"):
        return Phrase("integrate.ignored"), phrase("integrate.ignored_note", resolved=resolved)
    if mechanism and mechanism.plugin and not _plugin_active(context, document, mechanism.name):
        return Phrase("integrate.inactive"), Phrase("integrate.inactive_note")
    equal = store.cell(document, "measured", "answers_equal", unit="count")
    compared = store.cell(document, "measured", "answers_compared", unit="count")
    if not equal or not compared:
        return NOT_MEASURED, Phrase("integrate.no_evidence")
    if equal.amount == compared.amount:
        return Phrase("integrate.works"), phrase("integrate.works_note", resolved=resolved)
    return Phrase("integrate.differs"), phrase("integrate.differs_note", equal=equal, compared=compared)


def integration(context: Context, layer: Layer) -> Integration:
    document, store = f"integrate/{layer.name}", context.store
    mechanism = _mechanism(context, layer.name)
    word, note = state(context, document, mechanism)
    present = store.has(document)
    return Integration(
        layer=layer,
        judged=judged(context, layer.claims),
        exercised=exercised(mechanism),
        resolved=store.cell(document, "resolved", "attention_backend") if present else MISSING,
        equal=store.cell(document, "measured", "answers_equal", unit="count") if present else MISSING,
        compared=store.cell(document, "measured", "answers_compared", unit="count") if present else MISSING,
        state=word,
        note=note,
    )
