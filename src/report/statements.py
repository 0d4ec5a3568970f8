"""The team's statements and the verdicts of the claim checks on them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import yaml
from adrbench.report.context import Context, both
from adrbench.report.lookup import Cell, Source
from adrbench.report.view import ClaimRow, Claims, Phrase, Shown, phrase

# Verdicts that a reader must act on, the gravest first.
REFUTED = ("false", "imprecise", "moved")
WORDS = ("holds", *REFUTED, "unverified")


def _verdicts(context: Context, prefixes: list[str]) -> dict[str, dict[str, Any]]:
    """Verdicts on the claims whose ids begin with one of ``prefixes``."""
    found = context.store.raw("claims", "measured", "verdicts") or {}
    return {name: entry for name, entry in found.items() if name.startswith(tuple(prefixes))}


def _count(number: int) -> Cell:
    return Cell(number, "count", sources=(Source("claims", "measured.verdicts"),))


def counts(verdicts: dict[str, dict[str, Any]]) -> list[Phrase]:
    """How many claims had each verdict, in words."""
    counted = Counter(entry["verdict"] for entry in verdicts.values())
    return [
        phrase("claims.count", verdict=Phrase(f"claim.{word}"), count=_count(counted[word]))
        for word in WORDS
        if counted[word]
    ]


def judged(context: Context, prefixes: list[str]) -> Shown:
    """The verdicts on the statements of one row; unverified when the claims were not checked."""
    verdicts = _verdicts(context, prefixes) if prefixes else {}
    return phrase("claims.row", counts=counts(verdicts)) if verdicts else Phrase("claims.unchecked")


def _wording(context: Context) -> dict[str, Any]:
    """Statement of each claim, from the claim files that the evidence names and that are still there."""
    wording: dict[str, Any] = {}
    for path in map(Path, context.store.raw("claims", "resolved", "claim_files") or {}):
        if path.is_file():
            entries = yaml.safe_load(path.read_text(encoding="utf-8")).get("claims") or []
            wording |= {entry["id"]: entry["statement"] for entry in entries}
    return wording


def claims(context: Context, prefixes: list[str]) -> Claims | None:
    """Verdicts on statements, by the prefixes of their ids; None when they were not checked."""
    verdicts = _verdicts(context, prefixes)
    if not verdicts:
        return None
    wording = _wording(context)
    refuted = [
        ClaimRow(
            id=name,
            statement=both(wording.get(name)),
            verdict=entry["verdict"],
            corrected=both(entry.get("corrected")) or both(entry.get("found")),
            where=str(entry.get("where") or ""),
        )
        for name, entry in verdicts.items()
        if entry["verdict"] in REFUTED
    ]
    return Claims(
        version=context.store.cell("claims", "measured", "version"),
        checked=_count(len(verdicts)),
        counts=counts(verdicts),
        refuted=sorted(refuted, key=lambda row: REFUTED.index(row.verdict)),
    )
