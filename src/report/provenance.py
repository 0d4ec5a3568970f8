"""Where the numbers come from: every evidence file with its digest, and every measurement that was rejected."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from adrbench.evidence import digest_file
from adrbench.report.lookup import MISSING, Cell, Source, Store
from adrbench.report.view import Proof, Rejection

SHORT_DIGEST = 12
LONGEST_MESSAGE = 200


def proofs(store: Store) -> list[Proof]:
    """Evidence files, numbered in the order of the documents."""
    found: list[Proof] = []
    for document in store.documents.values():
        if document.path is None or document.data is None:
            continue
        found.append(
            Proof(
                number=len(found) + 1,
                name=document.name,
                path=str(document.path),
                finished=store.cell(document.name, "finished_at"),
                digest=digest_file(document.path)[:SHORT_DIGEST],
                raw_files=len(document.data.get("files") or {}),
            )
        )
    return found


def date(store: Store) -> Cell:
    """The day on which the newest evidence was finished: a report made again next year says the same."""
    finished = [cell for name in store.documents if (cell := store.cell(name, "finished_at"))]
    if not finished:
        return MISSING
    newest = max(finished, key=lambda cell: str(cell.value))
    return Cell(str(newest.value)[:10], sources=newest.sources)


def _records(folder: Path | None) -> Iterator[dict[str, Any]]:
    """Readable records of rejected measurements, oldest first."""
    if folder is None or not folder.is_dir():
        return
    found = []
    for path in folder.glob("*.json"):
        try:
            found.append(json.loads(path.read_text(encoding="utf-8")))
        except (json.JSONDecodeError, UnicodeDecodeError):
            found.append({"reason": "unreadable-record", "stage": "?", "message": path.name, "at": ""})
    yield from sorted(found, key=lambda record: str(record.get("at", "")))


def rejections(folder: Path | None) -> list[Rejection]:
    """Rejected measurements counted by reason, the most frequent first, with the last one's message."""
    grouped: dict[str, list[dict[str, Any]]] = {}
    for record in _records(folder):
        grouped.setdefault(str(record.get("reason", "?")), []).append(record)
    rows = []
    for reason, records in sorted(grouped.items(), key=lambda item: (-len(item[1]), item[0])):
        stages = ", ".join(sorted({str(record.get("stage", "?")) for record in records}))
        message = " ".join(str(records[-1].get("message", "")).split())
        cut = message if len(message) <= LONGEST_MESSAGE else message[: LONGEST_MESSAGE - 1] + "…"
        rows.append(Rejection(reason, Cell(len(records), "count", sources=(Source("rejected", reason),)), stages, cut))
    return rows
