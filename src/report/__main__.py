"""Render one ADR in one language: ``python -m adrbench.report --spec JSON --output reports/<platform>/adr0011.md``.

The specification is ``spec.Spec``. Nothing is measured here: a report that cannot be made says why and
leaves the old file as it is.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from adrbench.evidence import EvidenceError, write_text
from adrbench.handover import received
from adrbench.report.collect import collect, open_store
from adrbench.report.markdown import render
from adrbench.report.spec import Spec, explain
from pydantic import ValidationError


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m adrbench.report")
    parser.add_argument("--spec", required=True, help="the report's specification as JSON, or @FILE")
    parser.add_argument("--output", required=True, type=Path, help="Markdown file to write")
    arguments = parser.parse_args()
    try:
        spec = Spec.model_validate_json(received(arguments.spec))
        report = collect(spec, open_store(spec))
        write_text(arguments.output, render(report, spec.language, arguments.output, spec.languages))
    except ValidationError as error:
        sys.exit(f"adrbench report: specification: {explain(error)}")
    except (EvidenceError, ValueError) as error:
        sys.exit(f"adrbench report: {error}")
    except OSError as error:
        sys.exit(
            f"adrbench report: {error.strerror or error}: {error.filename}; free space or fix permissions, then rerun"
        )


if __name__ == "__main__":
    main()
