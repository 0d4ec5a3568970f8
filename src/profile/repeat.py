"""Do independent profiles of one arm agree? Shares of the phases side by side, in points. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

# Phase shares of two profiles of one arm must agree this well, in points of step time.
TOLERANCE_POINTS = 5.0


def _spread(shares: Sequence[float]) -> dict[str, Any]:
    points = [100 * share for share in shares]
    return {"points": points, "apart": max(points) - min(points)}


def compare(profiles: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Phase shares of several profiles of one arm and how far apart they are.

    ``trace`` are the shares of step time in the traces (a phase that one of them lacks counts as 0),
    ``window`` those that the client saw in the unprofiled windows, ``cpu_time`` those by the worker's processor
    time (CPU platforms). ``agree`` holds for the traces: every phase within :data:`TOLERANCE_POINTS`;
    ``agree_by_cpu_time`` for processor time, which a busy host does not change.

    Args:
        profiles: ``measured`` of each profile's evidence.

    Raises:
        ValueError: fewer than two profiles.
    """
    if len(profiles) < 2:
        raise ValueError("one profile agrees with nothing: two are needed")
    phases = sorted({phase for measured in profiles for phase in measured["phases"]})
    trace = {
        phase: _spread([measured["phases"].get(phase, {}).get("share", 0.0) for measured in profiles])
        for phase in phases
    }
    window = {
        phase: _spread([measured["window_shares"][phase]["median"] for measured in profiles])
        for phase in ("prefill", "decode")
    }
    by_cpu = [measured.get("cpu_time_shares") for measured in profiles]
    cpu_time = (
        {p: _spread([shares[p]["median"] for shares in by_cpu if shares]) for p in ("prefill", "decode")}
        if all(by_cpu)
        else {}
    )
    worst = max(row["apart"] for row in trace.values())
    return {
        "trace": trace,
        "window": window,
        "cpu_time": cpu_time,
        "steps": {
            phase: [measured["phases"].get(phase, {}).get("steps", 0) for measured in profiles] for phase in phases
        },
        "decode_step_s": [measured["decode"]["step_seconds"]["median"] for measured in profiles],
        "overhead": [measured["overhead"]["ratio"] for measured in profiles],
        "tolerance_points": TOLERANCE_POINTS,
        "apart_points": worst,
        "agree": worst <= TOLERANCE_POINTS,
        "agree_by_cpu_time": all(row["apart"] <= TOLERANCE_POINTS for row in cpu_time.values()) if cpu_time else None,
    }
