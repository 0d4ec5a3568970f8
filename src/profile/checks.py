"""Whether the models and the trace agree with what was measured otherwise: a table of checks. No I/O.

``weights`` and ``pool`` hold the bytes model against the files on disk and the memory that vLLM gave its
KV pool, ``block_size`` a hybrid model's computed block size against the resolved one, ``prefill`` and
``decode`` the trace against vLLM's own counters of the same window. A check without a measured value is
``unknown`` and says so; it is never taken as passed.
"""

from __future__ import annotations

from typing import Any

from adrbench.profile.model_bytes import KvFormat, kv_bytes_per_token
from adrbench.profile.model_pool import pool as hybrid_pool
from adrbench.profile.model_shape import Shape

# The bytes model must describe what is on disk and in the pool this well, or it is flagged.
MODEL_TOLERANCE = 0.03
# Trace and counters of one window that differ by more than this are flagged.
DISAGREEMENT = 0.10
# What random weights are held against, which are in no file.
LOADED = "memory that vLLM loaded them into"


def pool_section(
    shape: Shape, kv: KvFormat, tokens: int | None, given_bytes: float | None, ranks: int = 1
) -> dict[str, Any]:
    """The pool that the bytes model expects for ``tokens`` tokens, against the memory vLLM gave it, on one rank.

    A hybrid model's pool is made of pages that also hold recurrent states: vLLM states the tokens of the
    attention layers' share of them, so the bytes are those of all pages.
    """
    computed: float | None = None
    block_size: int | None = None
    if tokens and shape.linear_attention is not None:
        pool = hybrid_pool(shape, kv)
        block_size, blocks = pool.block_size, pool.largest_pool(tokens)
        computed = blocks * pool.block_bytes / ranks if blocks is not None else None
    elif tokens:
        computed = tokens * kv_bytes_per_token(shape, kv) / ranks
    return {
        "tokens": tokens,
        "computed_bytes": computed,
        "computed_block_size": block_size,
        "given_bytes": given_bytes,
        "ratio": computed / given_bytes if computed and given_bytes else None,
    }


def _row(
    name: str, unit: str, computed: float | None, measured: float | None, limit: float, against: str
) -> dict[str, Any]:
    ratio = computed / measured if computed is not None and measured else None
    verdict = "unknown" if ratio is None else "flagged" if abs(ratio - 1) > limit else "within"
    return {
        "check": name,
        "unit": unit,
        "computed": computed,
        "measured": measured,
        "ratio": ratio,
        "limit": limit,
        "against": against,
        "verdict": verdict,
    }


def model_checks(measured: dict[str, Any], resolved_block_size: int | None) -> list[dict[str, Any]]:
    """Every check of one profile, from the sections of its evidence."""
    weights, pool = measured["weights"], measured["pool"]
    held, against = weights["on_disk_bytes"], "files on disk"
    if "loaded_bytes" in weights:
        held, against = weights["loaded_bytes"], LOADED
    rows = [
        _row("weights", "bytes", weights["computed_bytes"], held, MODEL_TOLERANCE, against),
        _row("pool", "bytes", pool["computed_bytes"], pool["given_bytes"], MODEL_TOLERANCE, "memory given to the pool"),
    ]
    if pool["computed_block_size"] is not None:
        rows.append(
            _row("block_size", "tokens", pool["computed_block_size"], resolved_block_size, 0.0, "resolved block size")
        )
    for phase, row in measured["counters"].items():
        # A phase in which neither saw anything has nothing to disagree about.
        if row["trace_s"] or row["counter_s"]:
            rows.append(_row(phase, "s", row["trace_s"], row["counter_s"], DISAGREEMENT, "vLLM's counter"))
    return rows


def flags(checks: list[dict[str, Any]]) -> list[str]:
    """One line per check that is out, for the notes of the evidence."""
    lines = []
    for row in checks:
        if row["verdict"] == "flagged":
            lines.append(
                f"{row['check']}: computed {row['computed']:.4g} {row['unit']} against {row['measured']:.4g} "
                f"({row['against']}), ratio {row['ratio']:.3f}: not within {row['limit']:.0%}"
            )
    return lines
