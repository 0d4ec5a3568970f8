"""Marks on the cells of the team's tables: which of a cell's statements hold, and what is the case instead.

``cells.yaml`` says which claims a cell rests on; the verdicts and corrected values come from the claims
job's evidence. Nothing is marked as right that was not checked: without evidence every mark says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from adrbench.report.context import Context, both
from adrbench.report.view import Phrase, Shown

CELLS = Path(__file__).with_name("cells.yaml")
# What a mark says at a glance; the words stand in the footnote.
SIGNS = {"holds": "✓", "false": "✗", "imprecise": "≈", "moved": "→", "unverified": "?"}
REFUTED = ("false", "imprecise", "moved")


@dataclass(frozen=True)
class Note:
    """The verdict on one statement of a cell; ``instead`` is what is the case, or what a verdict needs."""

    claim: str
    verdict: str
    instead: Shown
    where: str
    checked: bool = True

    @property
    def sign(self) -> str:
        return SIGNS[self.verdict]

    @property
    def refuted(self) -> bool:
        """Whether the corrected value belongs beside the statement."""
        return self.verdict in REFUTED and bool(self.instead)


@cache
def declared() -> dict[str, dict[str, list[str]]]:
    """Claims by cell, by ADR."""
    return dict(yaml.safe_load(CELLS.read_text(encoding="utf-8")))


def _instead(entry: dict[str, Any]) -> Shown:
    if entry["verdict"] == "unverified":
        return both(entry.get("needs")) or both(entry.get("found"))
    if entry["verdict"] in REFUTED:
        return both(entry.get("corrected")) or both(entry.get("found"))
    return ""


def note(context: Context, claim: str) -> Note:
    """The verdict on one claim; unverified where the claims were not checked."""
    entry = context.store.raw("claims", "measured", "verdicts", claim)
    if entry is None:
        return Note(claim, "unverified", Phrase("claims.unchecked"), "", checked=False)
    return Note(claim, entry["verdict"], _instead(entry), str(entry.get("where") or ""))


def notes(context: Context) -> dict[str, list[Note]]:
    """Notes by cell, of every ADR's tables: a report shows those of its own."""
    return {
        cell: [note(context, claim) for claim in claims]
        for cells in declared().values()
        for cell, claims in cells.items()
    }
