"""Read a profile's raw files again with today's code: ``python -m adrbench.profile.read_again EVIDENCE OUTPUT``.

Nothing is measured: token times, counters and trace are those that the job kept (:mod:`adrbench.profile.saved`), and
the digests of all of them are checked. A note in the new document says that it was read again; its times are the
measurement's.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from adrbench.evidence import Evidence, EvidenceError, raw_folder, read, verify_files, write
from adrbench.job import JobError
from adrbench.profile.__main__ import evaluate, load_inputs
from adrbench.profile.saved import read_run

NOTE = "read again from the raw files of the measurement by a later version of the code"


def read_again(evidence: Path, model: Path | None = None, ceiling: Path | None = None) -> Evidence:
    """The same measurement, as today's code reads it.

    Args:
        evidence: of a profile, its raw folder beside it.
        model, ceiling: where the model folder and the ceiling's evidence are now, if not where the job found them.

    Raises:
        EvidenceError: the evidence or a raw file is missing or damaged.
        JobError: as in the job, of the model, the ceiling or the trace.
    """
    document = read(evidence)
    if damaged := verify_files(evidence):
        raise EvidenceError(f"{evidence}: {'; '.join(damaged)}")
    moved = {"model": model, "ceiling": ceiling}
    asked = document.asked | {key: str(path) for key, path in moved.items() if path}
    folder = raw_folder(evidence)
    log = folder / "server" / "server.log"
    measured, notes = evaluate(asked, load_inputs(asked), read_run(folder, document), log)
    return document.model_copy(update={"measured": measured, "notes": [*notes, NOTE]})


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m adrbench.profile.read_again", description=__doc__)
    parser.add_argument("evidence", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--model", type=Path, help="model folder, if it is elsewhere now")
    parser.add_argument("--ceiling", type=Path, help="the ceiling's evidence, if it is elsewhere now")
    arguments = parser.parse_args()
    try:
        write(arguments.output, read_again(arguments.evidence, arguments.model, arguments.ceiling))
    except (EvidenceError, JobError, OSError, KeyError) as error:
        sys.exit(f"adrbench profile: {error}")


if __name__ == "__main__":
    main()
