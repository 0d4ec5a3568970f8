"""What a kernel check case is, and how its outcome is judged.

A case runs one kernel on fresh random input and compares it with a torch reference. It names the
*primitives* it rests on (a cast, a load, a dot, an atomic of one format). A primitive is probed on
its own by a kernel too small to be wrong. In the interpreter a primitive that fails shows what the
interpreter cannot prove, so the cases above it are ``not-provable``, neither proved nor failed. On a
device a primitive that computes wrongly is a failure; one that the compiler rejects, or dies on,
is a capability that the platform lacks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

Status = Literal["proved", "failed", "not-provable"]


@dataclass(frozen=True)
class Case:
    """One check. ``run`` takes a torch device name and returns the error, compared with ``tolerance``."""

    op: str
    format: str
    case: str
    run: Callable[[str], float]
    tolerance: float = 0.0
    needs: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        return f"{self.op}:{self.format}:{self.case}"


@dataclass(frozen=True)
class Outcome:
    """The judged result of one case; ``reason`` is empty when proved."""

    op: str
    format: str
    case: str
    status: Status
    error: float | None
    tolerance: float
    reason: str = ""

    @property
    def id(self) -> str:
        return f"{self.op}:{self.format}:{self.case}"

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def _outcome(case: Case, status: Status, error: float | None, reason: str) -> Outcome:
    finite = error if error is not None and math.isfinite(error) else None
    return Outcome(case.op, case.format, case.case, status, finite, case.tolerance, reason)


def judge(case: Case, error: float | None, problem: str, interpreted: bool) -> Outcome:
    """Outcome of a case that ran: ``error`` when it returned, ``problem`` when it raised or died."""
    primitive = case.op == "primitive"
    if problem:
        status: Status = "not-provable" if primitive else "failed"
        return _outcome(case, status, None, problem)
    if error is None or not error <= case.tolerance:  # NaN fails too
        wrong = f"error {error} is above the tolerance {case.tolerance}"
        if primitive and interpreted:
            return _outcome(case, "not-provable", error, f"the interpreter computes it wrongly ({wrong})")
        return _outcome(case, "failed", error, wrong)
    return _outcome(case, "proved", error, "")


def blocked(case: Case, outcomes: Mapping[str, Outcome]) -> Outcome | None:
    """The outcome of a case whose primitives are not there, or None when it may run."""
    for need in case.needs:
        primitive = outcomes.get(f"primitive:{need}")
        if primitive is None:
            raise KeyError(f"{case.id}: primitive {need!r} was not probed")
        if primitive.status != "proved":
            number_format, _, operation = need.partition(":")
            return _outcome(case, "not-provable", None, f"rests on {operation} of {number_format}: {primitive.reason}")
    return None


def summarise(outcomes: list[Outcome]) -> tuple[list[str], dict[str, str]]:
    """(formats proved in every case, {format not proved: its first reason, and what is proved of it}).

    A format with one unproved case is not proved: a store that nobody could check is not made good
    by a load that passed.
    """
    proved, not_proved = [], {}
    for name in sorted({outcome.format for outcome in outcomes}):
        own = [outcome for outcome in outcomes if outcome.format == name]
        gap = next((outcome for outcome in own if outcome.status != "proved"), None)
        if gap is None:
            proved.append(name)
            continue
        held = list(dict.fromkeys(_subject(o) for o in own if o.status == "proved"))
        lost = {_subject(o) for o in own if o.status != "proved"}
        rest = [subject for subject in held if subject not in lost]
        reason = f"{_subject(gap)}: {gap.reason}"
        not_proved[name] = f"{reason}; proved: {', '.join(rest)}" if rest else reason
    return proved, not_proved


def _subject(outcome: Outcome) -> str:
    """What a case is about, without its shape: ``store``, ``load``, ``dot``, ``scaled product``."""
    if outcome.op == "primitive":
        return outcome.case
    if outcome.op in ("store", "decode"):
        return outcome.case.partition(" ")[0]
    return outcome.case.partition(",")[0]
