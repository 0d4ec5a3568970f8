"""A small, hand-made set of evidence for the CPU platform: the shapes of every stage, values that nobody measured.

It follows the stages' contracts, so that a report can be rendered without running any of them. What it
cannot prove: that a stage still writes this shape (the decide document is checked by its own model).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml
from adrbench.config.platform import Platform
from adrbench.evidence import Evidence, write, write_json
from adrbench.paths import ROOT

TIERS = ("short", "medium", "long")
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
TASKS = ("multi_hop_qa", "retrieval_multi_point")
SPEED = {"auto": 1.0, "fp8-e4m3": 0.94, "fp8-e5m2": 0.91}
POOL = {"auto": 46592, "fp8-e4m3": 93184, "fp8-e5m2": 93056}
AT = "2026-11-29T17:0{}:00.000+00:00"


def platform(name: str = "cpu") -> Platform:
    return Platform.model_validate(yaml.safe_load((ROOT / f"config/platforms/{name}.yaml").read_text()))


def decision(adr: str) -> dict[str, Any]:
    data: dict[str, Any] = yaml.safe_load((ROOT / f"config/decisions/{adr}.yaml").read_text())
    return data


def _evidence(stage: str, minute: int, **parts: Any) -> Evidence:
    return Evidence(stage=stage, platform="cpu", started_at=AT.format(0), finished_at=AT.format(minute), **parts)  # type: ignore[arg-type]


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

    return _evidence(
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
    return _evidence("eval", 2, arm=arm, resolved={"opencompass_version": "0.5.4"}, measured={"tasks": tasks})


def integration(name: str, **parts: Any) -> Evidence:
    return _evidence("integrate", 3, arm=name, **parts)


ANSWERS = {"answers_equal": 6, "answers_compared": 6, "changed": False}


def singles(claim_file: Path) -> dict[str, Evidence]:
    """Evidence that a platform has once."""
    low_high = {"median": 9.31e9, "low": 9.05e9, "high": 9.52e9}
    shares = {"prefill": (0.47, 12, 3072, 2.31), "decode": (0.41, 118, 472, 2.02), "mixed": (0.12, 9, 1051, 0.59)}
    classes = {"gemm": 0.71, "attention": 0.14, "norm_rope_activation": 0.11, "other": 0.0004}
    phases = {
        name: {
            "seconds": seconds,
            "share": share,
            "steps": steps,
            "tokens": tokens,
            "classes": {cls: seconds * part * (1 + 0.1 * len(name)) for cls, part in classes.items()},
        }
        for name, (share, steps, tokens, seconds) in shares.items()
    }
    used = {"median": 0.517, "low": 0.482, "high": 0.549}

    def share(middle: float) -> dict[str, float]:
        return {"median": middle, "low": 0.9 * middle, "high": 1.1 * middle}

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

    def lever(name: str, saved: float, rule: str | None = None) -> dict[str, Any]:
        return {"lever": name, "saves_at_most": saved, "saves": share(saved / 2), "forbidden_by": rule}

    def checked(name: str, unit: str, computed: float, verdict: str) -> dict[str, Any]:
        row = {"check": name, "unit": unit, "computed": computed, "measured": 1.07 * computed, "ratio": 0.9346}
        return row | {"limit": 0.031, "verdict": verdict}

    decode = {
        "step_seconds": {"median": 0.0583, "low": 0.0561, "high": 0.0607},
        "bytes_per_step": 281000000.0,
        "kv_share": 0.0436,
        "kv_bytes_per_token": 23040,
        "bytes_per_s": {"median": 4.82e9, "low": 4.63e9, "high": 5.01e9},
        "utilisation": used,
        "ceiling_at_working_set": {"utilisation": {"median": 0.43, "low": 0.41, "high": 0.46}},
    }
    speeds = (("read", 9.1e10), ("write", 5.3e10), ("copy", 7.7e10))
    return {
        "device": _evidence(
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
        ),
        "model": _evidence(
            "model",
            0,
            measured={
                "architecture": "LlamaForCausalLM",
                "parameters": 134515008,
                "weight_bytes": 269030016,
                "head_dim": 64,
                "dummy": False,
            },
        ),
        "kernels": _evidence(
            "kernels",
            1,
            measured={
                "mode": "interpreter",
                "cases": [{"op": "store"}] * 41,
                "triton": "3.9.0",
                "proved": ["bf16", "int8"],
                "not_proved": {
                    "fp8_e4m3fn": "cast from fp32: the interpreter computes it wrongly (error 0.5 is above 0)"
                },
            },
        ),
        "ceiling": _evidence(
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
        ),
        "profile": _evidence(
            "profile",
            4,
            arm="auto",
            measured={
                "phases": phases,
                "decode": decode,
                "g06": {"threshold": 0.6, "utilisation": used, "verdict": "failed", "text": "x"},
                "overhead": {"ratio": 1.34, "decode_step_ratio": 1.52},
                "window_shares": {"prefill": share(0.37), "decode": share(0.63)},
                "cpu_time_shares": {"prefill": share(0.34), "decode": share(0.66)},
                "bounds": {
                    "prefill": bound("compute", 1.31, decided_by="alone", leading=["compute"]),
                    "decode": bound("none", 0.0583, decided_by="nothing", leading=["launch", "bandwidth"]),
                },
                "levers": [
                    lever("kv_8bit", 0.0771),
                    lever("weights_8bit", 0.422, "C03"),
                    lever("compile_or_graphs", 0.5),
                    lever("double_batch", 0.413),
                    lever("block_size", 0.0) | {"pool_waste": 0.163},
                ],
                "checks": [
                    checked("weights", "bytes", 2.69e8, "within"),
                    checked("pool", "bytes", 1.07e9, "flagged"),
                    checked("decode", "s", 18.3, "flagged"),
                ],
                "model": MODEL,
            },
            notes=["part of the weights may stay in cache"],
        ),
        "counters": _evidence(
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
        ),
        "L1": integration(
            "L1", resolved={"attention_backend": "CPU_ATTN", "plugin": []}, measured=ANSWERS | {"ignored": True}
        ),
        "L2": integration("L2", measured={"blocked": {"en": "ROCm only", "zh": "仅 ROCm"}}),
        "L3": integration(
            "L3",
            resolved={"attention_backend": "CPU_ATTN", "plugin": [{"mechanism": "L3", "engine": True}]},
            measured=ANSWERS | {"answers_equal": 5, "ignored": False},
        ),
        "claims": _evidence(
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
                    "ADR0010-todo-variable": _claim("holds", "found nowhere in 1,204 files"),
                    "ADR0011-A-L1-flag-line": _claim("holds", "the flag is there", "vllm/engine/arg_utils.py:782"),
                    "ADR0011-C-int8-flag": _claim(
                        "false",
                        "no such dtype",
                        "vllm/config/cache.py:14-23",
                        {"en": "the flag takes: auto, fp8", "zh": "该 flag 只接受: auto, fp8"},
                    ),
                },
            },
        ),
    }


def _claim(verdict: str, found: str, where: str = "", corrected: dict[str, str] | None = None) -> dict[str, Any]:
    return {"verdict": verdict, "found": found, "where": where, "corrected": corrected, "values": {}}


def _both(text: str) -> dict[str, str]:
    return {"en": text, "zh": f"{text} (中文)"}


def _gate(entry: dict[str, Any], tier: str | None, arm: str) -> dict[str, Any]:
    values = {"accuracy_delta": (1.25, -4.1, 6.3), "completion": (1.0, 0.993, 1.0)}
    value, low, high = values.get(entry["metric"], (1.06 / SPEED[arm], 0.91, 1.31))
    undecided = entry["metric"] == "accuracy_delta"
    return {
        "id": entry["id"],
        "title": entry["title"] if isinstance(entry["title"], dict) else _both(entry["title"]),
        "tier": tier,
        "metric": entry["metric"],
        "percentile": entry.get("percentile"),
        "value": value,
        "low": low,
        "high": high,
        "limit": entry["limit"],
        "verdict": "undecided" if undecided else "passed",
        "basis": _both("paired bootstrap" if undecided else "order statistics"),
        "needs": _both("more sample pairs") if undecided else None,
        "evidence": [],
    }


def _check(entry: dict[str, Any], index: int) -> dict[str, Any]:
    """A check of a record of facts; the second is undecided."""
    value = 1.0 if entry["quantity"] in ("fp8_self_check", "rounds_measured") else 0.91 + index / 100
    return {
        "id": entry["id"],
        "title": entry["title"],
        "tier": "short" if index == 1 else None,
        "metric": entry["quantity"],
        "percentile": None,
        "value": value,
        "low": None if index == 1 else value,
        "high": value,
        "limit": entry.get("at_most", entry.get("at_least")),
        "verdict": "undecided" if index == 1 else "passed",
        "basis": _both("read from a file"),
        "needs": _both("a second round") if index == 1 else None,
        "evidence": [],
    }


def history(adr: str) -> dict[str, Any]:
    """Two verdicts: an older one, and the present one."""
    entries = []
    for number, word in enumerate(("Proposed", "Blocked" if adr == "adr0010" else "Proposed"), 1):
        entries.append(
            {
                "number": number,
                "recorded_at": AT.format(number),
                "evidence_digest": str(number) * 64,
                "status": {"word": word, "option": None, "text": _both(f"verdict {number}")},
            }
        )
    return {"schema_version": 1, "adr": adr, "platform": "cpu", "store": "history/cpu", "entries": entries}


def lock(adr: str, state: str = "locked") -> dict[str, Any]:
    return {
        "schema_version": 1,
        "platform": "cpu",
        "adr": adr,
        "state": state,
        "reason": _both("as the verdict says"),
        "option": "bf16 (baseline)",
        "arm": "auto",
        "mechanism": "flag",
        "backend": "CPU_ATTN",
        "evidence_digest": "2" * 64,
        "files": {"serve.sh": "0" * 64, "RESTORE.md": "0" * 64},
    }


def _objective(arm: str | None, metric: str) -> dict[str, Any]:
    known = arm is not None
    gain = POOL[arm] / POOL["auto"] - 1 if arm else None
    verdict = "undecided" if not known else "baseline" if arm == "auto" else "better"
    return {
        "metric": metric,
        "value": float(POOL[arm]) if arm else None,
        "low": None,
        "high": None,
        "gain": gain,
        "gain_low": gain,
        "gain_high": gain,
        "noise": 0.0,
        "p_value": None,
        "verdict": verdict,
        "basis": _both("pool tokens"),
        "needs": None,
    }


def latencies(arm: str, tier: str) -> dict[str, Any]:
    """Percentiles as the decide stage states them."""
    measured = serve(arm, 1, tier).measured
    return {
        metric: {key: measured[metric][key] for key in ("p50", "p90", "p99")}
        | {"p99_low": 0.9 * measured[metric]["p99"], "p99_high": None, "requests": 16, "rounds": 1}
        for metric in ("ttft_ms", "tpot_ms", "itl_ms", "e2el_ms")
    }


def verdict(adr: str) -> dict[str, Any]:
    """The decide stage's document: undecided on accuracy for ADR 0011, blocked for ADR 0010."""
    config, options = decision(adr), []
    facts = config.get("kind") == "facts"
    for option in config.get("options", []):
        arm = next((name for name in option["arms"] if name in SPEED), None)
        gates = [
            _gate(gate, tier, arm)
            for gate in config["gates"]
            for tier in (TIERS if gate["metric"].endswith("_ms") or gate["metric"] == "completion" else (None,))
            if arm and arm != "auto"
        ]
        title = option["title"] if isinstance(option["title"], dict) else {"en": option["title"], "zh": option["title"]}
        options.append(
            {
                "name": option["name"],
                "title": title,
                "arm": arm,
                "state": "measured" if arm else "absent",
                "reason": None if arm else _both("this platform has no arm for it"),
                "violations": [],
                "gates": gates,
                "objective": _objective(arm, config["objective"]["metric"]),
                "eligible": arm is not None,
            }
        )
    blocked = adr == "adr0010"
    checks = [_check(entry, index) for index, entry in enumerate(config.get("checks", []))]
    accuracy = {
        arm: {
            "tasks": {
                task: {"baseline": 41.5, "arm": 40.25, "delta": 1.25, "low": -4.5, "high": 7.5, "n": 14}
                for task in TASKS
            },
            "mean": {"delta": 1.25, "low": -4.1, "high": 6.3, "pairs": 28},
            "more_pairs": 927,
            "exact_agreement": 0.61,
        }
        for arm in SPEED
        if arm != "auto"
    }
    noise = {"a": 96.3, "b": 99.2, "ratio": 1.03, "rounds": 2, "sd": 0.021, "floor": 0.083}
    word = "Blocked" if blocked else "Proposed"
    return {
        "schema_version": 1,
        "decision": adr,
        "platform": "cpu",
        "policy": "cpu",
        "confidence": 0.95,
        "gain_rule": "lower_bound",
        "baseline": "auto",
        "status": {
            "word": word,
            "option": None,
            "text": _both("no second backend here" if blocked else "accuracy is undecided"),
        },
        "options": options,
        "checks": checks,
        "accuracy": {} if blocked or facts else accuracy,
        "noise": {
            tier: {"output_tokens_per_s": noise, "ttft_ms.p99": noise | {"a": 440.1, "b": 453.3}} for tier in TIERS
        },
        "latency": {arm: {tier: latencies(arm, tier) for tier in TIERS} for arm in SPEED},
        "drift": [
            {"metric": "ttft_ms", "tier": "short", "per_hour": 0.12, "low": 0.04, "high": 0.2, "verdict": "drift"}
        ],
        "confounded": [{"arm": "fp8-e5m2", "factor": "block_size", "baseline": "128", "value": "64"}],
        "missing": [] if blocked else [_both("the accuracy gate needs more pairs")],
    }


def write_refusal(path: Path, text: str) -> None:
    """Evidence of a server that refused to start, as it must."""
    write(path, integration("rocm-aiter-fa", measured={"refused": True, "text": text}))


def build(folder: Path, adr: str = "adr0011", language: str = "en") -> dict[str, Any]:
    """Write the evidence below ``folder``; the report's specification as JSON data."""
    results = folder / "results" / "cpu"
    found: dict[str, Any] = {"serve": {}, "eval": {}, "integrate": {}, "profile": {}}
    for arm in SPEED:
        for number in (1, 2) if arm == "auto" else (1,):
            for tier in TIERS:
                path = results / "serve" / arm / f"r{number}" / f"{tier}.json"
                write(path, serve(arm, number, tier))
                found["serve"].setdefault(arm, {}).setdefault(str(number), {})[tier] = str(path)
        found["eval"][arm] = str(results / "eval" / f"{arm}.json")
        write(results / "eval" / f"{arm}.json", evaluation(arm))
    claim_file = folder / "claims.yaml"
    entry = {"id": "ADR0011-C-int8-flag", "statement": {"en": "flag `int8`", "zh": "接 `int8`"}}
    claim_file.write_text(yaml.safe_dump({"claims": [entry]}))
    for name, document in singles(claim_file).items():
        path = results / f"{name}.json"
        write(path, document)
        if name in ("L1", "L2", "L3"):
            found["integrate"][name] = str(path)
        elif name == "profile":
            found["profile"]["auto"] = str(path)
        elif name == "counters":
            found["counters"] = {"auto": str(path)}
        else:
            found[name] = str(path)
    found["history"] = str(results / "history" / f"{adr}.json")
    write_json(results / "history" / f"{adr}.json", history(adr))
    folder_of_lock = folder / "reports" / "cpu" / "lock" / adr
    found["lock"] = str(folder_of_lock / "lock.json")
    write_json(folder_of_lock / "lock.json", lock(adr))
    for name in ("serve.sh", "RESTORE.md"):
        (folder_of_lock / name).write_text("made by a test\n")
    found["decide"] = str(results / "decide" / f"{adr}.json")
    write_json(results / "decide" / f"{adr}.json", verdict(adr))
    for number, reason in enumerate(("incomplete", "incomplete", "client-bound")):
        record = {
            "stage": "serve",
            "reason": reason,
            "message": f"tier short: {number} of 16 | failed",
            "at": f"2026-11-29T17:0{number}",
        }
        write_json(results / "rejected" / f"serve-{number}.json", record)
    return {
        "platform": platform().model_dump(mode="json"),
        "decision": decision(adr),
        "adr": adr,
        "language": language,
        "evidence": found,
        "rejected": str(results / "rejected"),
        "languages": ["en", "zh"],
        "figures": _figures(folder),
    }


def _figures(folder: Path) -> dict[str, str]:
    """Files in the place of figures; a report only links to them."""
    names = {
        name: folder / "reports" / "cpu" / "figures" / f"{name}.svg" for name in ("roofline", "shares", "bandwidth")
    }
    for path in names.values():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    return {name: str(path) for name, path in names.items()}


def site(folder: Path, adrs: tuple[str, ...] = ("adr0011", "adr0010")) -> dict[str, Any]:
    """Write the evidence of several decisions below ``folder``; the page's specification as JSON data."""
    specs = [build(folder, adr) for adr in adrs]
    claims = folder / "results/cpu/claims.json"
    claim_file = ROOT / "config/claims/adr0011.yaml"
    entries = yaml.safe_load(claim_file.read_text(encoding="utf-8"))["claims"][:40]
    own = folder / "claims/adr0011.yaml"
    own.parent.mkdir(exist_ok=True)
    own.write_text(yaml.safe_dump({"claims": entries}, allow_unicode=True), encoding="utf-8")
    words = ("holds", "false", "moved", "imprecise", "unverified")
    document = json.loads(claims.read_text(encoding="utf-8"))
    document["measured"]["verdicts"] |= {
        entry["id"]: _claim(words[n % 5], f"found in place {n}", f"vllm/x.py:{n}", _both(f"corrected {n}"))
        | {"needs": _both("a device") if words[n % 5] == "unverified" else None}
        for n, entry in enumerate(entries)
    }
    write_json(claims, document)
    return {
        "platform": specs[0]["platform"],
        "decisions": [{key: spec[key] for key in ("adr", "decision", "evidence")} for spec in specs],
        "rejected": specs[0]["rejected"],
        "claim_files": [str(own)],
    }
