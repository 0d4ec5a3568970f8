"""What the evidence of other code lacks: a job measures more things as time goes on, and what it wrote before stays.

Which code measured a file is in Snakemake's record of its job, which travels with evidence (``adrbench.archive``).
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from pathlib import Path

from adrbench.archive.records import RECORDS, read_record
from adrbench.audit.finding import Finding, Outcome
from adrbench.config.measuring_code import MEASURING_CODE, code_digest
from adrbench.evidence import Evidence

# The digest of a job's code as Snakemake keeps it: the repr of one of its parameters.
DIGEST = re.compile(r"'([0-9a-f]{16})'")


@dataclass(frozen=True)
class Code:
    """``digest`` of the code that measured a file; None where no record says. ``todays``: it is this project's."""

    digest: str | None
    todays: bool


@functools.cache
def _todays() -> frozenset[str]:
    return frozenset(map(code_digest, MEASURING_CODE))


def code_of(path: Path) -> Code:
    """The code that measured an evidence file, relative to the working folder."""
    record = read_record(RECORDS, path.as_posix())
    params = record.get("params") if isinstance(record, dict) else None
    found = [DIGEST.fullmatch(str(text)) for text in (params if isinstance(params, list) else [])]
    digest = next((match[1] for match in found if match), None)
    return Code(digest, digest in _todays())


def explained(path: Path, document: Evidence, outcome: Outcome) -> Outcome:
    """The outcome of a file with what it lacks in one line: no finding where other code measured it."""
    absent = [finding for finding in outcome.findings if finding.absent and finding.file == str(path)]
    others = [finding for finding in outcome.findings if finding not in absent]
    code = code_of(path)
    when, names = document.finished_at[:10], ", ".join(finding.key for finding in absent)
    again = f"measure it again (`snakemake --config platform={document.platform} -- {path}`)"
    skipped = list(outcome.skipped)
    if others and code.digest and not code.todays:
        skipped.append(
            f"{path}: was measured on {when} by code {code.digest}, which is not today's: a value below that differs "
            f"may have been defined otherwise; {again}, or audit with the project as it was then"
        )
    if not absent:
        return Outcome(others, outcome.values, skipped)
    if code.todays:
        text = f"not in it, though today's code measured it: taken out since; {again}"
        others.append(Finding(str(path), names, text))
    elif code.digest is None:
        text = (
            f"not in it, and no record of its job says by which code it was measured on {when}: by older code, which "
            f"did not write that down, or it was taken out since; {again}, or merge the archive that brings the record"
        )
        others.append(Finding(str(path), names, text))
    else:
        skipped.append(
            f"{path}: {names}: not in it: it was measured on {when} by code {code.digest}, which did not write that "
            "down. What it says was computed again, and reports leave out what it does not say. To have that, too, "
            f"{again}; to live without, leave it as it is"
        )
    return Outcome(others, outcome.values, skipped)
