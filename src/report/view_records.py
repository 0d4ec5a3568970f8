"""Parts of the view that every record may have: facts and checks, published figures, history, lock."""

from __future__ import annotations

from dataclasses import dataclass

from adrbench.report.lookup import Cell
from adrbench.report.team import Statement
from adrbench.report.view import Phrase, Shown


@dataclass(frozen=True)
class Fact:
    """A property of the host and its value."""

    name: Shown
    value: Shown


@dataclass(frozen=True)
class CheckCell:
    """A check of a record of facts; ``side`` says on which side of the limit it passes."""

    id: str
    title: Shown
    tier: str
    value: Cell
    side: str
    limit: Cell
    verdict: str
    needs: Shown
    basis: Shown


@dataclass(frozen=True)
class ReferenceRow:
    tier: str
    official: Cell
    measured: Cell
    ratio: Cell


@dataclass(frozen=True)
class ReferenceTable:
    """Published figures beside the baseline's; compared only on the platforms that they are about."""

    source: Shown
    platforms: list[str]
    compared: bool
    rows: list[ReferenceRow]


@dataclass(frozen=True)
class StatementRow:
    statement: Statement
    judged: Shown


@dataclass(frozen=True)
class Past:
    """A verdict that the decision has or had."""

    number: Cell
    recorded: Cell
    status: Shown
    text: Shown
    digest: Cell


@dataclass(frozen=True)
class LockView:
    """What the decision locks; ``files``: (name, path)."""

    text: Shown
    files: list[tuple[str, str]]


@dataclass(frozen=True)
class ElsewhereRow:
    """An arm of another platform against that platform's baseline; ``here``: whether this platform has the arm too."""

    arm: str
    title: Shown
    here: Phrase
    tasks: list[tuple[str, Cell, Cell, Cell]]
    mean: Cell
    pairs: Cell
    exact: Cell


@dataclass(frozen=True)
class Elsewhere:
    """Accuracy of another model, which no gate reads."""

    platform: str
    title: Shown
    baseline: Shown
    confidence: Cell
    rows: list[ElsewhereRow]
    refused: list[Shown]
