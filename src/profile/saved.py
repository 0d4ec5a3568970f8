"""What a profile took from the server, as a raw file beside the trace: every token's time, and vLLM's counters.

With it and the trace every figure of the evidence can be computed again (``adrbench.audit``).
"""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

from adrbench.evidence import Evidence, write_json
from adrbench.profile.sections import Run
from adrbench.profile.window import Stream, Window

NAME = "windows.json"


def save_run(folder: Path, taken: Run) -> str:
    """Write the windows and counters into a profile's raw folder; the file's name."""
    write_json(
        folder / NAME,
        {
            "unprofiled": [dataclasses.asdict(window) for window in taken.unprofiled],
            "profiled": dataclasses.asdict(taken.profiled),
            "counted": taken.counted,
            "busy_before": taken.busy_before,
        },
    )
    return NAME


def _window(raw: dict[str, Any]) -> Window:
    return Window(**(raw | {"streams": tuple(Stream(**stream) for stream in raw["streams"])}))


def trace_rank(file: Path) -> int:
    """Rank in a worker trace's file name, 0 where there is none."""
    found = re.search(r"rank-?(\d+)", file.name)
    return int(found.group(1)) if found else 0


def read_run(folder: Path, document: Evidence) -> Run:
    """What was taken from the server, from a profile's raw folder.

    Raises:
        OSError: a file is missing.
        KeyError: it is not such a file.
    """
    raw = json.loads((folder / NAME).read_text(encoding="utf-8"))
    traces = [folder / name for name in document.files if ".pt.trace.json" in name]
    return Run(
        tuple(map(_window, raw["unprofiled"])),
        _window(raw["profiled"]),
        raw["counted"],
        tuple(sorted(traces, key=lambda f: (trace_rank(f), f.name))),
        document.resolved,
        raw["busy_before"],
    )
