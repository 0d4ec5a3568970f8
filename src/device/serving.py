"""The serving interpreter, asked from outside: ``inside.py`` run in it, with a time limit.

The device job runs where there is no torch; torch and vLLM answer in their own interpreter, whose
packages, environment variables and devices are the ones that will serve.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from adrbench import scratch
from adrbench.device.tools import Output, Probe, call, first_line
from adrbench.paths import PYTHONPATH

# An import of vLLM takes 10 s on a quiet laptop and over a minute from a cold network file system.
LIMIT_S = 300.0


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    """This process's environment with ours on PYTHONPATH, before what the host put there."""
    given = {**os.environ, **extra}
    paths = [str(PYTHONPATH), *(os.path.abspath(p) for p in given.get("PYTHONPATH", "").split(os.pathsep) if p)]
    return {**given, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)), "VLLM_NO_USAGE_STATS": "1"}


def ask(python: str, limit_s: float = LIMIT_S, extra: Mapping[str, str] | None = None) -> tuple[dict[str, Any], Output]:
    """What the interpreter says (``inside.py``'s record, possibly partial), and how its process ended."""
    with scratch.folder() as folder:
        path = folder / "inside.json"
        # Run in an empty folder: "-m" puts the working folder first on the import path.
        command = [os.path.abspath(python) if os.sep in python else python, "-m", "adrbench.device.inside", str(path)]
        output = call([*command, str(int(limit_s) + 10)], limit_s, environment(extra or {}), folder)
        try:
            return json.loads(path.read_text()), output
        except (OSError, ValueError):
            return {}, output


def _words(record: Mapping[str, Any]) -> str:
    torch, vllm = record.get("torch"), record.get("vllm")
    parts = [f"python {record['python']['version']}"]
    parts.append(f"torch {torch.get('version')}" if torch else "no torch")
    if vllm:
        parts.append(f"vLLM {vllm.get('version')} on {vllm.get('platform', 'unknown')}")
    else:
        parts.append("no vLLM")
    parts += [part["problem"] for part in (torch, vllm) if part and part.get("problem")]
    return ", ".join(parts)


def as_probe(python: str, record: Mapping[str, Any], output: Output) -> Probe:
    """The answer as a probe; an import error inside is a failure, a missing package is not."""
    command = (python, "-m", "adrbench.device.inside")
    raw = json.dumps(record, indent=1) + "\n" + output.text + output.error
    if not record:
        summary = first_line(output.error.strip().splitlines()[-1] if output.error.strip() else "said nothing")
        return Probe("serving interpreter", "failed" if output.status == "ok" else output.status, summary, command,
                     output.seconds, raw=raw)  # fmt: skip
    if output.status != "ok":
        summary = f"{_words(record)}; ended ({output.status}) while reading {record.get('stage')}"
        return Probe("serving interpreter", output.status, summary, command, output.seconds, raw=raw)
    broken = any((record.get(part) or {}).get("problem") for part in ("torch", "vllm", "fp8"))
    facts = {key: record.get(key) for key in ("python", "packages", "torch", "vllm")}
    return Probe(
        "serving interpreter", "failed" if broken else "ok", _words(record), command, output.seconds, facts, raw
    )
