"""The matrix as a Markdown table: one row a case, from what its test noted while it ran. No wall times."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

HEAD = """\
# Fault matrix

Each case puts one fault into one stage of a real job and then looks at what is left. Written by `make test-faults`
(`FAULTS_REPORT=FILE`), not by hand. *Server*: what served in the case; a stand-in only where the fault strikes
before a server is started, or strikes the job and its files. Device memory: a CPU has none to free, so shared memory
segments and ports are looked at instead; on a GPU the product's own check waits for it after every server
(`src/serve/memory.py`), with tests of its own.

"""
ROW = "| {fault} | {stage} | {server} | {result} | {asserted} | {said} |"


@dataclass
class Row:
    """One case."""

    fault: str
    stage: str
    server: str
    result: str = "passed"
    asserted: list[str] = field(default_factory=list)
    said: str = ""


def shorten(text: str, length: int = 240) -> str:
    """One line for a cell: no paths of this host, no process ids, no port, no bar."""
    text = re.sub(r"/[\w./ -]*/((?:results|logs|models|pytest|\.envs)/)", r"\1", " ".join(text.split()))
    text = re.sub(r"(?<![\w.])/(?:[\w.+-]+/)+", "", text)
    text = re.sub(r"\b(pid|process|port|inodes?)(=| )\[?\d+", r"\1 N", text).replace("|", "\\|")
    return text if len(text) <= length else text[: length - 1] + "…"


def table(rows: list[Row]) -> str:
    """All rows in order, passed and failed counted."""
    failed = [row for row in rows if row.result == "failed"]
    pairs = {(row.fault, row.stage) for row in rows if row.result == "passed"}
    count = f"{len(rows)} cases, {len(pairs)} pairs of fault and stage passed, {len(failed)} failed.\n\n"
    lines = [
        "| fault | stage | server | result | asserted | error text seen |",
        "|---|---|---|---|---|---|",
        *(
            ROW.format(
                fault=row.fault,
                stage=row.stage,
                server=row.server,
                result=row.result,
                asserted="; ".join(dict.fromkeys(row.asserted)) or "-",
                said=f"`{shorten(row.said).replace('`', chr(39))}`" if row.said else "-",
            )
            for row in sorted(rows, key=lambda row: (row.stage, row.fault, row.server))
        ),
    ]
    return HEAD + count + "\n".join(lines) + "\n"
