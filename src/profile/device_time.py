"""Device side of a trace: kernels by phase, busy time and gaps, for CUDA and ROCm traces.

On an accelerator the host only launches: a step's annotation on the host says when it was launched, and
its mirror on the device (``gpu_user_annotation``) when it ran. Kernels belong to the device step they
start in; the main stream's mirrors bound the steps. Where a trace has no mirror (some ROCm tracers write
none), a kernel belongs to the last host step that began before it, which is right while the host does
not run ahead; ``assigned_by`` says which.

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
CATEGORIES = WORK | {MIRROR}


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

    def add(self, category: bytes, name: bytes, place: tuple[bytes, bytes], start: float, duration: float) -> None:
        """Take one span of category kernel, memcpy, memset or device annotation (us); place: device, stream."""
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

    def steps(self) -> list[Step]:
        """Device steps by start, as the main stream saw them; a step is mirrored on every stream it used."""
        if not self.mirrored:
            return []
        main = max(self.mirrored.values(), key=lambda steps: sum(step.duration_us for step in steps))
        return sorted(main, key=lambda step: step.start_us)


@dataclass(frozen=True)
class DeviceSplit:
    """Device time by phase, in us."""

    steps: list[Step]
    assigned_by: str
    busy_us: dict[str, float]
    kernels: dict[str, int]
    by_name_us: dict[str, dict[bytes, float]]
    outside_us: float


def _assign(spans: DeviceSpans, steps: list[Step], bounded: bool) -> tuple[Any, Any, Any]:
    """(kernel order by start, phase index of each kernel in that order or -1, its share of busy time).

    ``bounded``: a kernel after its step's end belongs to no step.
    """
    starts, durations = np.frombuffer(spans.starts), np.frombuffer(spans.durations)
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], starts[order] + durations[order]
    # Kernels of several streams overlap: each counts for busy time only beyond what came before it.
    reached = np.concatenate(([-np.inf], np.maximum.accumulate(ends)[:-1]))
    busy = np.maximum(0.0, ends - np.maximum(starts, reached))
    step_starts = np.array([step.start_us for step in steps])
    step_ends = np.array([step.end_us for step in steps])
    phases = np.array([PHASES.index(step.phase) if step.phase else -1 for step in steps])
    # A mirror starts with its first kernel; half a nanosecond absorbs the rounding of printed times.
    index = np.searchsorted(step_starts, starts + 5e-4, side="right") - 1
    inside = index >= 0
    if bounded:
        inside &= starts < step_ends[np.maximum(index, 0)]
    return order, np.where(inside, phases[np.maximum(index, 0)], -1), busy


def split_device(spans: DeviceSpans, host_steps: list[Step]) -> DeviceSplit | None:
    """Device time by phase; None for a trace without kernels (CPU)."""
    if not spans.starts:
        return None
    mirrored = spans.steps()
    steps = mirrored or sorted(host_steps, key=lambda step: step.start_us)
    if not steps:
        return None
    order, phase, busy = _assign(spans, steps, bounded=bool(mirrored))
    durations, ids = np.frombuffer(spans.durations)[order], np.frombuffer(spans.name_ids, dtype=np.int32)[order]
    raw = {number: name for name, number in spans.names.items()}
    by_name: dict[str, dict[bytes, float]] = {}
    for number, name in enumerate(PHASES):
        sums = np.bincount(ids[phase == number], durations[phase == number], minlength=len(raw))
        by_name[name] = {raw[int(i)]: float(sums[i]) for i in np.flatnonzero(sums)}
    return DeviceSplit(
        steps=steps,
        assigned_by="device annotation" if mirrored else "host step",
        busy_us={name: float(busy[phase == number].sum()) for number, name in enumerate(PHASES)},
        kernels={name: int((phase == number).sum()) for number, name in enumerate(PHASES)},
        by_name_us=by_name,
        outside_us=float(busy[phase == -1].sum()),
    )


def device_row(split: DeviceSplit, phase: str) -> dict[str, Any]:
    """One phase's device time: busy, gaps within its steps, kernels, seconds by class."""
    seconds = sum(step.duration_us for step in split.steps if step.phase == phase) / 1e6
    classes, others = class_times(split.by_name_us[phase])
    busy = split.busy_us[phase] / 1e6
    return {
        "busy_s": busy,
        "gap_s": max(0.0, seconds - busy),
        "busy_share": busy / seconds if seconds else 0.0,
        "kernels": split.kernels[phase],
        "classes": classes,
        "biggest_other": others,
    }
