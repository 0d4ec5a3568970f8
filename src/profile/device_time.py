"""Device side of a trace: kernels by phase, busy time and gaps, for CUDA and ROCm traces.

On an accelerator the host only launches: a step's annotation on the host says when it was launched, and
its mirror on the device (``gpu_user_annotation``) when it ran. Kernels belong to the device step they
start in; the main stream's mirrors bound the steps. Where a trace has no mirror (some ROCm tracers write
none), a kernel belongs to the last host step that began before it, which is right while the host does
not run ahead; ``assigned_by`` says which.

A *cycle* is a device step and the time until the next one, in which vLLM samples and the device may wait for the
host. Its idle time is measured, whatever launched the kernels: one by one, or a graph that replays them.

A kernel costs 20 bytes here, so a trace of a hundred million events stays within a gigabyte or two of
its kernels; host operations cost nothing (:mod:`adrbench.profile.phases`).
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from adrbench.profile.op_classes import class_times
from adrbench.profile.step import PHASES, Step, parse_step

WORK = frozenset((b"kernel", b"gpu_memcpy", b"gpu_memset"))
MIRROR = b"gpu_user_annotation"
# Calls of the accelerator's runtime, on the host; ROCm's tracer has the same categories.
CALLS = frozenset((b"cuda_runtime", b"cuda_driver"))
CATEGORIES = WORK | CALLS | {MIRROR}
LAUNCH, GRAPH = b"Launch", b"GraphLaunch"


@dataclass
class DeviceSpans:
    """Kernels of the first device of a trace, and the device's own view of the steps."""

    starts: array[float] = field(default_factory=lambda: array("d"))
    durations: array[float] = field(default_factory=lambda: array("d"))
    name_ids: array[int] = field(default_factory=lambda: array("i"))
    names: dict[bytes, int] = field(default_factory=dict)
    mirrored: dict[bytes, list[Step]] = field(default_factory=dict)
    device: bytes | None = None
    other_device_spans: int = 0
    launches: array[float] = field(default_factory=lambda: array("d"))
    graph_launches: array[float] = field(default_factory=lambda: array("d"))
    host: bytes | None = None

    def add(self, category: bytes, name: bytes, place: tuple[bytes, bytes], start: float, duration: float) -> None:
        """Take one span of :data:`CATEGORIES` (us); place: device and stream, of a call process and thread."""
        if category in CALLS:
            self._call(name, place[0], start)
            return
        device, stream = place
        if self.device is None:
            self.device = device
        if device != self.device:
            self.other_device_spans += 1
            return
        if category == MIRROR:
            step = parse_step(name.decode(errors="replace"), start, duration)
            if step is not None:
                self.mirrored.setdefault(stream, []).append(step)
            return
        self.starts.append(start)
        self.durations.append(duration)
        self.name_ids.append(self.names.setdefault(name, len(self.names)))

    def _call(self, name: bytes, host: bytes, start: float) -> None:
        """Note when the first process of the trace launched something."""
        if LAUNCH in name:
            self.host = self.host or host
            if host == self.host:
                (self.graph_launches if GRAPH in name else self.launches).append(start)

    def steps(self) -> list[Step]:
        """Device steps by start, as the main stream saw them; a step is mirrored on every stream it used."""
        if not self.mirrored:
            return []
        main = max(self.mirrored.values(), key=lambda steps: sum(step.duration_us for step in steps))
        return sorted(main, key=lambda step: step.start_us)


@dataclass(frozen=True)
class DeviceSplit:
    """Device time by step.

    Arrays over kernels are by start, in us; ``owner`` is the number of a kernel's step, the last that began before it
    (-1: none), ``inside`` whether it started before that step's end.
    """

    steps: list[Step]
    assigned_by: str
    names: list[bytes]
    owner: Any
    inside: Any
    durations_us: Any
    busy_us: Any
    name_ids: Any
    launches: dict[str, dict[str, int]]

    def of(self, phase: str) -> Any:
        """Which steps are of this phase, as a mask."""
        return np.array([step.phase == phase for step in self.steps])

    def kernels(self, chosen: Any) -> Any:
        """Which kernels belong to one of the chosen steps (a mask over steps) or follow it, as a mask."""
        return (self.owner >= 0) & chosen[np.maximum(self.owner, 0)]

    def by_name_us(self, mask: Any) -> dict[bytes, float]:
        """Time of the masked kernels by name."""
        sums = np.bincount(self.name_ids[mask], self.durations_us[mask], minlength=len(self.names))
        return {self.names[int(i)]: float(sums[i]) for i in np.flatnonzero(sums)}


def _assign(starts: Any, steps: list[Step], bounded: bool) -> tuple[Any, Any]:
    """(step of each kernel or -1, whether it lies inside of it); not ``bounded``: whatever follows a step is inside."""
    step_starts = np.array([step.start_us for step in steps])
    step_ends = np.array([step.end_us for step in steps])
    # A mirror starts with its first kernel; half a nanosecond absorbs the rounding of printed times.
    owner = np.searchsorted(step_starts, starts + 5e-4, side="right") - 1
    inside = owner >= 0
    return owner, inside & (starts < step_ends[np.maximum(owner, 0)]) if bounded else inside


def _launched(spans: DeviceSpans, host_steps: list[Step]) -> dict[str, dict[str, int]]:
    """Calls that launched a kernel (``single``) or a graph of them (``graph``), by the phase of the host's step."""
    result = {phase: {"single": 0, "graph": 0} for phase in PHASES}
    steps = sorted(host_steps, key=lambda step: step.start_us)
    for kind, times in (("single", spans.launches), ("graph", spans.graph_launches)):
        owner, inside = _assign(np.frombuffer(times), steps, bounded=True) if times else (np.array([], int), [])
        for number in owner[inside]:
            if phase := steps[int(number)].phase:
                result[phase][kind] += 1
    return result


def split_device(spans: DeviceSpans, host_steps: list[Step]) -> DeviceSplit | None:
    """Device time by step; None for a trace without kernels (CPU)."""
    if not spans.starts:
        return None
    mirrored = spans.steps()
    steps = mirrored or sorted(host_steps, key=lambda step: step.start_us)
    if not steps:
        return None
    starts, durations = np.frombuffer(spans.starts), np.frombuffer(spans.durations)
    order = np.argsort(starts, kind="stable")
    starts, durations = starts[order], durations[order]
    ends = starts + durations
    # Kernels of several streams overlap: each counts for busy time only beyond what came before it.
    reached = np.concatenate(([-np.inf], np.maximum.accumulate(ends)[:-1]))
    owner, inside = _assign(starts, steps, bounded=bool(mirrored))
    return DeviceSplit(
        steps=steps,
        assigned_by="device annotation" if mirrored else "host step",
        names=list(spans.names),
        owner=owner,
        inside=inside,
        durations_us=durations,
        busy_us=np.maximum(0.0, ends - np.maximum(starts, reached)),
        name_ids=np.frombuffer(spans.name_ids, dtype=np.int32)[order],
        launches=_launched(spans, host_steps),
    )


def device_row(split: DeviceSplit, phase: str) -> dict[str, Any]:
    """One phase's device time: busy, gaps within its steps, kernels, launching calls, seconds by class, its cycle."""
    steps = split.of(phase)
    mask = split.inside & split.kernels(steps)
    seconds = sum(step.duration_us for step in split.steps if step.phase == phase) / 1e6
    classes, others = class_times(split.by_name_us(mask))
    busy = float(split.busy_us[mask].sum()) / 1e6
    return {
        "busy_s": busy,
        "gap_s": max(0.0, seconds - busy),
        "busy_share": busy / seconds if seconds else 0.0,
        "kernels": int(mask.sum()),
        "launches": split.launches[phase],
        "classes": classes,
        "biggest_other": others,
        "assigned_by": split.assigned_by,
        "cycle": cycle_row(split, phase),
    }


def cycle_row(split: DeviceSplit, phase: str) -> dict[str, Any] | None:
    """Device time of a phase's steps and of what follows each until the next one begins; None without mirrors.

    Of decode only the steps with the largest batch count, the ones that the unprofiled windows time. The trace's
    last step has no end of its cycle and is left out. ``gap_s`` is idle time between two kernels of one step,
    ``between_idle_s`` between a step's last and the next one's first.
    """
    chosen = split.of(phase)
    if split.assigned_by != "device annotation":
        return None
    batch = np.array([step.generation_requests for step in split.steps])
    if phase == "decode" and chosen.any():
        chosen = chosen & (batch == batch[chosen].max())
    chosen[-1] = False
    if not chosen.any():
        return None
    mask = split.kernels(chosen)
    lasted = np.array([step.duration_us for step in split.steps])[chosen].sum() / 1e6
    begun = np.array([step.start_us for step in split.steps])
    seconds = float(np.diff(begun)[chosen[:-1]].sum()) / 1e6
    busy, after = (float(split.busy_us[mask & which].sum()) / 1e6 for which in (split.inside, ~split.inside))
    gap = max(0.0, float(lasted) - busy)
    return {
        "steps": int(chosen.sum()),
        "seconds": seconds,
        "busy_s": busy + after,
        "gap_s": gap,
        "between_idle_s": max(0.0, seconds - busy - after - gap),
        "classes": class_times(split.by_name_us(mask))[0],
    }
