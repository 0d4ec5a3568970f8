"""Synthetic evidence for decide tests: files of the real schema with numbers that a test chooses, and their verdict.

It proves what the decide stage makes of given numbers, and nothing about vLLM.
"""

from __future__ import annotations

import copy
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
from adrbench import evidence
from adrbench.config.files import read_yaml
from adrbench.decide.__main__ import gather, judge
from adrbench.decide.spec import parse_spec
from adrbench.evidence import Evidence
from adrbench.paths import ROOT

TIERS = [{"name": "short", "weight": 1.0}, {"name": "long", "weight": 1.0}]
TASKS = ("multi_hop_qa", "summary", "retrieval_multi_point", "aggregation_keyword_aggregation")
FP8 = {"kv_cache_dtype": "fp8_e4m3"}


def decision(name: str = "adr0011", **changes: Any) -> dict[str, Any]:
    """A shipped decision file, with changed keys."""
    return copy.deepcopy(read_yaml(ROOT / f"config/decisions/{name}.yaml")) | changes


def started(order: int) -> str:
    """Start time of the order-th server, 5 minutes apart."""
    when = datetime(2026, 1, 2, tzinfo=timezone.utc) + timedelta(minutes=5 * order)
    return when.isoformat(timespec="milliseconds")


class World:
    """A results folder of one platform that a test fills with evidence."""

    def __init__(self, folder: Path, seed: int = 1):
        self.folder = folder
        self.rng = np.random.default_rng(seed)
        self.serve: dict[str, dict[str, dict[str, str]]] = {}
        self.eval: dict[str, str] = {}
        self.integrate: dict[str, str] = {}
        self.count = 0

    def server(
        self,
        arm: str,
        number: int,
        *,
        ttft_ms: float = 400.0,
        tpot_ms: float = 70.0,
        rate: float = 50.0,
        noise: float = 0.02,
        requests: int = 16,
        pool: int = 46_592,
        tiers: tuple[str, ...] = ("short", "long"),
        order: int | None = None,
        minutes: float = 0.0,
        asked: dict[str, Any] | None = None,
        resolved: dict[str, Any] | None = None,
        measured: dict[str, Any] | None = None,
    ) -> None:
        """One round of one arm: ``noise`` is the log SD between server starts, ``minutes`` how long it took."""
        self.count += 1
        when = started(self.count if order is None else order)
        ended = (datetime.fromisoformat(when) + timedelta(minutes=minutes)).isoformat(timespec="milliseconds")
        for tier in tiers:
            path = self.folder / "cpu" / "serve" / arm / f"r{number}" / f"{tier}.json"
            start = {name: float(np.exp(noise * self.rng.standard_normal())) for name in ("ttft", "tpot", "rate")}
            per_request = {
                "ttft_ms": list(ttft_ms * start["ttft"] * np.exp(0.1 * self.rng.standard_normal(requests))),
                "tpot_ms": list(tpot_ms * start["tpot"] * np.exp(0.05 * self.rng.standard_normal(requests))),
            }
            per_request["e2el_ms"] = [a + 31 * b for a, b in zip(*per_request.values(), strict=True)]
            content = {metric: _percentiles(values) for metric, values in per_request.items()}
            tokens = rate * start["rate"]
            document = Evidence(
                stage="serve", platform="cpu", arm=arm, round=number, tier=tier,
                asked={
                    "arm": {"name": arm}, "policy": "cpu", "content": "string", "model_digest": "model-1",
                    "prompts_sha256": f"prompts-{tier}", "tier": {"name": tier, "prompts": requests},
                    "serve": {"endpoint": "completions", "seed": 1},
                    "server": {"args": ["--dtype", "bfloat16"], "env": {}},
                } | (asked or {}),
                resolved={
                    "kv_pool_tokens": pool, "vllm_version": "0.27.0", "attention_backend": "CPU_ATTN",
                    "kv_cache_dtype": "auto", "block_size": 128,
                } | (resolved or {}),
                measured=content | {
                    "itl_ms": content["tpot_ms"], "completed": requests, "failed": 0, "per_request": per_request,
                    "output_tokens_per_s": tokens, "total_tokens_per_s": 7 * tokens, "goodput_requests_per_s": None,
                } | (measured or {}),
                started_at=when, finished_at=ended,
            )  # fmt: skip
            evidence.write_json(path, document.model_dump(mode="json"))
            self.serve.setdefault(arm, {}).setdefault(str(number), {})[tier] = str(path)

    def accuracy(self, arm: str, scores: dict[str, list[float]], **asked: Any) -> None:
        """One arm's accuracy run from per-sample scores."""
        path = self.folder / "cpu" / "eval" / f"{arm}.json"
        tasks = {
            name: {
                "class": name,
                "metric": "F1",
                "samples": len(s),
                "mean": float(np.mean(s)),
                "scores": s,
                "control": None,
            }
            for name, s in scores.items()
        }
        document = Evidence(
            stage="eval",
            platform="cpu",
            arm=arm,
            asked={"arm": {"name": arm}, "data_sha256": "data-1"} | asked,
            resolved={"vllm_version": "0.27.0"},
            measured={"tasks": tasks},
            started_at=started(0),
            finished_at=started(0),
        )
        evidence.write_json(path, document.model_dump(mode="json"))
        self.eval[arm] = str(path)

    def integration(self, name: str, asked: dict[str, Any], measured: dict[str, Any]) -> None:
        """What became of one way of putting a backend into vLLM."""
        path = self.folder / "cpu" / "integrate" / f"{name}.json"
        document = Evidence(
            stage="integrate",
            platform="cpu",
            arm=name,
            asked=asked,
            resolved={"attention_backend": "CPU_ATTN"},
            measured=measured,
            started_at=started(0),
            finished_at=started(0),
        )
        evidence.write_json(path, document.model_dump(mode="json"))
        self.integrate[name] = str(path)

    def spec(self, **changes: Any) -> dict[str, Any]:
        """The specification over everything written so far; the first arm is the baseline."""
        arms = [{"name": arm, "baseline": position == 0} for position, arm in enumerate(self.serve)]
        return {
            "platform": "cpu", "decision": decision(), "policy": "cpu", "violations": {}, "arms": arms, "tiers": TIERS,
            "evidence": {"serve": self.serve, "eval": self.eval, "integrate": self.integrate}, "blocked": {},
        } | changes  # fmt: skip


def _percentiles(values: list[float]) -> dict[str, float]:
    return {f"p{p}": float(np.percentile(values, p)) for p in (50, 90, 99)} | {"mean": float(np.mean(values))}


def verdict(world, **changes):
    return judge(gather(parse_spec(world.spec(**changes))))


def option(document, name):
    return next(o for o in document.options if o.name == name)


def gate(document, name, identity, tier=None):
    return next(g for g in option(document, name).gates if g.id == identity and g.tier == tier)


def even_scores(n, seed=1):
    rng = np.random.default_rng(seed)
    return {task: [float(s) for s in rng.choice([0, 50, 100], size=n)] for task in TASKS}


def fill(world, rounds, pairs=240, arms=("auto", "fp8-e4m3"), requests=50, **fp8):
    """Baseline (with one more round) and FP8 with twice the pool, equal accuracy."""
    for r in range(1, rounds + 1):
        world.server(arms[0], r, requests=requests)
        for arm in arms[1:]:
            resolved = FP8 if arm.startswith("fp8") else {"attention_backend": arm.upper()}
            world.server(arm, r, **{"pool": 93_184, "resolved": resolved, "requests": requests} | fp8)
    world.server(arms[0], rounds + 1, requests=requests)
    for arm in arms:
        world.accuracy(arm, even_scores(pairs))
    return world


def throughput(**objective):
    return decision("adr0010", objective={"metric": "output_tokens_per_s", "minimum_gain": 0.05} | objective)
