"""What each figure plots, as rows of plain values. Pure: a site in, rows out; no rows means no figure."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from adrbench.profile.op_classes import CLASSES
from adrbench.profile.verdict import memory_ceiling, of_roof
from adrbench.report.site import Site
from adrbench.report.tidy import rows as tidy

Row = dict[str, Any]


def accuracy_by_arm(site: Site) -> dict[str, dict[str, Any]]:
    """Δ of each arm with its interval, from the first decision that states it."""
    found: dict[str, dict[str, Any]] = {}
    for decided in site.decisions:
        verdict = decided.store.documents["decide"].data or {}
        for arm, entry in (verdict.get("accuracy") or {}).items():
            found.setdefault(arm, entry["mean"])
    return found


def _over_rounds(site: Site) -> dict[tuple[str, str], list[Row]]:
    """Rows of the rounds table by arm and tier."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in tidy.rounds(site):
        groups.setdefault((row["arm"], row["tier"]), []).append(row)
    return groups


def _delta(site: Site, deltas: dict[str, dict[str, Any]], arm: str) -> dict[str, Any] | None:
    """Δ of an arm; the baseline's is 0 by definition, once anything was compared with it."""
    if arm == site.baseline and deltas:
        return {"delta": 0.0, "low": None, "high": None}
    return deltas.get(arm)


def pareto(site: Site) -> list[Row]:
    deltas, rows = accuracy_by_arm(site), []
    for (arm, tier), rounds in _over_rounds(site).items():
        delta = _delta(site, deltas, arm)
        rates = [row["output_tokens_per_s"] for row in rounds if row["output_tokens_per_s"] is not None]
        if delta is None or not rates:
            continue
        rows.append(
            {
                "arm": arm,
                "tier": tier,
                "delta": delta["delta"],
                "delta_low": delta["low"],
                "delta_high": delta["high"],
                "output_tokens_per_s": statistics.median(rates),
                "rate_low": min(rates),
                "rate_high": max(rates),
                "rounds": len(rates),
            }
        )
    return rows if len({row["arm"] for row in rows}) > 1 else []


def gates(site: Site) -> list[Row]:
    """Gates with a measured value; ``shown_*`` are what is drawn where an end is open."""
    found = [row for row in tidy.gates(site) if row["value"] is not None]
    several = len({row["decision"] for row in found}) > 1
    rows = []
    for gate in dict.fromkeys(row["gate"] for row in found):
        own = [row for row in found if row["gate"] == gate]
        known = [row[key] for row in own for key in ("value", "low", "high", "limit") if row[key] is not None]
        room = 0.08 * ((max(known) - min(known)) or abs(max(known)) or 1.0)
        for row in own:
            parts = [row["decision"] if several else None, row["option"], row["tier"]]
            rows.append(
                {key: row[key] for key in ("decision", "option", "arm", "gate", "metric", "tier")}
                | {key: row[key] for key in ("value", "low", "high", "limit", "verdict")}
                | {
                    "label": " · ".join(filter(None, parts)),
                    "shown_low": min(known) - room if row["low"] is None else row["low"],
                    "shown_high": max(known) + room if row["high"] is None else row["high"],
                }
            )
    return rows


def _latency(metric: str) -> Callable[[Site], list[Row]]:
    def rows(site: Site) -> list[Row]:
        keys = ("arm", "tier", "round", "request")
        return [{k: row[k] for k in keys} | {"ms": round(row[metric], 3)} for row in tidy.requests(site)]

    return rows


def rounds(site: Site) -> list[Row]:
    found = [row for row in tidy.rounds(site) if row["output_tokens_per_s"] is not None]
    starts = {row["started_at"]: datetime.fromisoformat(row["started_at"]) for row in found}
    first = min(starts.values(), default=None)
    return [
        {
            "arm": row["arm"],
            "tier": row["tier"],
            "round": row["round"],
            "started_at": row["started_at"],
            "minutes": round((starts[row["started_at"]] - first).total_seconds() / 60, 3),
            "output_tokens_per_s": row["output_tokens_per_s"],
            "ttft_p50_ms": row["ttft_p50_ms"],
        }
        for row in found
        if first is not None
    ]


def kv_memory(site: Site) -> list[Row]:
    deltas, rows = accuracy_by_arm(site), []
    pools = {
        arm: statistics.median(values)
        for arm in site.arms
        if (values := [r["kv_pool_tokens"] for r in tidy.rounds(site) if r["arm"] == arm and r["kv_pool_tokens"]])
    }
    base = pools.get(site.baseline)
    for arm, pool in pools.items():
        delta = _delta(site, deltas, arm)
        if base and delta is not None:
            scheme = site.platform.arm(arm).measures
            rows.append(
                {"arm": arm, "scheme": scheme, "memory_ratio": base / pool, "kv_pool_tokens": pool}
                | {"delta": delta["delta"], "delta_low": delta["low"], "delta_high": delta["high"]}
            )
    return rows if len(rows) > 1 else []


def roofline(site: Site) -> list[Row]:
    """The roof's corners and one point per arm and phase; ``of_roof``: share of its own roof that it reaches."""
    ceiling = site.ceiling
    bounds = [
        (arm, phase, row)
        for arm, measured in site.profiles.items()
        for phase, row in (measured.get("bounds") or {}).items()
    ]
    rates = ceiling.get("matmul_flop_per_s") or {}
    peaks = {d: rates[d]["median"] for _, _, row in bounds if "median" in rates.get(d := row["matrix_dtype"], {})}
    if not peaks:
        return []
    memory, peak = memory_ceiling(ceiling)["median"], max(peaks.values())
    points = [
        {"role": "phase", "arm": arm, "phase": phase, "dtype": (dtype := row["matrix_dtype"])}
        | {"flop_per_byte": row["flops_per_byte"], "flop_per_s": row["flops"] / row["seconds"]["median"]}
        | {"of_roof": _of_roof(row, peaks[dtype], memory) if dtype in peaks else None}
        for arm, phase, row in bounds
    ]
    ridge = peak / memory
    left = min([ridge / 4, *(p["flop_per_byte"] for p in points)]) / 2
    right = max([ridge * 4, *(p["flop_per_byte"] for p in points)]) * 2
    corners = [(left, left * memory), (ridge, peak), (right, peak)]
    roof = [
        {"role": "roof", "arm": None, "phase": None, "dtype": None, "flop_per_byte": x, "flop_per_s": y}
        | {"of_roof": None}
        for x, y in corners
    ]
    return roof + points


def _of_roof(row: Row, matrix_per_s: float, memory_per_s: float) -> float:
    return of_roof(row["flops"], row["seconds"]["median"], row["flops_per_byte"], matrix_per_s, memory_per_s)


def shares(site: Site) -> list[Row]:
    rows = []
    for arm, measured in site.profiles.items():
        for phase, entry in (measured.get("phases") or {}).items():
            classes = entry["device"]["classes"] if "device" in entry else entry["classes"]
            total = sum(classes.values())
            for name in CLASSES:
                if total and classes.get(name):
                    row = {"arm": arm, "phase": phase, "bar": f"{arm} · {phase}", "class": name}
                    rows.append(row | {"seconds": classes[name], "share": classes[name] / total})
    return rows


def bandwidth(site: Site) -> list[Row]:
    ceiling = site.ceiling
    rows = [
        {"kind": kind, "bytes": row["bytes"], "bytes_per_s": row[kind]["median"]}
        | {"low": row[kind].get("low"), "high": row[kind].get("high")}
        for row in ceiling.get("by_size") or []
        for kind in ("read", "copy", "write")
    ]
    cache = ceiling.get("last_level_cache_bytes")
    sizes = [row["bytes"] for row in rows]
    if cache and sizes and min(sizes) < cache < max(sizes):
        rows.append({"kind": "cache", "bytes": cache, "bytes_per_s": None, "low": None, "high": None})
    return rows


def _kernel_rows(path: Path) -> list[Row]:
    """Rows of one file of ``benchmarks/decode_attention.py``; failed rows have no time and are left out."""
    data = json.loads(path.read_text(encoding="utf-8"))
    ceiling = data["ceilings"]["read_bytes_per_s"]
    return [
        {"case": row["case"], "kernel": row["provider"], "family": row["provider"].partition(":")[0]}
        | {"bytes_per_s": row["bytes_per_s"]}
        | {"low": row["bytes"] / row["high_us"] * 1e6, "high": row["bytes"] / row["low_us"] * 1e6}
        | {"median_us": row["median_us"], "error": row.get("error"), "ceiling": ceiling}
        | {"device": data["host"]["device"], "file": path.name}
        for row in data["rows"]
        if isinstance(row.get("median_us"), (int, float)) and math.isfinite(row["median_us"])
    ]


def kernels(site: Site) -> list[Row]:
    return [row for path in site.spec.kernels for row in _kernel_rows(path)]


_ROWS: dict[str, Callable[[Site], list[Row]]] = {
    "pareto": pareto,
    "gates": gates,
    "latency_ttft": _latency("ttft_ms"),
    "latency_tpot": _latency("tpot_ms"),
    "rounds": rounds,
    "kv_memory": kv_memory,
    "roofline": roofline,
    "shares": shares,
    "bandwidth": bandwidth,
    "kernels": kernels,
}


def rows_of(name: str, site: Site) -> list[Row]:
    """Rows of a figure, tiers and arms in the platform file's order: a specification's JSON has sorted keys."""
    tiers = {tier: number for number, tier in enumerate(site.tiers)}
    arms = {arm: number for number, arm in enumerate(site.arms)}

    def place(row: Row) -> tuple[int, int]:
        return tiers.get(row.get("tier") or "", -1), arms.get(row.get("arm") or "", -1)

    # Stable: what has no tier or arm, or the same, keeps its order. Gates keep the decision file's order.
    return _ROWS[name](site) if name in ("gates", "roofline", "kernels") else sorted(_ROWS[name](site), key=place)
