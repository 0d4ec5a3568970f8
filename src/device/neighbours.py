"""Who else is on the device: asked before and after a measurement, never during it.

A second server on the card, or a build on the laptop, spoils numbers without failing anything.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from adrbench.device import processor, smi
from adrbench.device.smi import MIB
from adrbench.device.telemetry import visible
from adrbench.device.tools import run_tool

ROOT = Path("/")
TOOL_LIMIT_S = 10.0
WINDOW_S = 0.25
# Below this a desktop's own noise would be listed.
LEAST_CORES = 0.1

NVIDIA_ARGUMENTS = ("--query-compute-apps=pid,process_name,used_memory", "--format=csv,noheader,nounits")


def processes(root: Path) -> dict[int, tuple[str, int, int]]:
    """pid -> (command name, parent, processor ticks used), from /proc."""
    found = {}
    for path in root.glob("proc/[0-9]*/stat"):
        text = processor.text_of(path)
        if not text or ")" not in text:
            continue
        head, _, tail = text.rpartition(")")
        cells = tail.split()
        found[int(path.parent.name)] = (head.partition("(")[2], int(cells[1]), int(cells[11]) + int(cells[12]))
    return found


def family(table: Mapping[int, tuple[str, int, int]], pid: int) -> set[int]:
    """``pid`` with its ancestors and descendants: the measurement itself, and what started it."""
    children: dict[int, list[int]] = {}
    for child, (_, parent, _) in table.items():
        children.setdefault(parent, []).append(child)
    own, todo = {pid}, [pid]
    while todo:
        found = [child for child in children.get(todo.pop(), []) if child not in own]
        own.update(found)
        todo += found
    while pid in table and table[pid][1] not in (0, *own):
        pid = table[pid][1]
        own.add(pid)
    return own


def busy(before: Mapping[int, tuple[str, int, int]], after: Mapping[int, tuple[str, int, int]], seconds: float,
         own: set[int], ticks_per_s: int) -> list[dict[str, Any]]:  # fmt: skip
    """Processes outside ``own`` that used a tenth of a core or more, busiest first."""
    found = []
    for pid, (name, _, ticks) in after.items():
        if pid in own or pid not in before:
            continue
        cores = (ticks - before[pid][2]) / ticks_per_s / seconds
        if cores >= LEAST_CORES:
            found.append({"pid": pid, "name": name, "cores": round(cores, 2)})
    return sorted(found, key=lambda one: -float(one["cores"]))


def on_cpu(root: Path, window_s: float) -> tuple[list[dict[str, Any]], list[str]]:
    before, started = processes(root), time.monotonic()
    time.sleep(window_s)
    after, seconds = processes(root), time.monotonic() - started
    if not after:
        return [], ["processes: /proc is not readable"]
    return busy(before, after, seconds, family(after, os.getpid()), os.sysconf("SC_CLK_TCK")), []


def from_nvidia(text: str) -> list[dict[str, Any]]:
    """Rows of ``nvidia-smi --query-compute-apps``. Inside a container the driver may name no process at all."""
    found = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) >= 3 and cells[0].isdigit():
            memory = smi.number(cells[-1])
            found.append({"pid": int(cells[0]), "name": ",".join(cells[1:-1]),
                          "memory_bytes": None if memory is None else int(memory) * MIB})  # fmt: skip
    return found


def from_smi(text: str) -> list[dict[str, Any]]:
    """Processes of ``--showpids``: hy-smi's blocks (``PID: n``, ``VRAM USED(MiB): n``) or rocm-smi's table (bytes)."""
    found: list[dict[str, Any]] = []
    for block in re.split(r"^(?=PID: )", text, flags=re.MULTILINE):
        if match := re.match(r"PID: (\d+)", block):
            memory = re.search(r"VRAM USED\(MiB\): (\d+)", block)
            used = int(memory[1]) * MIB if memory else None
            found.append({"pid": int(match[1]), "name": None, "memory_bytes": used})
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("\t")]
        if len(cells) >= 4 and cells[0].isdigit():
            used = int(cells[3]) if cells[3].isdigit() else None
            found.append({"pid": int(cells[0]), "name": cells[1], "memory_bytes": used})
    return found


def on_device(kind: str, root: Path) -> tuple[list[dict[str, Any]], list[str]]:
    tools = {"nvidia": ("nvidia-smi",), "amd": ("rocm-smi",), "hygon": ("hy-smi", "rocm-smi")}[kind]
    absent: list[str] = []
    # A server on another card of the host is no neighbour: another job of the same run may have it.
    chosen = visible("nvidia") if kind == "nvidia" else None
    only = (f"--id={','.join(chosen)}",) if chosen else ()
    for tool in tools:
        arguments = (*NVIDIA_ARGUMENTS, *only) if kind == "nvidia" else ("--showpids",)
        _, output = run_tool(tool, arguments, TOOL_LIMIT_S, root)
        if output.status == "ok":
            return (from_nvidia if kind == "nvidia" else from_smi)(output.text), absent
        absent.append(f"processes: {tool} {output.status} {output.error[:120]}".strip())
    return [], absent


def neighbours(kind: str, root: Path | None = None, window_s: float = WINDOW_S) -> dict[str, Any]:
    """Other processes on the device, and the load average, now.

    {"processes": [{"pid", "name", "cores" | "memory_bytes"}], "load_average_1min": float | None,
    "absent": [reasons]}. On an accelerator every process that the tool names is listed; the caller
    asks before its own server starts and after it ended. Never raises.
    """
    base = root or ROOT
    load = (processor.text_of(base / "proc/loadavg") or "").split()
    result: dict[str, Any] = {"processes": [], "load_average_1min": float(load[0]) if load else None, "absent": []}
    try:
        found, absent = on_cpu(base, window_s) if kind == "cpu" else on_device(kind, base)
        result.update(processes=found, absent=absent)
    except Exception as error:
        result["absent"] = [f"processes: {type(error).__name__}: {error}"]
    return result
