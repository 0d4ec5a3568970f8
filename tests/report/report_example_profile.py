"""Hand-made evidence of block B: measured ceilings, a profile, counted memory traffic."""

from __future__ import annotations

from typing import Any

from adrbench.evidence import Evidence
from adrbench.profile.checks import LOADED
from report_example_stages import document

# SmolLM2-135M's shape, as a profile keeps it.
MODEL = {
    "model_type": "llama",
    "hidden": 576,
    "vocabulary": 49152,
    "tied_embeddings": True,
    "weight_bytes_per_value": 2,
    "attention": {"layers": 30, "query_heads": 9, "kv_heads": 3, "head_dim": 64},
    "feed_forward": [{"layers": 30, "intermediate": 1536}],
    "linear_attention": None,
}


def share(middle: float) -> dict[str, float]:
    return {"median": middle, "low": 0.9 * middle, "high": 1.1 * middle}


def ceiling() -> Evidence:
    low_high = {"median": 9.31e9, "low": 9.05e9, "high": 9.52e9}
    speeds = (("read", 9.1e10), ("write", 5.3e10), ("copy", 7.7e10))
    return document(
        "profile",
        1,
        tier="ceiling",
        measured={
            "read_bytes_per_s": low_high,
            "write_bytes_per_s": {"median": 7.7e9, "low": 7.5e9, "high": 7.9e9},
            "datasheet_bytes_per_s": 1.88e10,
            "fraction_of_datasheet": 0.4952,
            "by_size": [
                {"bytes": 65536 * 4**step} | {kind: share(bandwidth / (1 + step)) for kind, bandwidth in speeds}
                for step in range(3)
            ],
            "matmul_flop_per_s": {
                "bfloat16": {
                    "median": 4.2e10,
                    "low": 4e10,
                    "high": 4.4e10,
                    "datasheet_per_s": 6.17e10,
                    "fraction_of_datasheet": 0.6807,
                },
                "int8": {"unsupported": "no"},
            },
            "launch_s": {"median": 1.9e-6, "low": 1.8e-6, "high": 2.2e-6},
            "last_level_cache_bytes": 34603008,
        },
    )


def phases() -> dict[str, Any]:
    """Seconds, steps, tokens and classes of operation of each phase."""
    shares = {"prefill": (0.47, 12, 3072, 2.31), "decode": (0.41, 118, 472, 2.02), "mixed": (0.12, 9, 1051, 0.59)}
    classes = {"gemm": 0.71, "attention": 0.14, "norm_rope_activation": 0.11, "other": 0.0004}
    return {
        name: {
            "seconds": seconds,
            "share": share,
            "steps": steps,
            "tokens": tokens,
            "classes": {cls: seconds * part * (1 + 0.1 * len(name)) for cls, part in classes.items()},
        }
        for name, (share, steps, tokens, seconds) in shares.items()
    }


def bound(name: str, scale: float, **more: Any) -> dict[str, Any]:
    limits = ("compute", "bandwidth", "launch", "host")
    return {
        "bound": name,
        "threshold": 0.61,
        "seconds": {"median": scale, "low": 0.97 * scale, "high": 1.02 * scale},
        "flops_per_byte": 7.21 * scale,
        "matrix_dtype": "bfloat16",
        "flops": 2.1e9,
        "shares": {limit: share(0.11 + 0.23 * scale + 0.07 * number) for number, limit in enumerate(limits)},
        **more,
    }


def part(name: str, taken: float, limit: str | None, lever: str) -> dict[str, Any]:
    """One class of kernels of a phase."""
    reached = share(0.513) if limit else None
    return {"class": name, "share": taken, "limit": limit, "reached": reached, "left": 0.27 * taken, "lever": lever}


# As a device's trace gives them.
PARTS = [
    part("attention", 0.472, "bandwidth", "attention_backend"),
    part("gemm", 0.457, "compute", "gemm_kernel"),
    part("norm_rope_activation", 0.0346, None, "fusion"),
]


def lever(name: str, saved: float, rule: str | None = None) -> dict[str, Any]:
    return {"lever": name, "saves_at_most": saved, "saves": share(saved / 2), "forbidden_by": rule}


def checked(name: str, unit: str, computed: float, verdict: str) -> dict[str, Any]:
    row = {"check": name, "unit": unit, "computed": computed, "measured": 1.07 * computed, "ratio": 0.9346}
    return row | {"limit": 0.031, "verdict": verdict}


def decode(used: dict[str, float]) -> dict[str, Any]:
    """Bytes and seconds of a decode step; ``used`` of the memory ceiling."""
    return {
        "step_seconds": {"median": 0.0583, "low": 0.0561, "high": 0.0607},
        "bytes_per_step": 281000000.0,
        "kv_share": 0.0436,
        "kv_bytes_per_token": 23040,
        "bytes_per_s": {"median": 4.82e9, "low": 4.63e9, "high": 5.01e9},
        "utilisation": used,
        "ceiling_bytes_per_s": {"kind": "read", "median": 9.31e9, "low": 9.05e9, "high": 9.52e9},
        "ceiling_at_working_set": {"utilisation": {"median": 0.43, "low": 0.41, "high": 0.46}},
    }


def profile() -> Evidence:
    used = {"median": 0.517, "low": 0.482, "high": 0.549}
    return document(
        "profile",
        4,
        arm="auto",
        measured={
            "phases": phases(),
            "decode": decode(used),
            "g06": {"threshold": 0.6, "utilisation": used, "verdict": "failed", "text": "x"},
            "overhead": {"ratio": 1.34, "decode_step_ratio": 1.52},
            "window_shares": {"prefill": share(0.37), "decode": share(0.63)},
            "cpu_time_shares": {"prefill": share(0.34), "decode": share(0.66)},
            "bounds": {
                "prefill": bound("compute", 1.31, decided_by="alone", leading=["compute"], classes=PARTS)
                | {"overheads_by": "device idle"},
                "decode": bound("none", 0.0583, decided_by="nothing", leading=["launch", "bandwidth"]),
            },
            "levers": [
                lever("kv_8bit", 0.0771),
                lever("weights_8bit", 0.422, "C03"),
                lever("compile_or_graphs", 0.5) | {"graphs": True},
                lever("double_batch", 0.413),
                lever("block_size", 0.0) | {"pool_waste": 0.163},
            ],
            "checks": [
                checked("weights", "bytes", 2.69e8, "within"),
                checked("pool", "bytes", 1.07e9, "flagged"),
                checked("weights", "bytes", 2.71e8, "within") | {"against": LOADED},
                checked("decode", "s", 18.3, "flagged"),
            ],
            "model": MODEL,
        },
        notes=["part of the weights may stay in cache"],
    )


def counters() -> Evidence:
    return document(
        "profile",
        4,
        arm="auto",
        tier="counters",
        measured={
            "read_bytes_per_step": 3.11e8,
            "written_bytes_per_step": 1.7e6,
            "model_bytes_per_step": 2.93e8,
            "counted_over_model": 1.067,
        },
    )
