"""The decision's earlier verdicts, and what it locks."""

from __future__ import annotations

from pathlib import Path

from adrbench.report.context import Context, both
from adrbench.report.view import Phrase, Shown, phrase
from adrbench.report.view_records import LockView, Past


def history(context: Context) -> list[Past]:
    """Every verdict of this decision on this platform, the present one first."""
    store, rows = context.store, []
    for index, entry in enumerate(store.raw("history", "entries") or []):
        key, status = ("entries", index), entry["status"]
        word = Phrase(f"status.{status['word']}")
        shown: Shown = phrase("status.option", word=word, option=status["option"]) if status["option"] else word
        rows.append(
            Past(
                number=store.cell("history", *key, "number", unit="count"),
                recorded=store.cell("history", *key, "recorded_at"),
                status=shown,
                text=both(status["text"]),
                digest=store.cell("history", *key, "evidence_digest"),
            )
        )
    return rows[::-1]


def lock(context: Context) -> LockView:
    """The lock's state in words, and its files."""
    document = context.store.documents.get("lock")
    if document is None or document.data is None or document.path is None:
        return LockView(Phrase("lock.absent"), [])
    state, reason = document.data["state"], both(document.data["reason"])
    if state != "locked":
        return LockView(phrase(f"lock.{state}", reason=reason), [])
    backend = context.store.cell("lock", "backend")
    named = phrase("lock.backend", backend=backend) if backend else Phrase("lock.default")
    text = phrase(
        "lock.locked", option=context.store.cell("lock", "option"), mechanism=context.store.cell("lock", "mechanism"),
        backend=named,
    )  # fmt: skip
    folder = Path(document.path).parent
    return LockView(text, [(name, str(folder / name)) for name in sorted(document.data["files"])])
