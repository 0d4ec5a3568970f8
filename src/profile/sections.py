"""Sections of a profile's evidence, computed from what was taken from the server. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adrbench.evidence import Evidence
from adrbench.job import JobError
from adrbench.profile.bound import Interval, interval
from adrbench.profile.checks import DISAGREEMENT, flags
from adrbench.profile.model_bytes import decode_step_bytes, kv_bytes_per_token, kv_format
from adrbench.profile.model_shape import Shape
from adrbench.profile.phases import Split
from adrbench.profile.request_time import request_seconds
from adrbench.profile.spread import median_interval
from adrbench.profile.verdict import ceiling_at, memory_ceiling, rate, utilisation
from adrbench.profile.window import (
    Window,
    Workload,
    decode_context_tokens,
    decode_steps,
    prefill_share,
)

# CPU time taken by others beyond this share is flagged: it stretches steps and starves the client.
BUSY_HOST = 0.25


@dataclass(frozen=True)
class Inputs:
    """What the job needs before a server is worth starting."""

    shape: Shape
    weights: dict[str, Any]
    ceiling: Evidence
    workload: Workload
    windows: int


@dataclass(frozen=True)
class Run:
    """What was taken from the server."""

    unprofiled: tuple[Window, ...]
    profiled: Window
    counted: dict[str, float]
    traces: tuple[Path, ...]
    resolved: dict[str, Any]
    busy_before: float | None = None
    """Share of the host's CPU time that others took just before the server started."""


def decode_section(inputs: Inputs, taken: Run, kv_dtype: str) -> dict[str, Any]:
    """Decode: step time without the profiler, bytes per step, bandwidth and its share of the ceiling.

    With several ranks each moves its share of the bytes (tensor parallelism, the usual case, is assumed).
    """
    kv, ranks = kv_format(kv_dtype, inputs.shape.weight_bytes_per_value), len(taken.traces)
    context = sum(decode_context_tokens(w, inputs.workload) for w in taken.unprofiled) / len(taken.unprofiled)
    step = decode_step_bytes(inputs.shape, [context] * inputs.workload.requests, kv)
    moved = step.total / ranks
    seconds = median_interval([s for window in taken.unprofiled for s in decode_steps(window)])
    reached = rate(moved, seconds)
    ceiling = memory_ceiling(inputs.ceiling.measured)
    near = ceiling_at(inputs.ceiling.measured["by_size"], moved)
    parts = {"weights": step.weights, "kv_read": step.kv_read, "kv_write": step.kv_write, "state": step.state}
    return {
        "step_seconds": seconds,
        "bytes_per_step": moved,
        "bytes_by_part": {name: value / ranks for name, value in parts.items()},
        "kv_share": step.kv_share,
        "kv_bytes_per_token": kv_bytes_per_token(inputs.shape, kv),
        "kv_dtype": kv.name,
        "bytes_per_s": reached,
        "utilisation": utilisation(reached, ceiling),
        "ceiling_bytes_per_s": ceiling,
        "ceiling_at_working_set": near | {"utilisation": utilisation(reached, near)},
        "batch": inputs.workload.requests,
        "context_tokens": context,
    }


def _two_shares(prefill: list[float]) -> dict[str, Interval]:
    """Shares of prefill and decode, from prefill's in each window."""
    found = median_interval(prefill)
    ends = {key: found[key] for key in ("low", "median", "high")}
    return {
        "prefill": interval(**ends),
        "decode": interval(1 - ends["high"], 1 - ends["median"], 1 - ends["low"]),
    }


def cpu_time_shares(taken: Run) -> dict[str, Interval] | None:
    """As :func:`window_shares`, by the processor time of the server's worker; None on an accelerator.

    What the worker computed, whoever else kept the host busy.
    """
    spent = [w.cpu_s for w in taken.unprofiled if w.cpu_s is not None]
    return _two_shares([prefill / (prefill + decode) for prefill, decode in spent]) if spent else None


def window_shares(taken: Run) -> dict[str, Interval]:
    """Share of a window that is prefill (mixed steps included) and decode, seen by the client, without the profiler.

    The profiler lengthens steps of many operations more than others, so shares of a trace lean to decode;
    these do not.
    """
    return _two_shares([prefill_share(w) for w in taken.unprofiled])


def counter_section(split: Split, prompt_lengths: list[int], counted: dict[str, float]) -> dict[str, Any]:
    """The trace's request-seconds beside vLLM's counters of the same window, flagged beyond 10 %.

    ``trace_s`` is None, and the check unverified, where the trace does not tell (:mod:`request_time`).
    """
    result = {}
    for phase, traced in request_seconds(split.steps, split.device.steps(), prompt_lengths).items():
        ratio = traced / counted[phase] if counted[phase] and traced is not None else None
        result[phase] = {
            "counter_s": counted[phase],
            "trace_s": traced,
            "ratio": ratio,
            "disagrees": traced is not None and (ratio is None or abs(ratio - 1) > DISAGREEMENT),
        }
    return result


def overhead_section(taken: Run) -> dict[str, Any]:
    """Wall time of the profiled window over that of the unprofiled ones, and the same for a decode step.

    The ratio of a step is None where the client lagged in the profiled window: its chunks then mark no steps.
    """
    plain = median_interval([w.wall_s for w in taken.unprofiled])["median"]
    steps = [median_interval(decode_steps(w))["median"] for w in taken.unprofiled]
    try:
        profiled: float | None = median_interval(decode_steps(taken.profiled))["median"]
    except JobError:
        profiled = None
    return {
        "unprofiled_s": plain,
        "profiled_s": taken.profiled.wall_s,
        "ratio": taken.profiled.wall_s / plain,
        "decode_step_ratio": profiled / median_interval(steps)["median"] if profiled else None,
        "windows_s": [w.wall_s for w in taken.unprofiled],
    }


def busy_share(before: str, after: str) -> float | None:
    """Share of CPU time that was not idle between two readings of /proc/stat; None if they do not tell."""
    try:
        first, last = ([int(x) for x in text.splitlines()[0].split()[1:9]] for text in (before, after))
    except (IndexError, ValueError):
        return None
    passed = [b - a for a, b in zip(first, last, strict=True)]
    total = sum(passed)
    return 1 - sum(passed[3:5]) / total if total > 0 else None


def busy_note(busy: float | None) -> list[str]:
    """A warning when others kept the host's CPUs busy just before this job's server started."""
    if busy is None or busy < BUSY_HOST:
        return []
    return [f"others took {busy:.0%} of the host's CPU time just before this job: times and shares are disturbed"]


def collect_notes(measured: dict[str, Any], ceiling: Evidence, busy_before: float | None) -> list[str]:
    """What a reader of the numbers must know."""
    notes = busy_note(busy_before)
    cache_mb = ceiling.measured.get("last_level_cache_bytes", 0) / 1e6
    step_mb, trace = measured["decode"]["bytes_per_step"] / 1e6, measured["trace"]
    if step_mb < cache_mb:
        notes.append(
            f"one decode step reads {step_mb:.0f} MB and the last-level cache holds {cache_mb:.0f} MB: part of the "
            "weights may stay in cache, so the utilisation of memory is an upper bound; see ceiling_at_working_set"
        )
    notes += flags(measured["checks"])
    if trace["ranks"] > 1 or trace["other_worker_steps"]:
        notes.append(
            f"several ranks were traced ({trace['ranks']} files; {trace['other_worker_steps']} steps of further ranks "
            "in the first): the phases are those of the lowest rank"
        )
    return notes
