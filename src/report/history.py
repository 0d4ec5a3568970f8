"""Every verdict that a decision has had: a changed one is added, none is ever taken away.

    python -m adrbench.report.history results/cpu/decide/adr0011.json --store history/cpu --output FILE

The store is one file for each verdict, ``<store>/<adr>/<number>.json``, with the whole verdict and the digest
of its evidence. No rule declares it as output, so that neither a rerun nor removing ``results/`` loses it.
``--output`` gets the table of all entries, as a report reads it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from adrbench.decide.verdict import Status, Verdict
from adrbench.evidence import EvidenceError, canonical, digest_text, now, write_json
from adrbench.report.lookup import read_decide
from pydantic import BaseModel, ConfigDict, ValidationError

SCHEMA_VERSION = 1


class Entry(BaseModel):
    """One verdict. ``recorded_at``: when it was first seen; ``evidence_digest``: of all evidence it rests on."""

    model_config = ConfigDict(extra="forbid")

    number: int
    recorded_at: str
    evidence_digest: str
    status: Status


class Stored(Entry):
    """An entry of the store, with the whole verdict."""

    schema_version: int = SCHEMA_VERSION
    verdict: Verdict


class History(BaseModel):
    """All entries of one decision on one platform, the oldest first; the last is the present verdict."""

    model_config = ConfigDict(extra="forbid")

    schema_version: int = SCHEMA_VERSION
    adr: str
    platform: str
    store: str
    entries: list[Entry]


def evidence_digest(evidence: Mapping[str, str]) -> str:
    """One digest over the paths and digests of evidence files."""
    return digest_text(canonical(dict(evidence)))


def stored(folder: Path) -> list[Stored]:
    """Entries of one decision, the oldest first.

    Raises:
        EvidenceError: naming a file that cannot be read.
    """
    found = []
    for path in sorted(folder.glob("[0-9]*.json")):
        try:
            found.append(Stored.model_validate_json(path.read_text(encoding="utf-8")))
        except (OSError, UnicodeDecodeError, ValidationError) as error:
            first = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
            raise EvidenceError(f"{path}: not an entry of a history ({first}); move it away and rerun") from None
    return found


def is_new(last: Stored | None, verdict: Verdict) -> bool:
    """Whether a verdict differs from the last one: another status, option, or evidence."""
    if last is None:
        return True
    same = (last.status.word, last.status.option) == (verdict.status.word, verdict.status.option)
    return not same or last.evidence_digest != evidence_digest(verdict.evidence)


def record(verdict: Verdict, store: Path) -> History:
    """Add a verdict to the store when it is new; the history as it then stands.

    Raises:
        EvidenceError: an entry cannot be read.
    """
    folder = store / verdict.decision
    entries = stored(folder)
    if is_new(entries[-1] if entries else None, verdict):
        number = entries[-1].number + 1 if entries else 1
        entry = Stored(
            number=number,
            recorded_at=now(),
            evidence_digest=evidence_digest(verdict.evidence),
            status=verdict.status,
            verdict=verdict,
        )
        write_json(folder / f"{number:04d}.json", entry.model_dump(mode="json"))
        entries.append(entry)
    kept = [Entry(**entry.model_dump(include=set(Entry.model_fields))) for entry in entries]
    return History(adr=verdict.decision, platform=verdict.platform, store=str(store), entries=kept)


def read_history(path: Path) -> dict[str, Any]:
    """The history of one decision as plain JSON.

    Raises:
        EvidenceError: missing, damaged or of another version.
    """
    try:
        return History.model_validate_json(path.read_text(encoding="utf-8")).model_dump(mode="json")
    except FileNotFoundError:
        raise EvidenceError(f"{path}: no such file; rerun the history job") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, ValidationError) as error:
        raise EvidenceError(f"{path}: not a history ({str(error).splitlines()[0]}); delete it and rerun") from None


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m adrbench.report.history")
    parser.add_argument("verdict", type=Path, help="document of a decide job")
    parser.add_argument("--store", required=True, type=Path, help="folder of this platform's histories")
    parser.add_argument("--output", required=True, type=Path, help="table of entries to write")
    arguments = parser.parse_args()
    try:
        history = record(Verdict.model_validate(read_decide(arguments.verdict)), arguments.store)
        write_json(arguments.output, history.model_dump(mode="json"))
    except EvidenceError as error:
        sys.exit(f"adrbench history: {error}")
    except OSError as error:
        sys.exit(f"adrbench history: {error.strerror}: {error.filename}; free space or fix permissions, then rerun")


if __name__ == "__main__":
    main()
