"""Trace reader against the obvious alternatives: speed per core and peak memory, one process each.

    PYTHONPATH=pythonpath python benchmarks/trace_reader.py [--megabytes 200 2000] [--trace FILE] \
        [--hta-python /path/to/venv/bin/python] [--output FILE.json]

HolisticTraceAnalysis (HTA) runs in an interpreter of its own (``pip install HolisticTraceAnalysis``): it is no
part of the project's environments. Its speed is that of parsing alone; it has no notion of a serving phase.

A trace of the asked size is made in Kineto's layout (CPU operators of decode steps, tiled), or a recorded
one is named. Every contender answers the same question from it: seconds per phase and per operator in it.
Only this project's answer is self time; the others count nested operators twice, which is less work.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.util
import json
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

OPERATORS = ("aten::linear", "aten::mm", "_C::rms_norm", "aten::mul", "aten::to", "aten::_to_copy", "aten::copy_")
STEP_OPERATORS = 4500
# json.load needs about this many times the text's size; above it a contender is left out, not killed.
LOADED_FACTOR, LOADED_LIMIT_BYTES = 8, 6 << 30


def event(category: str, name: str, start: float, duration: float, number: int) -> str:
    """One event as Kineto writes it on CPU."""
    return (
        f'  {{\n    "ph": "X",\n    "cat": "{category}",\n    "name": "{name}",\n    "pid": 7286,\n    "tid": 7286,\n'
        f'    "ts": {start:.3f},\n    "dur": {duration:.3f}\n    ,\n    "args": {{\n'
        f'      "External id": {number},"Record function id": 0, "Ev Idx": {number}\n    }}\n  }}'
    )


def step_text(number: int) -> str:
    """One step of 60 ms: an annotation and its operators in nested pairs."""
    start = 5_113_519_000_000.0 + 61_000.0 * number
    name = "execute_context_1(512)_generation_0(0)" if number % 40 == 0 else "execute_context_0(0)_generation_4(4)"
    events = [event("user_annotation", name, start, 60_000.0, 0)]
    for i in range(STEP_OPERATORS // 2):
        at = start + 26.0 * i
        events.append(event("cpu_op", OPERATORS[i % len(OPERATORS)], at, 25.0, 2 * i))
        events.append(event("cpu_op", OPERATORS[(i + 1) % len(OPERATORS)], at + 1, 20.0, 2 * i + 1))
    return ",\n".join(events)


def make_trace(path: Path, megabytes: int) -> None:
    """Write a gzip trace of about ``megabytes`` MB of raw JSON."""
    written, number = 0, 0
    with gzip.open(path, "wt", compresslevel=1) as f:
        f.write('{\n    "schemaVersion": 1,\n    "traceEvents": [\n    \n')
        while written < megabytes * 1_000_000:
            text = (",\n" if number else "") + step_text(number)
            f.write(text)
            written, number = written + len(text), number + 1
        f.write('\n  ],"traceName": "/tmp/a.json" }')


def streaming(path: Path) -> dict[str, Any]:
    """This project's reader: phases and self time."""
    from adrbench.profile.phases import phase_table, read_phases

    return {phase: row["seconds"] for phase, row in phase_table(read_phases(path)[0]).items()}


def json_only(path: Path) -> dict[str, Any]:
    """json.load of the whole, and a loop over the annotations only."""
    with gzip.open(path, "rb") as f:
        events = json.load(f)["traceEvents"]
    seconds = {"prefill": 0.0, "decode": 0.0}
    for e in events:
        if e.get("cat") == "user_annotation" and e["name"].startswith("execute_context"):
            seconds["decode" if "context_0(" in e["name"] else "prefill"] += e["dur"] / 1e6
    return seconds


def json_pandas(path: Path) -> dict[str, Any]:
    """json.load into a frame, operators joined to their step by time."""
    import pandas as pd

    with gzip.open(path, "rb") as f:
        frame = pd.DataFrame(json.load(f)["traceEvents"])
    frame = frame[frame["ph"] == "X"].sort_values("ts")
    steps = frame[(frame["cat"] == "user_annotation") & frame["name"].str.startswith("execute_context")]
    named = steps.assign(phase=steps["name"].map(lambda n: "decode" if re.search(r"context_0\(", n) else "prefill"))
    joined = pd.merge_asof(frame[frame["cat"] == "cpu_op"], named[["ts", "phase"]], on="ts")
    joined.groupby(["phase", "name"])["dur"].sum()
    return (named.groupby("phase")["dur"].sum() / 1e6).to_dict()


def hta(path: Path) -> dict[str, Any]:
    """HolisticTraceAnalysis: its parser into a frame, nothing else."""
    from hta.common.trace_parser import parse_trace_dataframe
    from hta.configs.parser_config import ParserConfig

    return {"rows": len(parse_trace_dataframe(str(path), ParserConfig())[1])}


CONTENDERS = {f.__name__: f for f in (streaming, json_only, json_pandas, hta)}


def run_one(name: str, path: Path) -> None:
    """Run one contender in this process and print its cost."""
    wall, cpu = time.perf_counter(), time.process_time()
    answer = CONTENDERS[name](path)
    cost = {
        "wall_s": time.perf_counter() - wall,
        "cpu_s": time.process_time() - cpu,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "answer": answer,
    }
    print(json.dumps(cost))


def raw_size(path: Path) -> int:
    """Bytes of the decompressed text."""
    with gzip.open(path, "rb") as f:
        return sum(len(block) for block in iter(lambda: f.read(1 << 20), b""))


def left_out(name: str, raw_bytes: int, hta_python: str | None) -> str | None:
    """Why a contender is not run; None when it is."""
    if name == "hta" and hta_python is None and importlib.util.find_spec("hta") is None:
        return "not installed: name its interpreter with --hta-python"
    if name != "streaming" and raw_bytes * LOADED_FACTOR > LOADED_LIMIT_BYTES:
        return f"would need about {raw_bytes * LOADED_FACTOR / 2**30:.0f} GiB"
    return None


def run_contender(name: str, path: Path, hta_python: str | None) -> dict[str, Any]:
    """One contender in a process of its own: its cost, or why it failed."""
    python = hta_python if name == "hta" and hta_python else sys.executable
    command = [python, __file__, "--contender", name, "--trace", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1][:200]}
    return dict(json.loads(done.stdout.splitlines()[-1]))


def compare(path: Path, hta_python: str | None = None) -> dict[str, Any]:
    """Print one line per contender for one trace, and give all of it."""
    raw = raw_size(path)
    print(f"\n{path.name}: {raw / 1e6:.0f} MB of JSON, {path.stat().st_size / 1e6:.1f} MB gzip", flush=True)
    rows: dict[str, Any] = {}
    for name in CONTENDERS:
        why = left_out(name, raw, hta_python)
        row = {"left_out": why} if why else run_contender(name, path, hta_python)
        rows[name] = row
        if "cpu_s" not in row:
            print(f"  {name:12} {row.get('left_out') or 'failed: ' + row['failed']}", flush=True)
            continue
        row["mb_per_s_of_one_core"] = raw / 1e6 / row["cpu_s"]
        row["times_slower"] = row["cpu_s"] / rows["streaming"]["cpu_s"]
        print(
            f"  {name:12} {row['mb_per_s_of_one_core']:6.0f} MB/s per core  {row['cpu_s']:6.1f} s CPU  "
            f"{row['wall_s']:6.1f} s wall  {row['peak_mib']:6.0f} MiB  {row['times_slower']:4.1f} x  {row['answer']}",
            flush=True,
        )
    return {"trace": path.name, "raw_bytes": raw, "gzip_bytes": path.stat().st_size, "contenders": rows}


def main() -> None:
    """Make traces of the asked sizes, or take a recorded one, and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, nargs="+", default=[200, 2000])
    parser.add_argument("--trace", type=Path)
    parser.add_argument("--contender", choices=sorted(CONTENDERS))
    parser.add_argument("--hta-python", help="interpreter that has HolisticTraceAnalysis")
    parser.add_argument("--output", type=Path, help="JSON of all that was measured")
    arguments = parser.parse_args()
    if arguments.contender:
        run_one(arguments.contender, arguments.trace)
        return
    results = []
    if arguments.trace:
        results.append(compare(arguments.trace, arguments.hta_python))
    else:
        with tempfile.TemporaryDirectory() as folder:
            for megabytes in arguments.megabytes:
                path = Path(folder) / f"made-{megabytes}.pt.trace.json.gz"
                make_trace(path, megabytes)
                results.append(compare(path, arguments.hta_python))
    if arguments.output:
        arguments.output.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
