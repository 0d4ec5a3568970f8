"""Power, memory, clocks and load, sampled beside a measurement, and who else uses the device.

Sampling happens in one thread, about once a second, and stays a bystander: whatever a tool does, the
measurement goes on and the summary says what is absent and why. A tool that is slow is asked less
often, so that it takes no more than a fifth of one core from the measurement.

Unverified on DCU: the readers of hy-smi were written from recorded outputs.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from adrbench.device import processor, smi, smijson
from adrbench.device.smi import MIB
from adrbench.device.tools import run_tool

Kind = Literal["cpu", "nvidia", "amd", "hygon"]
Reading = dict[str, float]

ROOT = Path("/")
INTERVAL_S = 1.0
TOOL_LIMIT_S = 10.0
# A tool may keep one core busy for at most one part in this many.
LARGEST_SHARE = 5
FAILURES_BEFORE_GIVING_UP = 3

NVIDIA_FIELDS = {
    "power.draw": "power_w", "memory.used": "memory_used_bytes", "clocks.sm": "clock_core_mhz",
    "clocks.mem": "clock_memory_mhz", "utilization.gpu": "utilisation_percent", "temperature.gpu": "temperature_c",
}  # fmt: skip
SMI_ARGUMENTS = ("--showpower", "--showmeminfo", "vram", "--showuse", "--showclocks", "--json")
DEVICE_METRICS = (*NVIDIA_FIELDS.values(), "memory_used_percent")

# How one number is made of several devices: what adds up is added, a clock is that of the slowest device.
COMBINE: dict[str, Callable[[Sequence[float]], float]] = {
    "power_w": sum,
    "memory_used_bytes": sum,
    "clock_core_mhz": min,
    "clock_memory_mhz": min,
    "temperature_c": max,
}


class Unavailable(RuntimeError):
    """A source gave no sample; the message says why."""


def combine(devices: Sequence[Reading]) -> Reading:
    """One reading of all devices: sums, minima and maxima by ``COMBINE``, means otherwise."""
    names = dict.fromkeys(name for device in devices for name in device)
    return {
        name: COMBINE.get(name, statistics.fmean)([device[name] for device in devices if name in device])
        for name in names
    }


def summarise(samples: Sequence[Reading]) -> dict[str, dict[str, float | int]]:
    """{metric: {min, median, max, samples}}; a metric's samples may be fewer than the ticks."""
    names = sorted({name for sample in samples for name in sample})
    columns = {name: [sample[name] for sample in samples if name in sample] for name in names}
    return {name: _spread(column, whole=name.endswith("_bytes")) for name, column in columns.items()}


def _spread(values: Sequence[float], whole: bool) -> dict[str, float | int]:
    spread: dict[str, float | int] = {"min": min(values), "median": statistics.median(values), "max": max(values)}
    return {**({name: round(value) for name, value in spread.items()} if whole else spread), "samples": len(values)}


def visible(kind: Kind) -> tuple[str, ...] | None:
    """Devices that the visible-devices variables allow, as the tool may be asked for them; None for all.

    Numbers are taken to mean what the tool's numbers mean, which holds on hosts whose cards are all of one type.
    """
    names = ("CUDA_VISIBLE_DEVICES",) if kind == "nvidia" else ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
    words = next((os.environ[name].split(",") for name in names if os.environ.get(name)), [])
    chosen = tuple(word.strip() for word in words)
    fit = all(word.isdigit() or (kind == "nvidia" and word.startswith("GPU-")) for word in chosen)
    return chosen if chosen and fit else None


def nvidia_reading(text: str) -> list[Reading]:
    """Rows of ``nvidia-smi --query-gpu=index,...``; a cell such as ``[N/A]`` is left out."""
    readings = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != len(NVIDIA_FIELDS) + 1:
            raise Unavailable(f"nvidia-smi printed {line[:80]!r}")
        reading = {"index": float(cells[0])}
        for name, cell in zip(NVIDIA_FIELDS.values(), cells[1:], strict=True):
            if (value := smi.number(cell)) is not None and not cell.startswith("["):
                reading[name] = value * MIB if name.endswith("_bytes") else value
        readings.append(reading)
    return readings


def smi_reading(text: str) -> list[Reading]:
    """Cards of ``hy-smi`` or ``rocm-smi``: JSON (repaired where safe), line form, or table."""
    try:
        cards = smi.from_json(smijson.read(text)[0])
    except smijson.Unreadable:
        cards = smi.from_lines(text) or smi.from_table(text)
    wanted = ("index", *DEVICE_METRICS)
    return [{name: float(card[name]) for name in wanted if name in card} for card in cards]


class DeviceSource:
    """Readings through the vendor's tool; asks for its plain table instead when the options bring nothing."""

    def __init__(self, kind: Kind, chosen: Sequence[str] | None, root: Path):
        self.chosen, self.root = chosen, root
        self.tools = {"nvidia": ("nvidia-smi",), "amd": ("rocm-smi",), "hygon": ("hy-smi", "rocm-smi")}[kind]
        self.plain = False

    def _arguments(self, tool: str) -> tuple[str, ...]:
        if tool != "nvidia-smi":
            return () if self.plain else SMI_ARGUMENTS
        query = (f"--query-gpu=index,{','.join(NVIDIA_FIELDS)}", "--format=csv,noheader,nounits")
        return (*query, f"--id={','.join(self.chosen)}") if self.chosen else query

    def _ask(self, tool: str) -> list[Reading]:
        _, output = run_tool(tool, self._arguments(tool), TOOL_LIMIT_S, self.root)
        if output.status == "ok":
            readings = nvidia_reading(output.text) if tool == "nvidia-smi" else smi_reading(output.text)
            if tool == "nvidia-smi" or self.chosen is None:
                mine = readings
            else:
                mine = [one for one in readings if str(int(one["index"])) in self.chosen]
            if mine:
                return [{name: value for name, value in one.items() if name != "index"} for one in mine]
        if not self.plain and tool != "nvidia-smi" and output.status in ("ok", "failed"):
            self.plain = True
            return self._ask(tool)
        reason = "no device in its output" if output.status == "ok" else f"{output.status} {output.error[:120]}"
        raise Unavailable(f"{tool}: {reason.strip()}")

    def read(self) -> Reading:
        """One combined reading.

        Raises:
            Unavailable: naming each tool and what became of it.
        """
        reasons = []
        for tool in self.tools:
            try:
                return combine(self._ask(tool))
            except Unavailable as error:
                reasons.append(str(error))
        raise Unavailable("; ".join(reasons))

    def missing(self, seen: set[str]) -> list[str]:
        return [f"{name}: {self.tools[0]} does not offer it" for name in NVIDIA_FIELDS.values() if name not in seen]


class CpuSource:
    """Load, memory, clock and package power from /proc and /sys; the program under test is not told apart."""

    def __init__(self, root: Path):
        self.root = root
        self.busy = self._busy()
        self.energy = self._energy()

    def _text(self, name: str) -> str:
        return processor.text_of(self.root / name) or ""

    def _busy(self) -> tuple[float, float]:
        """(busy, total) jiffies of all processors; idle and iowait are not busy, guest time is already in user time."""
        cells = [float(cell) for cell in self._text("proc/stat").partition("\n")[0].split()[1:9]]
        return (sum(cells) - sum(cells[3:5]), sum(cells)) if cells else (0.0, 0.0)

    def _energy(self) -> tuple[float, float] | None:
        """(joules, seconds) of all packages, or None where the counter is absent or only root may read it."""
        paths = sorted((self.root / "sys/class/powercap").glob("*-rapl:[0-9]/energy_uj"))
        texts = [processor.text_of(path) for path in paths]
        if not texts or any(text is None for text in texts):
            return None
        return sum(int(text or 0) for text in texts) / 1e6, time.monotonic()

    def _clock_mhz(self) -> float | None:
        paths = (self.root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_cur_freq")
        clocks = [int(text) / 1000 for path in paths if (text := processor.text_of(path))]
        clocks = clocks or processor.cpuinfo(self._text("proc/cpuinfo"))["clocks_mhz"]
        return statistics.fmean(clocks) if clocks else None

    def read(self) -> Reading:
        """One reading; power and utilisation are means since the one before."""
        reading: Reading = {}
        if load := self._text("proc/loadavg").split():
            reading["load_average_1min"] = float(load[0])
        memory = processor.meminfo(self._text("proc/meminfo"))
        if "MemAvailable" in memory:
            reading["memory_used_bytes"] = float(memory["MemTotal"] - memory["MemAvailable"])
        if (clock := self._clock_mhz()) is not None:
            reading["clock_core_mhz"] = clock
        before, self.busy = self.busy, self._busy()
        if self.busy[1] > before[1]:
            reading["utilisation_percent"] = 100 * (self.busy[0] - before[0]) / (self.busy[1] - before[1])
        energy_before, self.energy = self.energy, self._energy()
        # The counter wraps about once an hour; the sample across a wrap is left out.
        if energy_before and self.energy and self.energy[0] >= energy_before[0] and self.energy[1] > energy_before[1]:
            reading["power_w"] = (self.energy[0] - energy_before[0]) / (self.energy[1] - energy_before[1])
        if not reading:
            raise Unavailable("/proc is not readable")
        return reading

    def missing(self, seen: set[str]) -> list[str]:
        reasons = {
            "power_w": "RAPL counter absent or readable by root only",
            "clock_core_mhz": "neither cpufreq nor /proc/cpuinfo gives a clock",
            "memory_used_bytes": "/proc/meminfo gives no MemAvailable",
            "load_average_1min": "/proc/loadavg not readable",
        }
        return [f"{name}: {reason}" for name, reason in reasons.items() if name not in seen]


class Sampler:
    """Samples a device while the ``with`` block runs.

        with Sampler("nvidia") as sampler:
            measure()
        evidence["device"] = sampler.summary()

    ``indices`` are the device numbers to sample (default: those that the visible-devices variables
    allow, else all). Never raises and never fails the measurement; leaving the block takes at most
    as long as one call of the tool.
    """

    def __init__(
        self, kind: Kind, indices: Sequence[int] | None = None, interval_s: float = INTERVAL_S, root: Path | None = None
    ):
        self.kind: Kind = kind
        self.interval_s = interval_s
        self.samples: list[Reading] = []
        self.problems: list[str] = []
        self._chosen = visible(kind) if indices is None else tuple(str(index) for index in indices)
        self._root = root or ROOT
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._source: DeviceSource | CpuSource | None = None

    def __enter__(self) -> Sampler:
        try:
            if self.kind == "cpu":
                self._source = CpuSource(self._root)
            else:
                self._source = DeviceSource(self.kind, self._chosen, self._root)
            self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)
            self._thread.start()
        except Exception as error:
            self.problems.append(f"sampling did not start: {type(error).__name__}: {error}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(TOOL_LIMIT_S + 2)

    def _run(self) -> None:
        failures = 0
        while self._source is not None and failures < FAILURES_BEFORE_GIVING_UP:
            started = time.monotonic()
            try:
                self.samples.append(self._source.read())
                failures = 0
            except Exception as error:
                failures += 1
                text = str(error) if isinstance(error, Unavailable) else f"{type(error).__name__}: {error}"
                if text not in self.problems:
                    self.problems.append(text)
            cost_s = time.monotonic() - started
            if self._stop.wait(max(self.interval_s - cost_s, (LARGEST_SHARE - 1) * cost_s)):
                return
        self.problems.append(f"sampling stopped after {failures} failures in a row")

    def summary(self) -> dict[str, Any]:
        """{metric: {min, median, max, samples}, "absent": [reasons]}; units are in the metrics' names."""
        samples = list(self.samples)
        if not samples:
            return {"absent": self.problems or ["no sample was taken: the block was too short"]}
        seen = {name for sample in samples for name in sample}
        missing = self._source.missing(seen) if self._source is not None else []
        return {**summarise(samples), "absent": [*self.problems, *missing]}

    def neighbours(self) -> dict[str, Any]:
        """``neighbours`` of this sampler's device."""
        from adrbench.device.neighbours import neighbours

        return neighbours(self.kind, root=self._root)
