"""Every report that was built, its status, and whether its evidence is still what it was made from.

    python -m adrbench.report.status [--reports reports]      (or: snakemake status)

A report whose evidence or decision file changed since is Stale until it is built again; its files say so too, those
that were published in ``reports/`` among them. Two locks of one platform that name different mechanisms are told.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

from adrbench.evidence import EvidenceError, digest_file
from adrbench.report.publish import rebase
from adrbench.report.seal import Seal, read_seal
from adrbench.report.stale import mark_file, unmarked


@dataclass(frozen=True)
class State:
    """One report. ``changes``: what differs from its seal, empty when nothing does."""

    path: Path
    seal: Seal
    changes: list[str]

    @property
    def word(self) -> str:
        status = self.seal.status
        told = f"{status.word} ({status.option})" if status.option else status.word
        return f"Stale (was {told})" if self.changes else told


def changes(seal: Seal) -> list[str]:
    """Evidence that changed or is gone, and a changed decision file."""
    found = []
    for name, digest in seal.evidence.items():
        path = Path(name)
        if not path.is_file():
            found.append(f"{name} is missing")
        elif digest_file(path) != digest:
            found.append(f"{name} changed")
    decision = seal.decision_file
    if decision.is_file() and digest_file(decision) != seal.decision_digest:
        found.append(f"{decision.parent.name}/{decision.name} changed")
    return found


def states(reports: Path) -> list[State]:
    """All reports below a folder, by platform.

    Raises:
        EvidenceError: naming a seal that cannot be read.
    """
    found = []
    for path in sorted(reports.glob("*/*.seal.json")):
        seal = read_seal(path)
        found.append(State(path, seal, changes(seal)))
    return found


def published(state: State, reports: Path) -> list[Path]:
    """The published files that are copies of this platform's report."""
    found = []
    for name in state.seal.texts:
        source, copy = state.path.parent / name, reports / name
        if not (source.is_file() and copy.is_file()):
            continue
        text = rebase(unmarked(source.read_text(encoding="utf-8")), source.parent, reports, frozenset(state.seal.texts))
        if unmarked(copy.read_text(encoding="utf-8")) == text:
            found.append(copy)
    return found


def refresh(reports: Path) -> list[State]:
    """Mark every report that is stale, unmark every one that is not; all states.

    Raises:
        EvidenceError: naming a seal that cannot be read.
    """
    found = states(reports)
    for state in found:
        own = [path for name in state.seal.texts if (path := state.path.parent / name).is_file()]
        for path in [*published(state, reports), *own]:
            mark_file(path, state.changes)
    return found


def conflicts(found: list[State]) -> list[str]:
    """Platforms whose accepted decisions lock more than one mechanism or backend (C14)."""
    from adrbench.lock.spec import Lock

    told = []
    for platform in dict.fromkeys(state.seal.platform for state in found):
        locks = []
        for state in found:
            path = state.path.parent / "lock" / state.seal.adr / "lock.json"
            if state.seal.platform == platform and path.is_file():
                locks.append(Lock.model_validate_json(path.read_text(encoding="utf-8")))
        ways = {(lock.mechanism, lock.backend) for lock in locks if lock.state == "locked"}
        if len(ways) > 1:
            which = ", ".join(f"{k.adr} by {k.mechanism} {k.backend or ''}".strip() for k in locks if k.mechanism)
            told.append(f"{platform}: locks differ ({which}); one image takes exactly one of them (C14)")
    return told


def table(found: list[State]) -> list[str]:
    """One line for each report, aligned."""
    rows = [(s.seal.platform, s.seal.adr, s.word, s.seal.sealed_at[:16].replace("T", " ")) for s in found]
    head = ("platform", "ADR", "status", "built (UTC)")
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(4)]
    lines = []
    for row in [head, *rows]:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        lines.append("  ".join(cells).rstrip())
    for state in found:
        lines += [f"  {state.seal.platform}/{state.seal.adr}: {change}" for change in state.changes]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m adrbench.report.status")
    parser.add_argument("--reports", type=Path, default=Path("reports"), help="folder of reports")
    arguments = parser.parse_args()
    try:
        found = refresh(arguments.reports)
    except EvidenceError as error:
        sys.exit(f"adrbench status: {error}")
    if not found:
        print(f"no report was built below {arguments.reports}/")
        return
    print("\n".join([*table(found), *conflicts(found)]))


if __name__ == "__main__":
    main()
