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


def levers(decode: dict[str, Any], shares: dict[str, Interval], block_size: int | None) -> list[dict[str, Any]]:
    """What could speed decode up, by how much at most and as an estimate, and what forbids it.

    ``saves_at_most`` is the share of a step's time saved if time followed the bytes (or, for compiling, if
    all launching and host time fell away); ``saves`` is the estimate with its interval: the same saving as
    far as the step's time is memory traffic at the measured ceiling.
    """
    parts, total, traffic = decode["bytes_by_part"], decode["bytes_per_step"], decode["utilisation"]
    ends = {
        key: min(1.0, sum(shares.get(name, NOTHING)[key] for name in ("launch", "host")))
        for key in ("low", "median", "high")
    }
    twice = (parts["weights"] + 2 * (total - parts["weights"])) / 2 / total
    by_bytes = [
        ("kv_8bit", parts["kv_read"] / 2 / total, "KV bytes halve", None),
        ("weights_8bit", parts["weights"] / 2 / total, "weight bytes halve", "C03"),
        ("double_batch", 1 - twice, "weights are read once for twice the tokens: time per token", None),
    ]
    result = [_lever(name, saved, _expected(saved, traffic), why, rule) for name, saved, why, rule in by_bytes]
    result.insert(2, _lever("compile_or_graphs", ends["high"], interval(**ends), "launch and host time fall away"))
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
