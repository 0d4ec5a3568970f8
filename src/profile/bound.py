"""What limits a phase: compute, memory bandwidth, launching or the host; and what would help how much.

Every share is a fraction of the phase's unprofiled time that one limit alone would take. A limit is the
verdict when its whole interval is at least :data:`DECISIVE`; when no limit explains that much the verdict
is ``none``, and the largest shares are named. Nothing is called a bottleneck from inside the noise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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


def idle_shares(cycle: Mapping[str, Any], steps: int, seconds: Interval) -> dict[str, Interval]:
    """Launch and host share on an accelerator, from the idle time that its trace shows.

    ``launch`` is idle time between the kernels of a step (launched one by one by the host, or by a graph: then it
    is what the device itself needs from one kernel to the next), ``host`` idle time between steps. The profiler
    lengthens what the host does and hardly any kernel. So the truth lies between the idle share of the profiled
    cycle and what the kernels leave of the time without the profiler; the middle of the two is only a mark.

    Args:
        cycle: busy and idle seconds of ``steps`` steps of the phase (``device_time.cycle_row``).
        seconds: unprofiled time of one of them.
    """
    idle = cycle["gap_s"] + cycle["between_idle_s"]
    busy = cycle["busy_s"]
    readings = [idle / (idle + busy)]
    readings += [min(1.0, max(0.0, 1 - busy / steps / seconds[key])) for key in ("low", "high")]
    least, most = min(readings), max(readings)
    part = cycle["gap_s"] / idle if idle else 0.0
    found = {}
    for name, fraction in (("launch", part), ("host", 1 - part)):
        found[name] = interval(fraction * least, fraction * (least + most) / 2, fraction * most)
    return found


def shares_without_mirrors(busy_share: float, launch: Interval) -> dict[str, Interval]:
    """The same where a trace does not say when the device ran a step: launching by its latency, as far as it idled.

    ``launch``: launching calls x latency / time. The host's share is the idle time that this leaves.
    """
    idle = max(0.0, 1 - busy_share)
    host = [max(0.0, idle - launch[key]) for key in ("high", "median", "low")]
    return {"launch": interval(*(min(idle, launch[k]) for k in ("low", "median", "high"))), "host": interval(*host)}


def verdict(shares: dict[str, Interval]) -> dict[str, Any]:
    """The limit that explains a phase's time: its name, ``none`` or ``undecided``, and the rule that said so.

    ``decided_by`` names the rule: ``alone`` (one limit's whole interval is decisive), ``straddles`` (its
    interval holds the threshold) or ``nothing``; ``leading`` are the limits it rests on, the largest first.
    """
    ranked = sorted(shares, key=lambda name: -shares[name]["median"])
    decided = [name for name in ranked if shares[name]["low"] >= DECISIVE]
    possible = [name for name in ranked if shares[name]["high"] >= DECISIVE]
    told = ", ".join(f"{n} {shares[n]['median']:.0%} [{shares[n]['low']:.0%}, {shares[n]['high']:.0%}]" for n in ranked)
    if decided:
        bound, rule, leading = decided[0], "alone", decided
        text = f"{bound} alone takes at least {DECISIVE:.0%} of the time"
    elif possible:
        bound, rule, leading = "undecided", "straddles", possible
        text = f"{possible[0]} may take {DECISIVE:.0%} of the time or less"
    else:
        bound, rule, leading = "none", "nothing", ranked
        text = f"no limit takes {DECISIVE:.0%} of the time by itself"
    return {
        "bound": bound,
        "decided_by": rule,
        "leading": leading,
        "threshold": DECISIVE,
        "rule": f"{text}: {told}" if told else text,
    }


NOTHING = interval(0.0, 0.0, 0.0)


def _expected(saved: float, traffic: Interval) -> Interval:
    """Time saved by moving ``saved`` fewer bytes, as a share: as far as the step's time is traffic."""
    return interval(*(min(1.0, traffic[key]) * saved for key in ("low", "median", "high")))


def levers(
    decode: dict[str, Any],
    shares: dict[str, Interval],
    block_size: int | None,
    classes: Sequence[Mapping[str, Any]] = (),
    graphs: bool = False,
) -> list[dict[str, Any]]:
    """What could speed decode up, by how much at most and as an estimate, and what forbids it.

    ``saves_at_most`` is the share of a step's time saved if time followed the bytes: the time of the kernels that
    move them, where a device's trace tells it, or else all time (for compiling: if all launching and host time fell
    away). ``saves`` is the estimate with its interval: the same bytes at the measured ceiling.

    Args:
        classes: of decode (``class_limits.class_rows``); none without a device.
        graphs: whether a graph replays each step already.
    """
    parts, total, traffic = decode["bytes_by_part"], decode["bytes_per_step"], decode["utilisation"]
    took = {row["class"]: row["share"] for row in classes}
    ends = {
        key: min(1.0, sum(shares.get(name, NOTHING)[key] for name in ("launch", "host")))
        for key in ("low", "median", "high")
    }
    twice = (parts["weights"] + 2 * (total - parts["weights"])) / 2 / total
    by_bytes = [
        ("kv_8bit", "attention", parts["kv_read"] / 2 / total, "KV bytes halve", None),
        ("weights_8bit", "gemm", parts["weights"] / 2 / total, "weight bytes halve", "C03"),
        ("double_batch", "gemm", 1 - twice, "weights are read once for twice the tokens: time per token", None),
    ]
    result = []
    for name, cls, saved, why, rule in by_bytes:
        expected = _expected(saved, traffic)
        most = max(expected["high"], took[cls] / 2) if cls in took else saved
        result.append(_lever(name, most, expected, why, rule))
    why = "a graph replays each step already: what is left is idle time between its kernels and between steps"
    compiling = _lever(
        "compile_or_graphs", ends["high"], interval(**ends), why if graphs else "launch and host time fall away"
    )
    result.insert(2, compiling | {"graphs": graphs})
    if block_size:
        tokens = decode["context_tokens"]
        waste = 1 - tokens / (math.ceil(tokens / block_size) * block_size)
        why = f"no bytes of a step; frees the unused {waste:.1%} of each sequence's last block of {block_size} tokens"
        result.append(_lever("block_size", 0.0, NOTHING, why) | {"pool_waste": waste, "block_size": block_size})
    return result


def _lever(name: str, most: float, saves: Interval, because: str, forbidden_by: str | None = None) -> dict[str, Any]:
    """One lever. ``forbidden_by`` is the constraint of policy ``contest`` that rules it out (C03: no persistent
    quantisation of weights)."""
    return {"lever": name, "saves_at_most": most, "saves": saves, "because": because, "forbidden_by": forbidden_by}
