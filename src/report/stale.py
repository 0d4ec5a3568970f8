"""The mark of a report whose evidence changed since it was made. Pure, apart from writing the file in place."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from adrbench.evidence import write_text

BEGIN, END = "<!-- adrbench:stale -->", "<!-- /adrbench:stale -->"
MARK = re.compile(rf"{re.escape(BEGIN)}\n.*?{re.escape(END)}\n\n", re.DOTALL)
MOST_NAMED = 3
WORDS = {
    "en": (
        "**Stale.** What this page rests on changed after it was made: {files}. Its verdict stands for the old "
        "evidence only; build the report again.",
        "{count} more",
    ),
    "zh": (
        "**Stale (已过期)。** 本页生成后其依据发生了变化: {files}。结论仅对旧证据成立, 请重新生成。",
        "另有 {count} 处",
    ),
}


def unmarked(text: str) -> str:
    """A report's text as it was made."""
    return MARK.sub("", text)


def marked(text: str, changes: Sequence[str], language: str) -> str:
    """A report's text with the mark below its title; no change: without one."""
    plain = unmarked(text)
    if not changes:
        return plain
    sentence, more = WORDS[language]
    named = list(changes[:MOST_NAMED])
    if len(changes) > MOST_NAMED:
        named.append(more.format(count=len(changes) - MOST_NAMED))
    title, _, rest = plain.partition("\n\n")
    return f"{title}\n\n{BEGIN}\n> {sentence.format(files='; '.join(named))}\n{END}\n\n{rest}"


def mark_file(path: Path, changes: Sequence[str]) -> bool:
    """Mark or unmark one file; whether it was changed.

    The time of the file stays: what was made of which is not changed by a mark.
    """
    before = path.read_text(encoding="utf-8")
    after = marked(before, changes, "zh" if path.name.endswith(".zh.md") else "en")
    if after == before:
        return False
    times = path.stat()
    write_text(path, after)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    return True
