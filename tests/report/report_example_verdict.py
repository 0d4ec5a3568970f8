"""Hand-made documents of the decide stage and what follows from a verdict: its history, its lock."""

from __future__ import annotations

from typing import Any

from report_example_stages import AT, POOL, SPEED, TASKS, TIERS, both, decision, serve


def _gate(entry: dict[str, Any], tier: str | None, arm: str) -> dict[str, Any]:
    values = {"accuracy_delta": (1.25, -4.1, 6.3), "completion": (1.0, 0.993, 1.0)}
    value, low, high = values.get(entry["metric"], (1.06 / SPEED[arm], 0.91, 1.31))
    undecided = entry["metric"] == "accuracy_delta"
    return {
        "id": entry["id"],
        "title": entry["title"] if isinstance(entry["title"], dict) else both(entry["title"]),
        "tier": tier,
        "metric": entry["metric"],
        "percentile": entry.get("percentile"),
        "value": value,
        "low": low,
        "high": high,
        "limit": entry["limit"],
        "verdict": "undecided" if undecided else "passed",
        "basis": both("paired bootstrap" if undecided else "order statistics"),
        "needs": both("more sample pairs") if undecided else None,
        "pairs_needed": 927 if undecided else None,
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
        "basis": both("read from a file"),
        "needs": both("a second round") if index == 1 else None,
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
                "status": {"word": word, "option": None, "text": both(f"verdict {number}")},
            }
        )
    return {"schema_version": 1, "adr": adr, "platform": "cpu", "store": "history/cpu", "entries": entries}


def lock(adr: str, state: str = "locked") -> dict[str, Any]:
    return {
        "schema_version": 1,
        "platform": "cpu",
        "adr": adr,
        "state": state,
        "reason": both("as the verdict says"),
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
        "basis": both("pool tokens"),
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


def _options(config: dict[str, Any]) -> list[dict[str, Any]]:
    """Every option of a comparison: measured where the platform has its arm, else absent."""
    options = []
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
                "reason": None if arm else both("this platform has no arm for it"),
                "violations": [],
                "gates": gates,
                "objective": _objective(arm, config["objective"]["metric"]),
                "eligible": arm is not None,
            }
        )
    return options


def verdict(adr: str) -> dict[str, Any]:
    """The decide stage's document: undecided on accuracy for ADR 0011, blocked for ADR 0010."""
    config = decision(adr)
    facts = config.get("kind") == "facts"
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
            "text": both("no second backend here" if blocked else "accuracy is undecided"),
        },
        "options": _options(config),
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
        "missing": [] if blocked else [both("the accuracy gate needs more pairs")],
    }
