"""What an audit finds, and how two documents are compared. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Finding:
    """Something that does not hold: the file that says it, the key in it, and what is the case.

    ``absent``: the file says nothing under this key (older.py tells why).
    """

    file: str
    key: str
    text: str
    absent: bool = False

    def __str__(self) -> str:
        return f"{self.file}: {self.key}: {self.text}" if self.key else f"{self.file}: {self.text}"


@dataclass
class Outcome:
    """Findings of one part. ``values``: how many were computed again; ``skipped``: what could not be, and why."""

    findings: list[Finding] = field(default_factory=list)
    values: int = 0
    skipped: list[str] = field(default_factory=list)

    def add(self, other: Outcome) -> None:
        self.findings += other.findings
        self.values += other.values
        self.skipped += other.skipped


MISSING = object()


def leaves(value: Any) -> int:
    """Number of plain values in a document."""
    if isinstance(value, Mapping):
        return sum(map(leaves, value.values()))
    if isinstance(value, (list, tuple)):
        return sum(map(leaves, value))
    return 1


def same(first: Any, second: Any) -> bool:
    """Equal plain values; a number is equal whatever its type, and NaN is equal to itself."""
    numbers = [isinstance(v, (int, float)) and not isinstance(v, bool) for v in (first, second)]
    if all(numbers):
        return first == second or (math.isnan(first) and math.isnan(second))
    return type(first) is type(second) and bool(first == second)


def differences(said: Any, computed: Any, key: str = "") -> Iterator[tuple[str, Any, Any]]:
    """(dotted key, what is said, what was computed) of every plain value of ``computed`` that ``said`` has otherwise.

    What ``said`` holds beyond that is not looked at: it was measured, not computed. What it lacks is told by its first
    key only, with ``MISSING`` as what is said.
    """
    if said is MISSING:
        yield key, said, computed
    elif isinstance(computed, Mapping):
        for name, value in computed.items():
            inner = said.get(name, MISSING) if isinstance(said, Mapping) else MISSING
            yield from differences(inner, value, f"{key}.{name}" if key else str(name))
    elif isinstance(computed, (list, tuple)):
        if not isinstance(said, (list, tuple)) or len(said) != len(computed):
            yield key, said, computed
            return
        for index, (a, b) in enumerate(zip(said, computed, strict=True)):
            yield from differences(a, b, f"{key}[{index}]")
    elif not same(said, computed):
        yield key, said, computed


def compare(file: str, said: Any, computed: Any, key: str = "", most: int = 5) -> Outcome:
    """Findings for values that differ, the first few of them, and for all that are absent."""
    found = list(differences(said, computed, key))
    absent = [(where, b) for where, a, b in found if a is MISSING]
    differ = [(where, a, b) for where, a, b in found if a is not MISSING]
    shown = [
        Finding(file, where, f"says {repr(a)[:80]}, computed again it is {repr(b)[:80]}")
        for where, a, b in differ[:most]
    ]
    if len(differ) > most:
        shown.append(Finding(file, key, f"{len(differ) - most} more values differ"))
    shown += [Finding(file, where, f"says nothing, computed again it is {repr(b)[:80]}", True) for where, b in absent]
    return Outcome(shown, leaves(computed))
