"""What limits a phase: compute, memory bandwidth, launching or the host; and what would help how much.

Every share is a fraction of the phase's unprofiled time that one limit alone would take. A limit is the
verdict when its whole interval is at least :data:`DECISIVE`; when no limit explains that much the verdict
is ``none``, and the largest shares are named. Nothing is called a bottleneck from inside the noise.
"""

from __future__ import annotations

import math
from typing import Any

from adrbench.profile.verdict import G06_THRESHOLD

# The ADR's own threshold for "bound" (gate G06), used for every kind of limit.
DECISIVE = G06_THRESHOLD
LIMITS = ("compute", "bandwidth", "launch", "host")

Interval = dict[str, float]


def interval(low: float, median: float, high: float) -> Interval:
    """An interval as every share here is stated."""
    return {"low": low, "median": median, "high": high}


def time_share(amount: float, ceiling: Interval, seconds: Interval) -> Interval:
    """Share of ``seconds`` that moving or computing ``amount`` at the ceiling takes, both at their worst."""
    return interval(
        amount / ceiling["high"] / seconds["high"],
        amount / ceiling["median"] / seconds["median"],
        amount / ceiling["low"] / seconds["low"],
    )


def host_share_cpu(host_s: float, operations_s: float, seconds: Interval) -> Interval:
    """Host share of a CPU step, from a profiled step of ``host_s`` between and ``operations_s`` in operators.

    Profiling lengthens both, so the truth lies between what remains if operators took no longer without
    the profiler (least) and the profiled share (most); the middle of the two is only a mark.
    """
    most = host_s / (host_s + operations_s)
    least = min(most, max(0.0, 1 - operations_s / seconds["median"]))
    return interval(least, (least + most) / 2, most)


def host_share_device(busy_share: float, launch: Interval) -> Interval:
    """Host share on an accelerator: its idle time that launching alone does not explain."""
    idle = max(0.0, 1 - busy_share)
    return interval(max(0.0, idle - launch["high"]), max(0.0, idle - launch["median"]), max(0.0, idle - launch["low"]))


def verdict(shares: dict[str, Interval]) -> dict[str, Any]:
    """The limit that explains a phase's time: its name, ``none`` or ``undecided``, and the rule that said so."""
    ranked = sorted(shares, key=lambda name: -shares[name]["median"])
    decided = [name for name in ranked if shares[name]["low"] >= DECISIVE]
    possible = [name for name in ranked if shares[name]["high"] >= DECISIVE]
    told = ", ".join(f"{n} {shares[n]['median']:.0%} [{shares[n]['low']:.0%}, {shares[n]['high']:.0%}]" for n in ranked)
    if decided:
        return {"bound": decided[0], "rule": f"{decided[0]} alone takes at least {DECISIVE:.0%} of the time: {told}"}
    if possible:
        return {"bound": "undecided", "rule": f"{possible[0]} may take {DECISIVE:.0%} of the time or less: {told}"}
    return {"bound": "none", "rule": f"no limit takes {DECISIVE:.0%} of the time by itself: {told}"}


def levers(decode: dict[str, Any], shares: dict[str, Interval], block_size: int | None) -> list[dict[str, Any]]:
    """What could speed decode up, each with the most it can save of a step's time by the bytes model.

    A saving of bytes saves at most that share of time, and only as far as time follows bytes.
    """
    parts, total = decode["bytes_by_part"], decode["bytes_per_step"]
    overhead = min(1.0, shares["launch"]["high"] + shares["host"]["high"])
    twice = (parts["weights"] + 2 * (total - parts["weights"])) / 2 / total
    found = [
        ("kv_8bit", parts["kv_read"] / 2 / total, "KV bytes halve"),
        ("weights_8bit", parts["weights"] / 2 / total, "weight bytes halve; policy contest forbids it (persistent)"),
        ("compile_or_graphs", overhead, "launch and host time fall away"),
        ("double_batch", 1 - twice, "weights are read once for twice the tokens: time per token"),
    ]
    result = [{"lever": name, "saves_at_most": saved, "because": why} for name, saved, why in found]
    if block_size:
        tokens = decode["context_tokens"]
        waste = 1 - tokens / (math.ceil(tokens / block_size) * block_size)
        why = f"no bytes of a step; frees the unused {waste:.1%} of each sequence's last block of {block_size} tokens"
        result.append({"lever": "block_size", "saves_at_most": 0.0, "because": why})
    return result


def predicted_against_measured(base: dict[str, Any], arm: dict[str, Any]) -> dict[str, Any]:
    """An arm's decode step against the baseline's: ratio of bytes (predicted) and of step time (measured).

    ``agrees``: the measured interval reaches the predicted ratio. The prediction is the least possible
    ratio, for a step whose time is all bandwidth.
    """
    mine, theirs = arm["step_seconds"], base["step_seconds"]
    measured = interval(mine["low"] / theirs["high"], mine["median"] / theirs["median"], mine["high"] / theirs["low"])
    predicted = arm["bytes_per_step"] / base["bytes_per_step"]
    return {
        "predicted_ratio": predicted,
        "measured_ratio": measured,
        "agrees": measured["low"] <= predicted <= measured["high"],
    }
