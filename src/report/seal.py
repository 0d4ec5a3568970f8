"""What a report was made from: digests of its evidence, and the specifications that make it again.

    python -m adrbench.report.seal --spec JSON --output reports/<platform>/<adr>.seal.json

The audit makes the verdict, the lock and the texts again from a seal; ``status`` compares its digests with the files
as they are. The texts must lie beside the seal.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from adrbench.config.measuring_code import code_digest
from adrbench.decide.verdict import Status, Verdict
from adrbench.evidence import EvidenceError, digest_file, digest_text, now, write_json
from adrbench.handover import received
from adrbench.report.history import read_history
from adrbench.report.lookup import read_decide
from adrbench.report.stale import unmarked
from pydantic import BaseModel, ConfigDict, ValidationError

SCHEMA_VERSION = 1
SUFFIX = {"en": ".md", "zh": ".zh.md"}
# Stages whose code turns evidence into what a report says.
CODE = ("decide", "report", "lock")


class SealSpec(BaseModel):
    """Specifications of the jobs that made a report: decide, lock, and one report for each language."""

    model_config = ConfigDict(extra="forbid")

    platform: str
    adr: str
    decision_file: Path
    decide: dict[str, Any]
    lock: dict[str, Any]
    reports: dict[str, dict[str, Any]]


class Seal(SealSpec):
    """``evidence``: path -> SHA-256 as the verdict rests on it. ``derived`` and ``texts`` likewise, texts by name."""

    schema_version: int = SCHEMA_VERSION
    sealed_at: str
    status: Status
    evidence: dict[str, str]
    derived: dict[str, str]
    texts: dict[str, str]
    decision_digest: str
    code: dict[str, str]


def text_digest(path: Path) -> str:
    """Digest of a report's text without the mark of staleness."""
    return digest_text(unmarked(path.read_text(encoding="utf-8", errors="replace")))


def derived_files(spec: SealSpec) -> list[Path]:
    """Documents between evidence and text: verdict, history and the entries it shows, lock and its files."""
    evidence = next(iter(spec.reports.values()))["evidence"]
    entries: list[Path] = []
    if evidence.get("history"):
        shown = read_history(Path(evidence["history"]))
        store = Path(shown["store"]) / spec.adr
        entries = [store / f"{entry['number']:04d}.json" for entry in shown["entries"]]
    named = [Path(evidence[key]) for key in ("decide", "history", "lock") if evidence.get(key)]
    folder = Path(evidence["lock"]).parent if evidence.get("lock") else None
    return (
        named
        + [path for path in entries if path.is_file()]
        + (sorted(p for p in folder.iterdir() if p.suffix != ".json") if folder else [])
    )


def seal(spec: SealSpec, folder: Path) -> Seal:
    """The seal of the texts that lie in ``folder``.

    Raises:
        EvidenceError: the verdict cannot be read.
        OSError: a text or a derived document is missing.
    """
    evidence = next(iter(spec.reports.values()))["evidence"]
    verdict = Verdict.model_validate(read_decide(Path(evidence["decide"])))
    names = [f"{spec.adr}{SUFFIX[language]}" for language in spec.reports]
    return Seal(
        **spec.model_dump(),
        sealed_at=now(),
        status=verdict.status,
        evidence=verdict.evidence,
        derived={str(path): digest_file(path) for path in derived_files(spec)},
        texts={name: text_digest(folder / name) for name in names},
        decision_digest=digest_file(spec.decision_file),
        code={stage: code_digest(stage) for stage in CODE},
    )


def read_seal(path: Path) -> Seal:
    """A seal.

    Raises:
        EvidenceError: naming the file, when it is missing, damaged or of another version.
    """
    try:
        return Seal.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValidationError) as error:
        first = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        raise EvidenceError(f"{path}: not a seal of a report ({first}); build the report again") from None


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m adrbench.report.seal")
    parser.add_argument("--spec", required=True, help="the specification as JSON, or @FILE")
    parser.add_argument("--output", required=True, type=Path, help="seal to write, beside the texts")
    arguments = parser.parse_args()
    try:
        made = seal(SealSpec.model_validate_json(received(arguments.spec)), arguments.output.parent)
        write_json(arguments.output, made.model_dump(mode="json"))
    except (EvidenceError, ValidationError, ValueError) as error:
        sys.exit(f"adrbench seal: {error}")
    except OSError as error:
        sys.exit(f"adrbench seal: {error.strerror}: {error.filename}; build the report again")


if __name__ == "__main__":
    main()
