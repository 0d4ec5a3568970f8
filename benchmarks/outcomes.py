"""A test run's outcomes as JSON: ``python benchmarks/outcomes.py RUN.xml RUN.json``.

Names of the tests by outcome, the errors that they measured (``record_property``), and the seconds of all together.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as tree
from pathlib import Path
from typing import Any

from adrbench.evidence import write_json


def outcomes(path: Path) -> dict[str, Any]:
    """Of a JUnit file, as pytest writes it."""
    found: dict[str, Any] = {"passed": [], "failed": [], "skipped": [], "measured": {}, "seconds": 0.0}
    for case in tree.parse(path).getroot().iter("testcase"):  # noqa: S314 - of a run of our own
        name, tags = case.get("name"), {child.tag for child in case}
        outcome = "failed" if tags & {"failure", "error"} else "skipped" if "skipped" in tags else "passed"
        found[outcome].append(name)
        found["seconds"] += float(case.get("time", 0))
        for entry in case.iter("property"):
            found["measured"][name] = float(entry.get("value", "nan"))
    return found


def main() -> None:
    source, target = Path(sys.argv[1]), Path(sys.argv[2])
    if not source.is_file():
        sys.exit(f"{source} was not written: the run was stopped before its end")
    found = outcomes(source)
    write_json(target, found)
    print(", ".join(f"{len(found[key])} {key}" for key in ("passed", "failed", "skipped")))
    print("\n".join(f"failed: {name}" for name in found["failed"]))


if __name__ == "__main__":
    main()
