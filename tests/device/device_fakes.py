"""Fake hosts: programs on PATH that replay ``recorded/<host>/``, and a file tree with the host's device files.

They prove that text is understood. They prove nothing about a real card, driver or tool.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adrbench.device import fp8, probe
from adrbench.device.tools import Probe

ROOT = Path(__file__).resolve().parents[2]
RECORDED = Path(__file__).parent / "recorded"
HOSTS = tuple(sorted(folder.name for folder in RECORDED.iterdir() if folder.is_dir()))

# Program -> (words in its arguments, recorded file) in the order in which they are tried.
REPLAYS = {
    "hy-smi": (("--showpids", "hy-smi-pids.txt"), ("--json", "hy-smi.json"), ("", "hy-smi.txt")),
    "rocm-smi": (("--showpids", "rocm-smi-pids.txt"), ("--json", "rocm-smi.json")),
    "nvidia-smi": (
        ("--query-compute-apps", "nvidia-smi-apps.csv"),
        ("driver_version", "nvidia-smi.csv"),
        ("power.draw", "nvidia-smi-sample.csv"),
    ),
    "rocminfo": (("", "rocminfo.txt"),),
    "lspci": (("-nn", "lspci.txt"),),
    "lsmod": (("", "lsmod.txt"),),
}


@dataclass
class FakeHost:
    """A host's programs (``bin``), files (``root``), serving interpreter and true declaration."""

    bin: Path
    root: Path
    python: Path
    serving: dict[str, Any]
    declared: dict[str, Any]

    def program(self, name: str, body: str) -> Path:
        """Put a shell program on the fake PATH, replacing one that is there."""
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return path

    def replay(self, name: str, folder: Path) -> None:
        """A program that prints the recorded file for its arguments, and fails where none was recorded."""
        cases = [
            f"*{word}*) exec /bin/cat '{folder / file}';;" for word, file in REPLAYS[name] if (folder / file).exists()
        ]
        if cases:
            self.program(name, 'case "$*" in\n' + "\n".join(cases) + '\nesac\necho "unknown option: $*" >&2\nexit 2')

    def answer(self, record: dict[str, Any]) -> None:
        """What the serving interpreter says: ``inside.py``'s record."""
        said = self.bin.parent / "inside.json"
        said.write_text(json.dumps(record))
        self.python.write_text(f"#!/bin/sh\nexec /bin/cp '{said}' \"$3\"\n")
        self.python.chmod(0o755)

    def probes(self, limit_s: float | None = None) -> list[Probe]:
        return probe.probe_host(self.root, limit_s)

    def spec(self, **changes: Any) -> dict[str, Any]:
        return {"platform": "p", "declared": self.declared, "serve_python": str(self.python), **changes}


def device_fp8(dtype: str) -> dict[str, Any]:
    """What a device of that format would answer. ``fp8.decode`` itself is tested against torch elsewhere."""
    values = [fp8.decode(code, dtype) for code in range(256)]
    return {
        "dtype": dtype,
        "source": "current_platform.fp8_dtype()",
        "device": "cuda:0",
        "decoded": [None if value != value else value for value in values],
        "encoded": [0 if value != value else code for code, value in enumerate(values)],
        "maximum": fp8.FORMATS[dtype].maximum,
        "scale_maximum": fp8.FORMATS[dtype].scale_maximum,
    }
