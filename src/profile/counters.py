"""The deeper pass: memory traffic of decode by hardware counters, beside the bytes model.

    python -m adrbench.profile.counters --spec JSON --output FILE

``ncu`` (NVIDIA) or ``rocprofv3`` (AMD) watches a bounded decode in one process
(:mod:`adrbench.profile.counters_window`). Only bytes are read from it: under these tools kernels run one
at a time, so their times are not those of a server. Where the tool is absent, may not read the counters, or
counts nothing, the evidence says so with the reason and holds no number. Command lines and parsers are
tested on samples of the tools' documented output; ``rocprofv3`` is unverified on ROCm and on DCU.
"""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adrbench.evidence import Evidence, digest_raw, now, raw_folder, write
from adrbench.job import JobError, run, say
from adrbench.profile.model_bytes import decode_step_bytes, kv_format
from adrbench.profile.model_shape import ModelConfigError, load_shape
from adrbench.serve.process import job_environment, run_guarded

SCRIPT = Path(__file__).with_name("counters_window.py")
STEPS = 4
TIMEOUT_S = 1800.0
# Where installers put the tools when they are not on PATH, newest first.
USUAL = {
    "ncu": ("/usr/local/cuda/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu"),
    "rocprofv3": ("/opt/rocm/bin/rocprofv3", "/opt/dtk/bin/rocprofv3"),
}
TOOL_OF = {"nvidia": "ncu", "amd": "rocprofv3", "hygon": "rocprofv3"}
NCU_METRICS = {"read": "dram__bytes_read.sum", "write": "dram__bytes_write.sum", "time": "gpu__time_duration.sum"}
ROCPROF_COUNTERS = {"read": "FETCH_SIZE", "write": "WRITE_SIZE"}
# FETCH_SIZE and WRITE_SIZE are defined in KiB.
ROCPROF_UNIT = 1024
SCALE = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
SECONDS = {"ns": 1e-9, "nsecond": 1e-9, "us": 1e-6, "usecond": 1e-6, "ms": 1e-3, "msecond": 1e-3, "s": 1.0}


class Absent(Exception):
    """Counters cannot be had here: the text says why and what would help."""


@dataclass(frozen=True)
class Dispatch:
    """One kernel's run: traffic of device memory in bytes (None: not counted in this pass), begin and end in ns."""

    kernel: str
    read: float | None = None
    write: float | None = None
    begin_ns: int | None = None
    end_ns: int | None = None


def find_tool(vendor: str, usual: dict[str, tuple[str, ...]] | None = None) -> str:
    """Path of the vendor's counter tool.

    Raises:
        Absent: it is not installed, or there is none for this kind of device.
    """
    name = TOOL_OF.get(vendor)
    if name is None:
        raise Absent(f"no counter tool is known for a device of vendor {vendor!r}")
    if found := shutil.which(name):
        return found
    for pattern in (usual or USUAL)[name]:
        root = Path(pattern)
        matches = sorted(root.parent.parent.glob(f"{root.parent.name}/{root.name}")) if "*" in pattern else [root]
        for path in reversed(matches):
            if path.is_file():
                return str(path)
    raise Absent(f"{name} is not installed (not on PATH, not in {', '.join((usual or USUAL)[name])})")


def ncu_command(tool: str, log: Path, command: Sequence[str]) -> list[str]:
    """Nsight Compute over the switched window: single-pass metrics, caches and clocks as the server has them."""
    return [
        tool, "--csv", "--print-units", "base", "--log-file", str(log), "--target-processes", "all",
        "--profile-from-start", "off", "--graph-profiling", "node", "--cache-control", "none",
        "--clock-control", "none", "--metrics", ",".join(NCU_METRICS.values()), *command,
    ]  # fmt: skip


def rocprof_command(tool: str, folder: Path, counter: str, command: Sequence[str]) -> list[str]:
    """rocprofv3 for one counter: reads and writes do not fit one pass on every chip. The whole run is counted."""
    return [
        tool, "--pmc", counter, "--output-format", "csv", "--output-directory", str(folder),
        "--output-file", counter.lower(), "--", *command,
    ]  # fmt: skip


def _number(text: str) -> float | None:
    """A number as the tools print it (thousands separated by commas); None for ``n/a`` and the like."""
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


def _table(lines: Iterable[str], needed: Sequence[str], path: Path) -> Iterator[dict[str, str]]:
    """Rows of a CSV table that may stand below other lines of the tool.

    Raises:
        Absent: no heading with the needed columns.
    """
    kept = iter(lines)
    for line in kept:
        if all(f'"{name}"' in line or name in line.strip().split(",") for name in needed):
            heading = next(csv.reader([line]))
            yield from csv.DictReader((row for row in kept if row.startswith('"') or row[:1].isdigit()), heading)
            return
    raise Absent(f"{path.name} has no table with the columns {', '.join(needed)}")


def parse_ncu(path: Path) -> list[Dispatch]:
    """Dispatches of an ncu log made by :func:`ncu_command`.

    Raises:
        Absent: the driver refuses the counters, or there is no table.
    """
    text = path.read_text(errors="replace")
    if "ERR_NVGPUCTRPERM" in text:
        raise Absent(
            "the driver allows performance counters to administrators only (ERR_NVGPUCTRPERM); run as root or set "
            "NVreg_RestrictProfilingToAdminUsers=0"
        )
    found: dict[str, dict[str, Any]] = {}
    by_metric = {metric: name for name, metric in NCU_METRICS.items()}
    for row in _table(text.splitlines(), ("ID", "Kernel Name", "Metric Name", "Metric Unit", "Metric Value"), path):
        name, value = by_metric.get(row["Metric Name"]), _number(row["Metric Value"])
        if name is None or value is None:
            continue
        entry = found.setdefault(row["ID"], {"kernel": row["Kernel Name"]})
        unit = row["Metric Unit"]
        entry[name] = value * (SECONDS.get(unit, 1.0) if name == "time" else SCALE.get(unit.removesuffix("byte"), 1.0))
    return [Dispatch(e["kernel"], e.get("read"), e.get("write")) for e in found.values()]


def parse_rocprof(path: Path) -> list[Dispatch]:
    """Dispatches of one of rocprofv3's ``*_counter_collection.csv``.

    Raises:
        Absent: no table.
    """
    needed = ("Dispatch_Id", "Kernel_Name", "Counter_Name", "Counter_Value", "Start_Timestamp", "End_Timestamp")
    by_counter = {counter: name for name, counter in ROCPROF_COUNTERS.items()}
    result = []
    for row in _table(path.read_text(errors="replace").splitlines(), needed, path):
        name, value = by_counter.get(row["Counter_Name"]), _number(row["Counter_Value"])
        if name is None or value is None:
            continue
        counted = {name: value * ROCPROF_UNIT}
        result.append(
            Dispatch(
                row["Kernel_Name"], begin_ns=int(row["Start_Timestamp"]), end_ns=int(row["End_Timestamp"]), **counted
            )
        )
    return result


def within(dispatches: list[Dispatch], begin_ns: int, end_ns: int) -> list[Dispatch]:
    """Dispatches that began in the window, of a tool that counted the whole run."""
    return [d for d in dispatches if d.begin_ns is not None and begin_ns <= d.begin_ns <= end_ns]


def traffic(dispatches: list[Dispatch], steps: int) -> dict[str, Any]:
    """Bytes per step read from and written to device memory, and the kernels that read most.

    Raises:
        Absent: nothing was counted.
    """
    read = [d.read for d in dispatches if d.read is not None]
    written = [d.write for d in dispatches if d.write is not None]
    if not read or not written:
        raise Absent("the tool counted no kernel in the window")
    by_kernel: dict[str, float] = {}
    for d in dispatches:
        by_kernel[d.kernel] = by_kernel.get(d.kernel, 0.0) + (d.read or 0.0)
    biggest = sorted(by_kernel.items(), key=lambda item: -item[1])[:5]
    return {
        "read_bytes_per_step": sum(read) / steps,
        "written_bytes_per_step": sum(written) / steps,
        "kernels_per_step": len(read) / steps,
        "biggest_readers": [[name[:120], value / steps] for name, value in biggest],
    }


def beside_model(counted: dict[str, Any], spec: dict[str, Any], window: dict[str, Any]) -> dict[str, Any]:
    """The bytes model's step for the window, and counted over modelled reads and writes together."""
    shape = load_shape(Path(spec["model"]))
    kv = kv_format(spec.get("kv_dtype") or "auto", shape.weight_bytes_per_value)
    step = decode_step_bytes(shape, [window["context_tokens"]] * window["batch"], kv)
    total = counted["read_bytes_per_step"] + counted["written_bytes_per_step"]
    return {"model_bytes_per_step": step.total, "counted_over_model": total / step.total}


def execute(command: Sequence[str], log: Path, environment: dict[str, str]) -> None:
    """Run one pass of the tool.

    Raises:
        Absent: it failed or ran into its limit; the last line of its output is the reason.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    try:
        code = run_guarded(list(command), log, environment, TIMEOUT_S, [])
    except (OSError, JobError) as error:
        raise Absent(f"{command[0]} could not be run: {error}") from None
    if code:
        last = ([line for line in log.read_text(errors="replace").splitlines() if line.strip()] or ["no output"])[-1]
        raise Absent(f"{command[0]} ended with code {code}: {last[:300]}")


def count(spec: dict[str, Any], tool: str, folder: Path) -> tuple[list[Dispatch], dict[str, Any]]:
    """Run the vendor's tool over the window; its dispatches and what the window was."""
    settings, result = folder / "window.json", folder / "result.json"
    settings.write_text(json.dumps({key: spec[key] for key in ("model", "args", "workload")} | {"steps": STEPS}))
    environment = job_environment(spec["env"] | {"LC_ALL": "C", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"})
    window_command = [spec["python"], str(SCRIPT), str(settings), str(result)]
    if Path(tool).name == "ncu":
        log = folder / "ncu.csv"
        execute(ncu_command(tool, log, window_command), folder / "window.log", environment)
        return parse_ncu(log), json.loads(result.read_text())
    dispatches: list[Dispatch] = []
    for counter in ROCPROF_COUNTERS.values():
        execute(rocprof_command(tool, folder, counter, window_command), folder / f"{counter}.log", environment)
        window = json.loads(result.read_text())
        files = sorted(folder.rglob(f"{counter.lower()}*counter_collection.csv"))
        if not files:
            raise Absent(f"{Path(tool).name} wrote no counter_collection.csv for {counter}: does the chip define it?")
        dispatches += within(parse_rocprof(files[-1]), window["begin_ns"], window["end_ns"])
    return dispatches, window


def work(spec: dict[str, Any], output: Path) -> None:
    """One arm's deeper pass, as evidence; with the reason in place of numbers where it cannot be had."""
    started, folder = now(), raw_folder(output)
    for key in ("platform", "vendor", "model", "python", "args", "env", "workload"):
        if key not in spec:
            raise JobError("bad-spec", f"spec: {key} is missing")
    folder.mkdir(parents=True, exist_ok=True)
    measured: dict[str, Any]
    try:
        tool = find_tool(spec["vendor"])
        say(f"counting memory traffic of {STEPS} decode steps with {tool}")
        dispatches, window = count(spec, tool, folder)
        counted = traffic(dispatches, window["steps"])
        measured = {"tool": tool, "window": window, **counted, **beside_model(counted, spec, window)}
    except Absent as reason:
        say(f"absent: {reason}")
        measured = {"absent": str(reason)}
    except ModelConfigError as error:
        raise JobError("model-config", str(error)) from None
    raw = sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())
    write(
        output,
        Evidence(
            stage="profile",
            platform=spec["platform"],
            arm=spec.get("arm", {}).get("name"),
            tier="counters",
            asked=spec,
            measured=measured,
            files=digest_raw(output, raw),
            notes=[]
            if spec["vendor"] == "nvidia"
            else ["rocprofv3's command and output are unverified on this device"],
            started_at=started,
            finished_at=now(),
        ),
    )


if __name__ == "__main__":
    run("counters", work)
