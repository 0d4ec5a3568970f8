"""From bytes, step times and ceilings to decode bandwidth utilisation and the verdict of gate G06."""

from __future__ import annotations

import math
from typing import Any

# ADR 0011, gate G06: below this utilisation decode is not bandwidth bound.
G06_THRESHOLD = 0.60


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
            f"decode uses {percent} of the measured read bandwidth, at least {limit}: bandwidth bound",
        )
    elif used["high"] < G06_THRESHOLD:
        verdict = "failed"
        text = (
            f"decode uses {percent} of the measured read bandwidth, below {limit}: not bandwidth bound; "
            "revisit KV layout and scheduling, not quantisation"
        )
    else:
        verdict, text = "undecided", f"decode uses {percent} of the measured read bandwidth; the interval holds {limit}"
    return {"threshold": G06_THRESHOLD, "utilisation": used, "verdict": verdict, "text": text}


def ceiling_at(by_size: list[dict[str, Any]], working_set_bytes: float) -> dict[str, Any]:
    """Read bandwidth of the measured working set that is nearest in ratio to this one."""
    row = min(by_size, key=lambda r: abs(math.log(r["bytes"] / working_set_bytes)))
    return {"bytes": row["bytes"], **{k: row["read"][k] for k in ("median", "low", "high")}}
