"""The checklists of both ADRs: the state of each item, computed from evidence.

States: ``done`` (on the device the item asks for), ``done_here`` (exercised on this platform, which is not
that device), ``open``, ``blocked`` (this platform cannot), ``not_due``.
"""

from __future__ import annotations

from collections.abc import Callable

from adrbench.report.context import Context, both
from adrbench.report.doubts import doubts
from adrbench.report.lookup import MISSING, Cell, Source
from adrbench.report.team import Item
from adrbench.report.view import CheckRow, Phrase, Shown, phrase

Verdict = tuple[str, Shown]
AITER_FA = "ROCM_AITER_FA"
FP8_FORMATS = ("fp8_e4m3fn", "fp8_e4m3fnuz")
PER_HEAD = ("fp8_per_head", "fp8_e4m3_per_head", "fp8_e4m3fnuz_per_head")
KIVI = ("kivi4", "kivi2")
VARIABLE_CLAIM = "ADR0010-todo-variable"


def _done(context: Context) -> str:
    """``done`` where the verified device is a DCU, the device that the team's items ask for."""
    return "done" if context.store.raw("device", "resolved", "vendor") == "hygon" else "done_here"


def l1_prompt(context: Context) -> Verdict:
    document, store = "integrate/L1", context.store
    if not store.has(document):
        return "open", Phrase("integrate.no_evidence")
    if blocked := store.raw(document, "measured", "blocked"):
        return "blocked", both(blocked)
    resolved = store.cell(document, "resolved", "attention_backend")
    compared = store.cell(document, "measured", "answers_compared", unit="count")
    if store.raw(document, "measured", "ignored"):
        return "blocked", phrase("check.l1_ignored", resolved=resolved, compared=compared)
    return _done(context), phrase("check.l1", resolved=resolved, compared=compared)


def _arms_of(context: Context, backend: str) -> list[str]:
    return [arm.name for arm in context.spec.platform.arms if arm.attention_backend == backend]


def _smoke(context: Context, arm: str) -> Cell:
    """The resolved backend of an arm that served, or the text of its expected refusal; missing without either."""
    served = context.resolved(arm, "attention_backend") if arm in context.served_arms() else MISSING
    return served or context.store.cell(f"integrate/refusal-{arm}", "measured", "text")


def aiter_fa(context: Context) -> Verdict:
    arms = _arms_of(context, AITER_FA)
    if not arms:
        return "blocked", phrase("check.no_arm", backend=AITER_FA)
    refusal = context.store.cell(f"integrate/refusal-{arms[0]}", "measured", "text")
    if refusal:
        return _done(context), phrase("check.refused", text=refusal)
    served = _smoke(context, arms[0])
    return (_done(context), phrase("check.served", backend=served)) if served else ("open", Phrase("check.not_run"))


def kernels_fp8(context: Context) -> Verdict:
    store = context.store
    if not store.has("kernels"):
        return "open", Phrase("check.not_run")
    proved = [name for name in FP8_FORMATS if name in (store.raw("kernels", "measured", "proved") or [])]
    mode = store.cell("kernels", "measured", "mode")
    if proved and mode.value == "device":
        return _done(context), phrase("check.kernels_device", formats=list(proved))
    reasons = store.raw("kernels", "measured", "not_proved") or {}
    unproved = next(
        (store.cell("kernels", "measured", "not_proved", name) for name in FP8_FORMATS if name in reasons), MISSING
    )
    if proved:
        return "open", phrase("check.kernels_interpreter", formats=list(proved))
    return "open", phrase("check.kernels_unproved", reason=unproved)


def profile(context: Context) -> Verdict:
    names = context.store.names("profile/")
    if not names:
        return "open", Phrase("check.not_run")
    document = f"profile/{context.baseline}" if f"profile/{context.baseline}" in names else names[0]
    used = context.store.cell(document, "measured", "decode", "utilisation", unit="fraction")
    verdict = context.store.raw(document, "measured", "g06", "verdict")
    if not used or verdict is None:
        return "open", Phrase("check.not_run")
    return _done(context), phrase(
        "check.profile", used=used, verdict=doubts(context).verdict(Phrase(f"g06.{verdict}"), "bandwidth")
    )


def accuracy_schemes(context: Context) -> Verdict:
    compared = context.store.raw("decide", "accuracy") or {}
    schemes = {arm.name: arm.measures for arm in context.spec.platform.arms if arm.name in compared}
    if set(PER_HEAD) & set(schemes.values()) and set(KIVI) & set(schemes.values()):
        return _done(context), phrase("check.accuracy", arms=list(schemes))
    others = [name for name, scheme in schemes.items() if scheme and name != context.baseline]
    return "open", phrase("check.accuracy_others", arms=others) if others else Phrase("check.not_run")


def lock(context: Context) -> Verdict:
    if not context.store.has("decide"):
        return "open", Phrase("check.not_run")
    status = context.store.raw("decide", "status") or {}
    accepted = status.get("word") == "Accepted"
    return (_done(context) if accepted else "open"), phrase("check.lock", word=Phrase(f"status.{status.get('word')}"))


def l3_trigger(context: Context) -> Verdict:
    document, store = "integrate/L3", context.store
    equal = store.cell(document, "measured", "answers_equal", unit="count")
    compared = store.cell(document, "measured", "answers_compared", unit="count")
    if not equal:
        return "not_due", Phrase("check.l3_not_due")
    return "not_due", phrase("check.l3_ready", equal=equal, compared=compared)


def smoke_candidates(context: Context) -> Verdict:
    backends = [arm.attention_backend for arm in context.spec.platform.arms if arm.attention_backend]
    if not backends:
        return "blocked", Phrase("check.no_candidates")
    states: list[Shown] = []
    complete = True
    for backend in dict.fromkeys(backends):
        found = next((cell for arm in _arms_of(context, backend) if (cell := _smoke(context, arm))), MISSING)
        complete = complete and bool(found)
        states.append(phrase("check.smoke", backend=backend, found=found or Phrase("unverified")))
    return (_done(context) if complete else "open"), phrase("check.smokes", states=states)


def no_variable(context: Context) -> Verdict:
    """The claim that the variable does not exist, checked against vLLM's source."""
    verdict = context.store.raw("claims", "measured", "verdicts", VARIABLE_CLAIM, "verdict")
    if verdict is None:
        return "open", Phrase("check.no_claims")
    found = context.store.cell("claims", "measured", "verdicts", VARIABLE_CLAIM, "found")
    if verdict == "holds":
        return "done", phrase("check.claim_holds", found=found)
    return "open", phrase("check.claim_fails", word=Phrase(f"claim.{verdict}"), found=found)


def backfill(context: Context) -> Verdict:
    """The notes' statements by verdict: unverified ones are what is left to fill in."""
    counts = context.store.raw("claims", "measured", "counts")
    if counts is None:
        return "open", Phrase("check.no_claims")
    total = Cell(sum(counts.values()), "count", sources=(Source("claims", "measured.counts"),))
    left = context.store.cell("claims", "measured", "counts", "unverified", unit="count")
    if not left:
        return "done", phrase("check.backfilled", total=total)
    return "open", phrase("check.backfill", total=total, left=left)


CHECKS: dict[str, Callable[[Context], Verdict]] = {
    check.__name__: check
    for check in (
        l1_prompt,
        aiter_fa,
        kernels_fp8,
        profile,
        accuracy_schemes,
        lock,
        l3_trigger,
        smoke_candidates,
        no_variable,
        backfill,
    )
}


def rows(context: Context, items: list[Item]) -> list[CheckRow]:
    """State and evidence of each item, in the team's order."""
    found = []
    for item in items:
        state, shown = CHECKS[item.check](context)
        found.append(CheckRow(item, state, shown))
    return found
