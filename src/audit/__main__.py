"""Every number of every report, computed again from raw files; a difference fails and is named.

    python -m adrbench.audit [ADR ...] [--reports reports] [--eval-python PATH]      (or: snakemake audit)

From a report's seal downwards: the text from the verdict and the evidence, the verdict from the evidence, each
measurement from its raw files, each raw file by its digest. What an instrument told and no file holds is counted, not
computed. Exit 1 when anything differs, is missing, or cannot be read; 2 when there is no report.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from adrbench.audit.finding import Finding, Outcome
from adrbench.audit.records import record
from adrbench.audit.stages import Options, measured
from adrbench.evidence import EvidenceError
from adrbench.paths import interpreter
from adrbench.report.seal import Seal, read_seal


def sealed(reports: Path, adrs: list[str]) -> tuple[dict[Path, Seal], Outcome]:
    """The seals below a folder, of some ADRs or of all; what cannot be read is a finding."""
    found, outcome = {}, Outcome()
    for path in sorted(reports.glob("*/*.seal.json")):
        if adrs and path.name.removesuffix(".seal.json") not in adrs:
            continue
        try:
            found[path] = read_seal(path)
        except EvidenceError as error:
            outcome.findings.append(Finding(str(path), "", str(error).removeprefix(f"{path}: ")))
    return found, outcome


def audit(reports: Path, adrs: list[str], options: Options) -> tuple[Outcome, int, int]:
    """(outcome, reports, evidence files)."""
    seals, outcome = sealed(reports, adrs)
    files = sorted({name for seal in seals.values() for name in seal.evidence})
    for name in files:
        if Path(name).is_file():  # a missing one is told by each report that rests on it
            found = measured(Path(name), options)
            print(f"{'ok ' if not found.findings else 'BAD'} {name}: {found.values} values", flush=True)
            outcome.add(found)
    for path, seal in seals.items():
        found = record(seal, path, reports)
        print(f"{'ok ' if not found.findings else 'BAD'} {path}: {found.values} values and lines", flush=True)
        outcome.add(found)
    return outcome, len(seals), len(files)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m adrbench.audit")
    parser.add_argument("adrs", nargs="*", help="ADRs to audit, such as adr0011; none: all")
    parser.add_argument("--reports", type=Path, default=Path("reports"), help="folder of reports")
    parser.add_argument("--eval-python", help="interpreter with OpenCompass: predictions are scored again by it")
    arguments = parser.parse_args()
    python = interpreter(arguments.eval_python) if arguments.eval_python else None
    if python is not None and "/" in python and not Path(python).is_file():
        sys.exit(f"adrbench audit: --eval-python: {python} does not exist; leave it out, or run `make setup`")
    outcome, reports, files = audit(arguments.reports, arguments.adrs, Options(python))
    if not reports and not outcome.findings:
        print(f"adrbench audit: there is no report below {arguments.reports}/", file=sys.stderr)
        sys.exit(2)
    for text in outcome.skipped:
        print(f"not computed again: {text}")
    for finding in outcome.findings:
        print(f"FINDING {finding}")
    print(
        f"{reports} reports, {files} evidence files, {outcome.values} values computed again, "
        f"{len(outcome.skipped)} parts not, {len(outcome.findings)} findings"
    )
    sys.exit(1 if outcome.findings else 0)


if __name__ == "__main__":
    main()
