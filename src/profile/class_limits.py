"""Which class of kernels takes a phase's time, how near it is to its own limit, and what could be gained there.

The verdict of a phase (:mod:`adrbench.profile.bound`) is about all of its work. Here its two large parts whose work
the model knows, attention and matrix products, are each held against the same ceilings: a phase far from every
limit is often one class at its limit beside another one far from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from adrbench.profile.bound import Interval, interval, time_share
from adrbench.profile.model_flops import attention_flops, matrix_parameters_per_token, output_flops
from adrbench.profile.model_shape import Shape

# Classes that take less of a phase's time are left out: nothing is to be gained there.
LEAST_SHARE = 0.01
# What can make a class of kernels quicker without changing what it computes.
LEVERS = {
    "attention": "attention_backend",
    "linear_attention": "attention_backend",
    "gemm": "gemm_kernel",
    "communication": "communication",
}
ADVICE = {
    "attention_backend": "another attention backend or kernel",
    "gemm_kernel": "other matrix kernels or tile settings",
    "communication": "less or overlapped communication",
    "fusion": "fusing its kernels into their neighbours",
}


@dataclass(frozen=True)
class Work:
    """What one class of kernels has to do in one step (or stretch) on one rank."""

    flops: float
    bytes: float


def class_work(
    shape: Shape, tokens: float, contexts: float, sampled: int, weights: float, kv: float, ranks: int
) -> dict[str, Work]:
    """Work of attention and of matrix products.

    Args:
        tokens: that pass the matrices.
        contexts: tokens that they attend to, added up over them.
        sampled: rows of the output matrix.
        weights, kv: bytes of weights and of keys and values that are read, of all ranks.
    """
    products = 2.0 * tokens * matrix_parameters_per_token(shape) + output_flops(shape, sampled)
    return {
        "attention": Work(attention_flops(shape, contexts) / ranks, kv / ranks),
        "gemm": Work(products / ranks, weights / ranks),
    }


def class_rows(
    cycle: Mapping[str, Any], steps: int, work: Mapping[str, Work], matrix: Interval | None, memory: Interval
) -> list[dict[str, Any]]:
    """Classes of kernels by their share of a phase's time on the device, the largest first.

    Args:
        cycle: of :func:`adrbench.profile.device_time.cycle_row`: profiled, idle time included.
        steps: that ``work`` is to be counted for: the cycle's, or 1 where it is of the whole stretch.

    Returns:
        ``reached`` is the fraction of the nearer ceiling (``limit``) at which the class runs, None where its work is
        not known; ``left`` the share of the phase's time that falls away at most, if it ran at its ceiling.
    """
    rows = []
    for name, seconds in sorted(cycle["classes"].items(), key=lambda pair: -pair[1]):
        share = seconds / cycle["seconds"]
        if share < LEAST_SHARE:
            continue
        limit, reached = None, None
        if name in work and seconds:
            each = interval(*[seconds / steps] * 3)
            fractions = {"bandwidth": time_share(work[name].bytes, memory, each)}
            if matrix:
                fractions["compute"] = time_share(work[name].flops, matrix, each)
            limit = max(fractions, key=lambda key: fractions[key]["median"])
            reached = fractions[limit]
        rows.append(
            {
                "class": name,
                "seconds": seconds / steps,
                "share": share,
                "limit": limit,
                "reached": reached,
                "left": share * max(0.0, 1 - reached["median"]) if reached else share,
                "lever": LEVERS.get(name, "fusion"),
            }
        )
    return rows


def told(rows: Sequence[Mapping[str, Any]]) -> str:
    """The two largest classes and where most could be gained, as a sentence's end; empty without rows."""
    if not rows:
        return ""
    parts = []
    for row in rows[:2]:
        of = {"compute": "matrix rate", "bandwidth": "memory bandwidth"}.get(row["limit"])
        at = f" at {row['reached']['median']:.0%} of the {of}" if of else ""
        parts.append(f"{row['class']} {row['share']:.0%}{at}")
    best = max(rows, key=lambda row: float(row["left"]))
    return (
        f"; of its time on the device: {', '.join(parts)}. Most is left in {best['class']}, at most "
        f"{best['left']:.0%} of the phase: {ADVICE[best['lever']]}"
    )
