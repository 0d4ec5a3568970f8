"""From bytes, step times and ceilings to decode bandwidth utilisation and the verdict of gate G06."""

from __future__ import annotations

import math
from typing import Any

# ADR 0011, gate G06: below this utilisation decode is not bandwidth bound.
G06_THRESHOLD = 0.60
KINDS = ("read", "copy", "write")


def rate(amount: float, seconds: dict[str, Any]) -> dict[str, float]:
    """``amount`` per second with the interval of ``seconds`` (median, low, high)."""
    return {
        "median": amount / seconds["median"],
        "low": amount / seconds["high"],
        "high": amount / seconds["low"],
    }


def utilisation(reached: dict[str, float], ceiling: dict[str, Any]) -> dict[str, float]:
    """Fraction of the ceiling that is reached. Both intervals enter at their worst, so it errs to the wide side."""
    return {
        "median": reached["median"] / ceiling["median"],
        "low": reached["low"] / ceiling["high"],
        "high": reached["high"] / ceiling["low"],
    }


def g06(used: dict[str, float]) -> dict[str, Any]:
    """Verdict of G06: ``passed`` (bandwidth bound), ``failed`` (not), ``undecided`` (interval straddles).

    The whole interval must lie on one side of the threshold: a utilisation inside the noise decides nothing.
    """
    percent = f"{used['median']:.0%} [{used['low']:.0%}, {used['high']:.0%}]"
    limit = f"{G06_THRESHOLD:.0%}"
    if used["low"] >= G06_THRESHOLD:
        verdict, text = (
            "passed",
            f"decode uses {percent} of the measured memory bandwidth, at least {limit}: bandwidth bound",
        )
    elif used["high"] < G06_THRESHOLD:
        verdict = "failed"
        text = (
            f"decode uses {percent} of the measured memory bandwidth, below {limit}: not bandwidth bound; "
            "revisit KV layout and scheduling, not quantisation"
        )
    else:
        verdict, text = (
            "undecided",
            f"decode uses {percent} of the measured memory bandwidth; the interval holds {limit}",
        )
    return {"threshold": G06_THRESHOLD, "utilisation": used, "verdict": verdict, "text": text}


def memory_ceiling(measured: dict[str, Any]) -> dict[str, Any]:
    """The quickest of read, copy and write beyond the caches: ``median``, ``low``, ``high`` (bytes/s) and its ``kind``.

    What memory was seen to sustain is the least that it can do. A reduction need not be the quickest way to ask for
    it: torch's on an H200 reads at 4.35 TB/s where its fill writes 4.63 and a kernel that only reads reaches 4.67.
    """
    return _quickest({kind: measured.get(f"{kind}_bytes_per_s") for kind in KINDS})


def of_roof(flops: float, seconds: float, flops_per_byte: float, matrix_per_s: float, memory_per_s: float) -> float:
    """Share of the roofline's roof that a phase reaches at its intensity: FLOP/s over the lesser of both ceilings.

    Above 1 no phase can be: a ceiling was measured too low, or the model counts too many FLOP or bytes.
    """
    return flops / seconds / min(matrix_per_s, flops_per_byte * memory_per_s)


def _quickest(by_kind: dict[str, dict[str, Any] | None]) -> dict[str, Any]:
    """The kind with the highest median, the first of equals."""
    kind, row = max(((k, r) for k, r in by_kind.items() if r), key=lambda pair: float(pair[1]["median"]))
    return {"kind": kind, **{end: row[end] for end in ("median", "low", "high")}}


def ceiling_at(by_size: list[dict[str, Any]], working_set_bytes: float) -> dict[str, Any]:
    """Bandwidth of the measured working set that is nearest in ratio to this one, by the quickest kind there."""
    row = min(by_size, key=lambda r: abs(math.log(r["bytes"] / working_set_bytes)))
    return {"bytes": row["bytes"], **_quickest({kind: row.get(kind) for kind in KINDS})}
