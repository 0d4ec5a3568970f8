"""What a measuring job of the miniature does: note that it began, and write evidence of the real schema.

Runs inside the job's interpreter before its module is loaded, and ends the process. Time is the number of jobs
so far: each serving job takes the minutes that its arm was given.
"""

from __future__ import annotations

import json
import os
import random
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

BEGIN = datetime(2026, 1, 1, tzinfo=timezone.utc)
REQUESTS = 16


def clock(folder: Path, minutes: float) -> tuple[str, str]:
    """Start and end of a job on the miniature's own clock."""
    path = folder / "clock"
    now = BEGIN + timedelta(minutes=float(path.read_text()) if path.is_file() else 0.0)
    end = now + timedelta(minutes=minutes)
    path.write_text(str((end - BEGIN).total_seconds() / 60 + 0.1))
    return now.isoformat(timespec="milliseconds"), end.isoformat(timespec="milliseconds")


def percentiles(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {f"p{p}": ordered[min(len(ordered) - 1, int(p / 100 * len(ordered)))] for p in (50, 90, 99)} | {
        "mean": sum(values) / len(values)
    }


def served(spec: dict[str, Any], tier: dict[str, Any], numbers: dict[str, Any]) -> dict[str, Any]:
    """``measured`` of a tier: latencies and throughput around the arm's own level."""
    draw = random.Random(f"{spec['arm']['name']}/{spec['round']}/{tier['name']}")
    start = 2.718281828 ** (numbers.get("noise", 0.01) * draw.gauss(0, 1))
    slow = numbers.get("slow", 1.0)
    per_request = {
        name: [level * slow * start * 2.718281828 ** (0.05 * draw.gauss(0, 1)) for _ in range(REQUESTS)]
        for name, level in (("ttft_ms", 300.0), ("tpot_ms", 50.0))
    }
    per_request["e2el_ms"] = [a + 31 * b for a, b in zip(per_request["ttft_ms"], per_request["tpot_ms"], strict=True)]
    found: dict[str, Any] = {name: percentiles(values) for name, values in per_request.items()}
    rate = numbers.get("rate", 50.0) / start
    return found | {
        "itl_ms": found["tpot_ms"],
        "completed": REQUESTS,
        "failed": 0,
        "per_request": per_request,
        "output_tokens_per_s": rate,
        "total_tokens_per_s": 7 * rate,
        "goodput_requests_per_s": None,
    }


def scores(spec: dict[str, Any], numbers: dict[str, Any]) -> dict[str, Any]:
    """``measured`` of an accuracy run: the same answers for every arm, but for a given loss of the first ones."""
    lost = numbers.get("lost", 0)
    return {
        "tasks": {
            task["name"]: {
                "class": task["name"], "metric": "F1", "samples": 300, "mean": 50.0, "control": None,
                "scores": [0.0 if i < lost else 50.0 for i in range(300)],
            }
            for task in spec["tasks"]
        }
    }  # fmt: skip


def main(module: str, argv: list[str]) -> None:
    """Stand in for one job and exit."""
    from adrbench import evidence
    from adrbench.evidence import Evidence

    folder = Path(os.environ["MINIATURE"])
    spec, output = (argv[argv.index(name) + 1] for name in ("--spec", "--output"))
    content, path = json.loads(spec), Path(output)
    stage = module.removeprefix("adrbench.").split(".")[0]
    arm = content["arm"]["name"] if isinstance(content.get("arm"), dict) else content.get("name")
    with (folder / "jobs.log").open("a") as log:
        log.write(" ".join(str(part) for part in (stage, arm, content.get("round")) if part is not None) + "\n")
    numbers = json.loads((folder / "numbers.json").read_text()).get(arm, {})
    begun, ended = clock(folder, numbers.get("minutes", 5.0) if stage == "serve" else 1.0)
    common: dict[str, Any] = {
        "stage": stage,
        "platform": content["platform"],
        "started_at": begun,
        "finished_at": ended,
    }
    resolved = {"vllm_version": "0.27.0", "attention_backend": "CPU_ATTN", "kv_cache_dtype": "auto", "block_size": 128}
    if stage == "serve":
        for tier in content["tiers"]:
            asked = {
                "arm": content["arm"], "tier": tier, "server": content["server"], "serve": content["serve"],
                "policy": content["policy"], "content": "string", "prompts_sha256": "p", "model_digest": "m",
                "host": "h",
            }  # fmt: skip
            document = Evidence(
                arm=arm, round=content["round"], tier=tier["name"], asked=asked,
                resolved=resolved | {"kv_pool_tokens": numbers.get("pool", 40_000)},
                measured=served(content, tier, numbers), **common,
            )  # fmt: skip
            evidence.write(path.parent / f"{tier['name']}.json", document)
    elif stage == "eval":
        asked = {"arm": content["arm"], "data_sha256": "d"}
        evidence.write(
            path, Evidence(arm=arm, asked=asked, resolved=resolved, measured=scores(content, numbers), **common)
        )
    else:
        evidence.write(path, Evidence(**common))
        if stage == "model":
            Path(content["folder"]).mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    os._exit(0)
