"""A small, hand-made set of evidence for the CPU platform: the shapes of every stage, values that nobody measured.

It follows the stages' contracts, so that a report can be rendered without running any of them. What it
cannot prove: that a stage still writes this shape (the decide document is checked by its own model).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from adrbench.config.platform import Platform
from adrbench.evidence import Evidence
from adrbench.paths import ROOT

TIERS = ("short", "medium", "long")
TASKS = ("multi_hop_qa", "retrieval_multi_point")
SPEED = {"auto": 1.0, "fp8-e4m3": 0.94, "fp8-e5m2": 0.91}
POOL = {"auto": 46592, "fp8-e4m3": 93184, "fp8-e5m2": 93056}
AT = "2026-11-29T17:0{}:00.000+00:00"


def platform(name: str = "cpu") -> Platform:
    return Platform.model_validate(yaml.safe_load((ROOT / f"config/platforms/{name}.yaml").read_text()))


def decision(adr: str) -> dict[str, Any]:
    data: dict[str, Any] = yaml.safe_load((ROOT / f"config/decisions/{adr}.yaml").read_text())
    return data


def document(stage: str, minute: int, **parts: Any) -> Evidence:
    return Evidence(stage=stage, platform="cpu", started_at=AT.format(0), finished_at=AT.format(minute), **parts)  # type: ignore[arg-type]


def both(text: str) -> dict[str, str]:
    return {"en": text, "zh": f"{text} (中文)"}


def serve(arm: str, number: int, tier: str) -> Evidence:
    """One tier; each value differs from every other, so that a mix-up shows."""
    scale = SPEED[arm] * (1 + 0.03 * (number - 1)) / (1 + TIERS.index(tier))

    def spread(base: float) -> dict[str, float]:
        return {
            "p50": base / scale,
            "p90": 1.21 * base / scale,
            "p99": 1.43 * base / scale,
            "mean": 1.05 * base / scale,
        }

    return document(
        "serve",
        1,
        arm=arm,
        round=number,
        tier=tier,
        resolved={
            "vllm_version": "0.27.0",
            "attention_backend": "CPU_ATTN",
            "kv_cache_dtype": arm.replace("-", "_"),
            "block_size": 128,
            "kv_pool_tokens": POOL[arm],
            "plugin": [],
        },
        measured={
            "completed": 16,
            "failed": 0,
            "prefix_cache_hits": 0.0,
            "preemptions": 0.0,
            "start_s": 22.6 / scale,
            "telemetry": {
                "absent": ["power_w: no counter"],
                "clock_core_mhz": {"median": 2600.0},
                "memory_used_bytes": {"max": 6.1e9},
                "load_average_1min": {"max": 4.2},
            },
            "input_tokens": {"min": 130, "median": 187.0 + len(tier), "max": 255, "total": 3000},
            "ttft_ms": spread(312.0),
            "tpot_ms": spread(36.5),
            "itl_ms": spread(35.1),
            "e2el_ms": spread(1480.0),
            "output_tokens_per_s": 96.3 * scale,
            "total_tokens_per_s": 613.0 * scale,
            "goodput_requests_per_s": None,
            "duration_s": 5.1 / scale,
            "per_request": {
                f"{metric}_ms": [base / scale * (1 + 0.01 * (7 * n % 16)) for n in range(16)]
                for metric, base in (("ttft", 300.0), ("tpot", 35.0), ("e2el", 1400.0))
            },
        },
        files={"bench.json": "0" * 64},
    )


def evaluation(arm: str) -> Evidence:
    tasks = {}
    for index, task in enumerate(TASKS):
        mean = 41.5 + 7 * index - (0 if arm == "auto" else 1.25)
        control = {"mean": 12.5 + index, "difference": mean - 12.5 - index, "low": 11.0 + index, "high": 47.0}
        tasks[task] = {
            "class": task,
            "metric": "F1",
            "samples": 14,
            "mean": mean,
            "scores": [mean] * 14,
            "prompt_tokens": {"min": 700, "median": 741, "max": 768},
            "control": control if arm == "auto" else None,
            "seconds": 31.0,
        }
    return document("eval", 2, arm=arm, resolved={"opencompass_version": "0.5.4"}, measured={"tasks": tasks})


def integration(name: str, **parts: Any) -> Evidence:
    return document("integrate", 3, arm=name, **parts)


def device() -> Evidence:
    return document(
        "device",
        0,
        resolved={
            "vendor": "cpu",
            "arch": "x86_64",
            "name": "Example CPU",
            "runtime": "CPU",
            "python": "3.11.7",
            "torch": "2.13.0",
            "vllm": "0.27.0",
            "kv_cache_dtypes": ["auto", "fp8", "fp8_e4m3", "fp8_e5m2", "int8_per_token_head"],
        },
        measured={
            "devices": [{"index": 0, "name": "Example CPU", "memory_bytes": 25769803776}],
            "fp8": {"status": "passed", "resolved_dtype": "float8_e4m3fn", "maximum": 448.0},
        },
    )


def model() -> Evidence:
    return document(
        "model",
        0,
        measured={
            "architecture": "LlamaForCausalLM",
            "parameters": 134515008,
            "weight_bytes": 269030016,
            "head_dim": 64,
            "dummy": False,
        },
    )


def kernels() -> Evidence:
    return document(
        "kernels",
        1,
        measured={
            "mode": "interpreter",
            "cases": [{"op": "store"}] * 41,
            "triton": "3.9.0",
            "proved": ["bf16", "int8"],
            "not_proved": {"fp8_e4m3fn": "cast from fp32: the interpreter computes it wrongly (error 0.5 is above 0)"},
        },
    )


ANSWERS = {"answers_equal": 6, "answers_compared": 6, "changed": False}


def integrations() -> dict[str, Evidence]:
    """What became of each way of putting a backend into vLLM."""
    return {
        "L1": integration(
            "L1", resolved={"attention_backend": "CPU_ATTN", "plugin": []}, measured=ANSWERS | {"ignored": True}
        ),
        "L2": integration("L2", measured={"blocked": {"en": "ROCm only", "zh": "仅 ROCm"}}),
        "L3": integration(
            "L3",
            resolved={"attention_backend": "CPU_ATTN", "plugin": [{"mechanism": "L3", "engine": True}]},
            measured=ANSWERS | {"answers_equal": 5, "ignored": False},
        ),
    }


def claim(verdict: str, found: str, where: str = "", corrected: dict[str, str] | None = None) -> dict[str, Any]:
    return {"verdict": verdict, "found": found, "where": where, "corrected": corrected, "values": {}}


def claims(claim_file: Path) -> Evidence:
    return document(
        "claims",
        1,
        resolved={"claim_files": {str(claim_file): "0" * 64}},
        measured={
            "architectures": {
                "gfx936": {"explicit": {"TRITON_ATTN": "TRITON_ATTN", "ROCM_ATTN": "ValueError: made up"}}
            },
            "version": "0.18.1",
            "counts": {"holds": 2, "false": 1, "unverified": 3},
            "verdicts": {
                "ADR0010-todo-variable": claim("holds", "found nowhere in 1,204 files"),
                "ADR0011-A-L1-flag-line": claim("holds", "the flag is there", "vllm/engine/arg_utils.py:782"),
                "ADR0011-C-int8-flag": claim(
                    "false",
                    "no such dtype",
                    "vllm/config/cache.py:14-23",
                    {"en": "the flag takes: auto, fp8", "zh": "该 flag 只接受: auto, fp8"},
                ),
            },
        },
    )
