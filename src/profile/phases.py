"""Splits a serving trace into prefill, decode and mixed steps, and each into classes of operations.

vLLM annotates every engine step ``execute_context_N(tokens)_generation_M(tokens)``: N requests prefill,
M decode. Operations of the same thread that start within a step belong to it. An operation's *self*
time is its duration without its children's; a step's self time is the host's share: Python between
operations.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from adrbench.profile.device_time import CATEGORIES as DEVICE_CATEGORIES
from adrbench.profile.device_time import DeviceSpans, device_row, split_device
from adrbench.profile.op_classes import STEP_NAME, class_times
from adrbench.profile.step import PHASES, Step, parse_step
from adrbench.profile.trace import Span, TraceError, TraceReader

# Operators and annotations nest by time. Calls of the accelerator's runtime stand elsewhere in the file, out
# of order, and Python frames (a trace with stacks) would hide what the host share is.
NESTED = frozenset((b"cpu_op", b"user_annotation"))


@dataclass
class Split:
    """Steps of a trace and the self time of each operation (us, by raw name) in each phase."""

    steps: list[Step] = field(default_factory=list)
    self_us: dict[str, dict[bytes, float]] = field(default_factory=lambda: {p: defaultdict(float) for p in PHASES})
    outside_us: dict[bytes, float] = field(default_factory=lambda: defaultdict(float))
    spans: int = 0
    out_of_order: int = 0
    operations: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PHASES, 0))
    device: DeviceSpans = field(default_factory=DeviceSpans)
    worker: tuple[bytes, bytes] | None = None
    other_worker_steps: int = 0


class _Thread:
    """Open spans of one thread, innermost last above a sentinel, and the table their self time goes to."""

    __slots__ = ("count", "ends", "entered", "last", "names", "phase", "selfs", "step_end", "table")

    def __init__(self, table: dict[bytes, float]):
        self.ends: list[float] = [float("inf")]
        self.selfs: list[float] = [0.0]
        self.names: list[bytes] = [b""]
        self.table = table
        self.step_end = float("inf")
        self.last = float("-inf")
        self.phase: str | None = None
        self.count = self.entered = 0

    def close(self, until: float) -> None:
        """Account for every open span that ended by ``until``."""
        while self.ends[-1] <= until and len(self.ends) > 1:
            self.ends.pop()
            self.table[self.names.pop()] += self.selfs.pop()


def split(batches: Iterable[list[Span]]) -> Split:
    """Split spans, ordered by start within each thread, into phases.

    Memory holds the steps and one number per name and phase, whatever the trace's size. The loop runs
    once per operation of a trace: what it does there is spelled out rather than called.
    """
    result = Split()
    threads: dict[tuple[bytes, bytes], _Thread] = {}
    unused: dict[bytes, float] = defaultdict(float)
    process, key, count = b"", b"", 0
    state = _Thread(result.outside_us)
    ends, selfs, names = state.ends, state.selfs, state.names
    for batch in batches:
        result.spans += len(batch)
        for category, name, pid, tid, start_text, duration_text in batch:
            start, duration = float(start_text), float(duration_text)
            if category in DEVICE_CATEGORIES:
                result.device.add(category, name, (pid, tid), start, duration)
                continue
            if category not in NESTED:
                continue
            if tid != key or pid != process:
                state.count, process, key = count, pid, tid
                state = threads.setdefault((pid, tid), _Thread(result.outside_us))
                ends, selfs, names, count = state.ends, state.selfs, state.names, state.count
            if start < state.last:
                result.out_of_order += 1
                continue
            state.last = start
            if start >= state.step_end:
                _leave(result, state, count)
            while ends[-1] <= start:
                del ends[-1]
                state.table[names.pop()] += selfs.pop()
            selfs[-1] -= duration
            if category == b"user_annotation":
                step = parse_step(name.decode(), start, duration)
                if step is not None:
                    state.table = _enter(result, step, (pid, tid), unused)
                    state.step_end, state.phase, state.entered = start + duration, step.phase, count + 1
                    name = STEP_NAME
            count += 1
            ends.append(start + duration)
            selfs.append(duration)
            names.append(name)
    state.count = count
    for state in threads.values():
        if state.step_end != float("inf"):
            _leave(result, state, state.count)
        state.close(float("inf"))
    return result


def _leave(result: Split, state: _Thread, count: int) -> None:
    """Close a thread's step: account for what is open in it and for the number of its operations."""
    state.close(state.step_end)
    if state.phase and state.table is result.self_us[state.phase]:
        result.operations[state.phase] += count - state.entered
    state.table, state.step_end, state.phase = result.outside_us, float("inf"), None


def _enter(result: Split, step: Step, worker: tuple[bytes, bytes], unused: dict[bytes, float]) -> dict[bytes, float]:
    """Note a step and return the table for its operations.

    A merged trace holds several ranks, which run the same steps side by side: the first one that shows
    up is split, the others' steps are counted only, or every phase would be counted once per rank.
    """
    result.worker = result.worker or worker
    if worker != result.worker:
        result.other_worker_steps += 1
        return unused
    result.steps.append(step)
    return result.self_us[step.phase] if step.phase else unused


def phase_table(result: Split) -> dict[str, dict[str, Any]]:
    """Per phase that occurred: seconds, share of all steps' time, steps, tokens, seconds by class.

    On an accelerator seconds and share are those of the device's steps; ``classes`` stays the host's
    view, and ``device`` holds kernels, busy time and gaps.
    """
    device = split_device(result.device, result.steps)
    all_steps = device.steps if device else result.steps
    total_us = sum(step.duration_us for step in all_steps if step.phase)
    table = {}
    for phase in PHASES:
        steps = [step for step in all_steps if step.phase == phase]
        if not steps:
            continue
        classes, others = class_times(result.self_us[phase])
        duration_us = sum(step.duration_us for step in steps)
        table[phase] = {
            "seconds": duration_us / 1e6,
            "share": duration_us / total_us if total_us else 0.0,
            "steps": len(steps),
            "tokens": sum(step.context_tokens + step.generation_tokens for step in steps),
            "operations": result.operations[phase],
            "classes": classes,
            "biggest_other": others,
        }
        if device:
            table[phase]["device"] = device_row(device, phase)
    return table


def between_steps_s(steps: list[Step]) -> float:
    """Seconds between the first step's start and the last one's end in which no step ran.

    Of an accelerator's trace take the device's steps: the host's end long before the device is done.
    """
    if not steps:
        return 0.0
    ordered = sorted(steps, key=lambda step: step.start_us)
    idle, end = 0.0, ordered[0].start_us
    for step in ordered:
        idle += max(0.0, step.start_us - end)
        end = max(end, step.start_us + step.duration_us)
    return idle / 1e6


def read_phases(path: Path) -> tuple[Split, TraceReader]:
    """Read one trace file.

    Raises:
        TraceError: unreadable, or without a single step annotation.
    """
    reader = TraceReader(Path(path))
    result = split(reader.batches())
    reader.loss.out_of_order_spans = result.out_of_order
    if not result.steps:
        raise TraceError(
            f"{path}: {reader.events} events but no execute_context_N(..)_generation_M(..) annotation; "
            "is this the trace of a vLLM worker (not of the frontend)?"
        )
    return result, reader
