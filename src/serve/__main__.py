"""Serve one arm for one round and measure all tiers on it.

    python -m adrbench.serve --spec JSON --output results/<platform>/serve/<arm>/r<round>/<tier>.json

``--output`` names the first tier's evidence; the others lie beside it. Specification: ``platform``,
``arm``, ``round``, ``server`` (spec.py), ``serve`` (endpoint, warm-up, seed, goodput, time limits),
``tiers``, ``policy``.
"""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import Any

from adrbench import evidence
from adrbench.device.neighbours import neighbours
from adrbench.device.telemetry import Sampler
from adrbench.evidence import Evidence, now
from adrbench.job import JobError, run, say
from adrbench.paths import interpreter
from adrbench.serve import bench
from adrbench.serve.answers import greedy_answers
from adrbench.serve.process import tail
from adrbench.serve.prompts import write_prompts
from adrbench.serve.resolved import compiled_late
from adrbench.serve.server import Server, serving
from adrbench.serve.spec import weight_notes

# Raw files of a tier, and of its server, which all tiers of a round share.
RAW = ("bench.json", "prompts.jsonl", "before.prom", "after.prom")
SERVER_RAW = ("server.log", "plugin.jsonl")


def _plan(spec: dict[str, Any], server: Server, folders: dict[str, Path]) -> dict[str, Any]:
    runs = []
    for tier in spec["tiers"]:
        folder = folders[tier["name"]]
        argv = bench.bench_argv(
            tier,
            spec["serve"],
            server.base_url,
            spec["server"]["model"],
            folder / "prompts.jsonl",
            folder / "bench.json",
        )
        runs.append(
            {
                "name": tier["name"],
                "argv": argv,
                "before": str(folder / "before.prom"),
                "after": str(folder / "after.prom"),
            }
        )
    return {
        "metrics_url": server.base_url + "/metrics",
        "runs": runs,
        "string_content": spec["serve"]["endpoint"] == "chat",
    }


def _asked(spec: dict[str, Any], tier: dict[str, Any], prompts_digest: str, model_digest: str) -> dict[str, Any]:
    return {
        "arm": spec["arm"],
        "tier": tier,
        "server": spec["server"],
        "serve": spec["serve"],
        "policy": spec["policy"],
        "content": "string",
        "prompts_sha256": prompts_digest,
        "model_digest": model_digest,
        "host": platform.node(),
    }


def _prepare(spec: dict[str, Any], folders: dict[str, Path]) -> tuple[dict[str, list[int]], dict[str, str]]:
    """Write every tier's prompts where nothing of an earlier run is left; by tier their lengths and their digest."""
    lengths, digests = {}, {}
    for tier in spec["tiers"]:
        name = tier["name"]
        folders[name].mkdir(parents=True, exist_ok=True)
        for stale in ("bench.json", "before.prom", "after.prom"):
            (folders[name] / stale).unlink(missing_ok=True)
        prompts = folders[name] / "prompts.jsonl"
        lengths[name], digests[name] = write_prompts(
            Path(spec["server"]["model"]), tier, spec["serve"]["seed"], prompts
        )
    return lengths, digests


def _neighbours_before(kind: str) -> dict[str, Any]:
    """Who else uses the host before the server starts; said where somebody does."""
    found = neighbours(kind)
    if busy := [p for p in found["processes"] if p.get("memory_bytes") or p.get("cores")]:
        say(f"not alone on this host: {len(busy)} other busy processes; recorded in the evidence")
    return found


def _measured(
    spec: dict[str, Any], tier: dict[str, Any], folder: Path, lengths: list[int], prefix_caching: str | None
) -> dict[str, Any]:
    """What one tier's raw files say, checked to be complete.

    Raises:
        JobError: see ``bench.measure`` and the checks after it.
    """
    before, after = ((folder / f"{which}.prom").read_text() for which in ("before", "after"))
    result = bench.read_result(folder / "bench.json", folder.parent / "server" / "client.log")
    chat = spec["serve"]["endpoint"] == "chat"
    measured = bench.measure(tier, lengths, result, before, after, bool(spec["serve"]["goodput"]), chat)
    bench.check_server_count(tier, measured, spec["serve"]["warmup_requests"], chat)
    bench.check_cache(tier, measured, prefix_caching)
    return measured


def work(spec: dict[str, Any], output: Path) -> None:
    """Measure every tier of one arm on one fresh server; evidence is written only when all are complete."""
    round_folder, began = output.parent, now()
    # Read before anything is measured: a damaged file must not cost a measurement.
    model_digest = evidence.read(Path(spec["model_evidence"])).measured["digest"]
    paths = {tier["name"]: round_folder / f"{tier['name']}.json" for tier in spec["tiers"]}
    folders = {name: evidence.raw_folder(path) for name, path in paths.items()}
    lengths, digests = _prepare(spec, folders)

    log = round_folder / "server" / "client.log"
    log.unlink(missing_ok=True)
    before_start = _neighbours_before(spec["device_kind"])
    with serving(spec["server"], round_folder / "server") as server:
        plan = round_folder / "server" / "plan.json"
        plan.write_text(json.dumps(_plan(spec, server, folders), indent=1))
        answers = greedy_answers(server)
        say(f"loading tiers {', '.join(paths)}; log {log}")
        argv = [interpreter(spec["server"]["python"]), "-m", "adrbench.serve.loadgen", str(plan)]
        with Sampler(spec["device_kind"]) as sampler:
            code = server.run_client(argv, log, spec["serve"]["client_timeout_s"] * len(paths))
        telemetry = sampler.summary()
        server.check_alone()
        resolved, start_s = server.resolved, server.start_s
        if code != 0:
            raise JobError("client-failed", f"vllm bench serve ended with code {code}; {log} ends:\n{tail(log)}")

    noise = {"before": before_start, "after": neighbours(spec["device_kind"])}
    documents = {}
    server_files = [f"../server/{n}" for n in SERVER_RAW if (round_folder / "server" / n).is_file()]
    for tier in spec["tiers"]:
        name = tier["name"]
        measured = _measured(spec, tier, folders[name], lengths[name], resolved["prefix_caching"])
        documents[name] = Evidence(
            stage="serve",
            platform=spec["platform"],
            arm=spec["arm"]["name"],
            round=spec["round"],
            tier=name,
            asked=_asked(spec, tier, digests[name], model_digest),
            resolved=resolved,
            measured=measured | {"start_s": start_s, "telemetry": telemetry, "answers": answers, "neighbours": noise},
            files=evidence.digest_raw(paths[name], [*RAW, *server_files]),
            notes=weight_notes(spec["server"]["args"]),
            started_at=began,
            finished_at=now(),
        )
    for name, document in documents.items():
        evidence.write(paths[name], document)
        tokens_per_s = document.measured["output_tokens_per_s"]
        say(f"{name}: {tokens_per_s:.1f} output tok/s, TTFT p50 {document.measured['ttft_ms']['p50']:.0f} ms")
        if (waits := document.measured["stalls"])["unusual"]:
            say(f"{name}: one wait of {waits['longest_ms'][0]:.0f} ms for a token, {waits['at_s']:.1f} s in")
    if late := compiled_late(resolved["plugin"]):
        say(f"compiled or loaded while requests were served: {', '.join(late)}")


if __name__ == "__main__":
    run("serve", work)
