"""CPU seconds and peak memory of the decide stage on a large experiment.

    PYTHONPATH=pythonpath python benchmarks/decide_stage.py
    PYTHONPATH=pythonpath python benchmarks/decide_stage.py --arms 20 --rounds 5 --output decide_stage.json

Evidence of the real schema with synthetic numbers is written to a temporary folder (20 arms, 3 tiers, 5 rounds, the
baseline twice in each, 200 requests, 4 accuracy tasks of 240 samples); then the job itself runs as the workflow runs
it. Its CPU time and peak resident memory are those of the child process, interpreter start included. CPU seconds
are told beside wall seconds because a loaded machine changes only the latter much.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from adrbench import evidence
from adrbench.config.files import read_yaml
from adrbench.evidence import Evidence
from adrbench.paths import PYTHONPATH, ROOT

TIERS = ("4k-8k", "8k-16k", "16k-32k")
TASKS = ("multi_hop_qa", "summary", "retrieval_multi_point", "aggregation_keyword_aggregation")


def percentiles(values: np.ndarray) -> dict[str, float]:
    return {f"p{p}": float(np.percentile(values, p)) for p in (50, 90, 99)} | {"mean": float(values.mean())}


def serve(
    folder: Path, arm: str, number: int, tier: str, position: int, requests: int, rng: np.random.Generator
) -> str:
    """One tier of one server start; returns its path."""
    start = np.exp(0.03 * rng.standard_normal(3))
    ttft = 800 * start[0] * np.exp(0.2 * rng.standard_normal(requests))
    tpot = 60 * start[1] * np.exp(0.05 * rng.standard_normal(requests))
    per_request = {"ttft_ms": ttft, "tpot_ms": tpot, "e2el_ms": ttft + 127 * tpot}
    found: dict[str, Any] = {metric: percentiles(values) for metric, values in per_request.items()}
    rate = float(50 * start[2])
    when = f"2026-01-{1 + position // 288:02d}T{position // 12 % 24:02d}:{position % 12 * 5:02d}:00.000+00:00"
    document = Evidence(
        stage="serve",
        platform="bench",
        arm=arm,
        round=number,
        tier=tier,
        asked={
            "arm": {"name": arm},
            "policy": "cpu",
            "content": "string",
            "model_digest": "m",
            "prompts_sha256": tier,
            "tier": {"name": tier},
            "serve": {"endpoint": "completions"},
            "server": {"args": [], "env": {}},
        },
        resolved={"vllm_version": "0", "attention_backend": arm, "kv_cache_dtype": "auto", "kv_pool_tokens": 40_000},
        measured=found
        | {
            "itl_ms": found["tpot_ms"],
            "completed": requests,
            "failed": 0,
            "per_request": {metric: values.tolist() for metric, values in per_request.items()},
            "output_tokens_per_s": rate,
            "total_tokens_per_s": 7 * rate,
            "goodput_requests_per_s": rate / 128,
        },
        started_at=when,
        finished_at=when,
    )
    path = folder / "serve" / arm / f"r{number}" / f"{tier}.json"
    evidence.write(path, document)
    return str(path)


def accuracy(folder: Path, arm: str, samples: int, rng: np.random.Generator) -> str:
    """One accuracy run, F1-like scores of which 5 % differ between arms; returns its path."""
    tasks = {}
    for task in TASKS:
        scores = np.round(np.random.default_rng(len(task)).uniform(0, 100, samples), 1)
        changed = rng.random(samples) < 0.05
        scores[changed] = np.round(rng.uniform(0, 100, changed.sum()), 1)
        tasks[task] = {
            "class": task, "metric": "F1", "samples": samples, "mean": float(scores.mean()), "control": None,
            "scores": scores.tolist(),
        }  # fmt: skip
    when = "2026-01-01T00:00:00.000+00:00"
    document = Evidence(
        stage="eval", platform="bench", arm=arm, asked={"data_sha256": "d"}, measured={"tasks": tasks},
        started_at=when, finished_at=when,
    )  # fmt: skip
    path = folder / "eval" / f"{arm}.json"
    evidence.write(path, document)
    return str(path)


def specification(folder: Path, arms: int, rounds: int, requests: int, samples: int) -> dict[str, Any]:
    """Write the evidence and return the decide job's specification."""
    rng = np.random.default_rng(20260609)
    names = [f"arm{number:02d}" for number in range(arms)]
    paths: dict[str, dict[str, dict[str, str]]] = {}
    position = 0
    for number in range(1, rounds + 1):
        for name in names:
            for own in (2 * number - 1, 2 * number) if name == names[0] else (number,):
                paths.setdefault(name, {})[str(own)] = {
                    tier: serve(folder, name, own, tier, position, requests, rng) for tier in TIERS
                }
                position += 1
    decision = read_yaml(ROOT / "config/decisions/adr0010.yaml") | {
        "options": [{"name": name, "title": name, "arms": [name]} for name in names]
    }
    return {
        "platform": "bench",
        "decision": decision,
        "policy": "cpu",
        "arms": [{"name": name, "baseline": name == names[0]} for name in names],
        "tiers": [{"name": tier} for tier in TIERS],
        "gain_rule": "estimate",
        "evidence": {"serve": paths, "eval": {name: accuracy(folder, name, samples, rng) for name in names}},
    }


def measure(folder: Path, spec: dict[str, Any]) -> dict[str, float]:
    """Run the job; CPU and wall seconds and peak MiB of its process."""
    (folder / "spec.json").write_text(json.dumps(spec))
    command = [sys.executable, "-m", "adrbench.decide", "--spec", f"@{folder / 'spec.json'}"]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        [*command, "--output", str(folder / "verdict.json")],
        check=True,
        env=os.environ | {"PYTHONPATH": str(PYTHONPATH)},
        stdout=subprocess.DEVNULL,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    # The greatest of all children so far; this process has no other.
    return {"cpu_s": cpu, "wall_s": time.perf_counter() - began, "peak_mib": after.ru_maxrss / 1024}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("arms", 20), ("rounds", 5), ("requests", 200), ("samples", 240)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--output", type=Path, help="JSON file to write")
    arguments = parser.parse_args()
    size = {key: getattr(arguments, key) for key in ("arms", "rounds", "requests", "samples")}
    with tempfile.TemporaryDirectory() as name:
        found = measure(Path(name), specification(Path(name), **size))
    print(
        f"{size['arms']} arms x {len(TIERS)} tiers x {size['rounds']} rounds x {size['requests']} requests: "
        f"{found['cpu_s']:.1f} s of CPU, {found['wall_s']:.1f} s, {found['peak_mib']:.0f} MiB"
    )
    if arguments.output:
        arguments.output.write_text(json.dumps(size | found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
