"""Rows of the tidy tables, straight from evidence. Pure, apart from raw files beside evidence."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from adrbench.claims.schema import load as load_claims
from adrbench.claims.table import case_text, claim_rows
from adrbench.report.site import Site, raw_file

Row = dict[str, Any]
LATENCIES = ("ttft", "tpot", "itl", "e2el")
PERCENTILES = ("p50", "p90", "p99")


def requests(site: Site) -> Iterator[Row]:
    for path, data in site.of_stage("serve"):
        times = data["measured"].get("per_request") or {}
        raw = raw_file(path, data, "bench.json") or {}
        lengths = (raw.get("input_lens") or [], raw.get("output_lens") or [])
        for index, triple in enumerate(zip(*(times.get(f"{m}_ms", []) for m in ("ttft", "tpot", "e2el")), strict=True)):
            sent, got = (column[index] if index < len(column) else None for column in lengths)
            yield {
                "platform": data["platform"],
                "arm": data["arm"],
                "round": data["round"],
                "tier": data["tier"],
                "request": index,
                "input_tokens": sent,
                "output_tokens": got,
                "ttft_ms": triple[0],
                "tpot_ms": triple[1],
                "e2el_ms": triple[2],
            }


def rounds(site: Site) -> Iterator[Row]:
    for path, data in site.of_stage("serve"):
        measured, resolved = data["measured"], data["resolved"]
        latencies = {
            f"{metric}_{p}_ms": (measured.get(f"{metric}_ms") or {}).get(p) for metric in LATENCIES for p in PERCENTILES
        }
        yield {
            "platform": data["platform"],
            "arm": data["arm"],
            "baseline": data["arm"] == site.baseline,
            "round": data["round"],
            "tier": data["tier"],
            "started_at": data["started_at"],
            "finished_at": data["finished_at"],
            **{k: resolved.get(k) for k in ("vllm_version", "attention_backend", "kv_cache_dtype", "block_size")},
            "kv_pool_tokens": resolved.get("kv_pool_tokens"),
            **{k: measured.get(k) for k in ("start_s", "completed", "failed", "duration_s")},
            **latencies,
            **{k: measured.get(k) for k in ("output_tokens_per_s", "total_tokens_per_s", "goodput_requests_per_s")},
            "decode_alone_tpot_p50_ms": ((measured.get("decode_window") or {}).get("tpot_ms") or {}).get("p50"),
            **{k: measured.get(k) for k in ("preemptions", "prefix_cache_hits")},
            "evidence": str(path),
        }


def accuracy(site: Site) -> Iterator[Row]:
    for path, data in site.of_stage("eval"):
        for name, task in data["measured"]["tasks"].items():
            forms = task.get("forms") or []
            for index, score in enumerate(task["scores"]):
                yield {
                    "platform": data["platform"],
                    "arm": data["arm"],
                    "baseline": data["arm"] == site.baseline,
                    "task": name,
                    "metric": task["metric"],
                    "form": forms[index] if index < len(forms) else None,
                    "sample": index,
                    "score": score,
                    "evidence": str(path),
                }


def _verdicts(site: Site) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(ADR, file, verdict) of each decision that was made."""
    for decided in site.decisions:
        document = decided.store.documents["decide"]
        if document.data is not None:
            yield decided.spec.adr, str(document.path), document.data


def gates(site: Site) -> Iterator[Row]:
    for adr, path, verdict in _verdicts(site):
        for option in verdict["options"]:
            for gate in option["gates"]:
                yield {
                    "platform": verdict["platform"],
                    "decision": adr,
                    "option": option["name"],
                    "arm": option["arm"],
                    "gate": gate["id"],
                    **{
                        k: gate[k] for k in ("metric", "percentile", "tier", "value", "low", "high", "limit", "verdict")
                    },
                    "confidence": verdict["confidence"],
                    "evidence": path,
                }


def options(site: Site) -> Iterator[Row]:
    for adr, path, verdict in _verdicts(site):
        for option in verdict["options"]:
            objective = option["objective"]
            mean = (verdict["accuracy"].get(option["arm"]) or {}).get("mean") or {}
            yield {
                "platform": verdict["platform"],
                "decision": adr,
                "status": verdict["status"]["word"],
                "winner": verdict["status"]["option"],
                "option": option["name"],
                "arm": option["arm"],
                "state": option["state"],
                **{k: objective[k] for k in ("metric", "value", "gain", "gain_low", "gain_high")},
                "objective_verdict": objective["verdict"],
                "eligible": option["eligible"],
                "delta_points": mean.get("delta"),
                "delta_low": mean.get("low"),
                "delta_high": mean.get("high"),
                "evidence": path,
            }


def claims(site: Site) -> Iterator[Row]:
    """Statements that the evidence knows; an entry added since then has no verdict yet and is left out."""
    measured = site.claims
    if not measured or not site.spec.claim_files:
        return
    known = [claim for claim in load_claims(site.spec.claim_files) if claim.id in measured["verdicts"]]
    for claim, row in zip(known, claim_rows(known, measured, "en"), strict=True):
        entry = measured["verdicts"][claim.id]
        yield {
            **{k: row[k] for k in ("id", "document", "place", "kind", "verdict")},
            "statement_en": row["statement"],
            "statement_zh": claim.statement.zh,
            "correct_en": row["correct"],
            "correct_zh": case_text(entry, "zh"),
            "found": row["evidence"],
            "where": row["where"],
            "vllm_version": measured["version"],
        }


def imported(site: Site) -> Iterator[Row]:
    for path, document in zip(site.spec.imported, site.imported, strict=True):
        for run in document.runs:
            latencies = {
                f"{m}_{p}_ms": getattr(getattr(run, f"{m}_ms"), p)
                for m in ("ttft", "tpot", "e2el")
                for p in ("p50", "p99")
            }
            yield {
                "name": document.name,
                "tool": document.tool,
                "tool_version": document.tool_version,
                "measured_at": document.measured_at,
                "run": run.label,
                "model": run.model,
                **{k: getattr(run, k) for k in ("concurrency", "request_rate", "completed", "failed")},
                **{k: getattr(run, k) for k in ("input_tokens", "output_tokens", "output_tokens_per_s")},
                **latencies,
                "evidence": str(path),
            }


TABLES: dict[str, Callable[[Site], Iterator[Row]]] = {
    "requests": requests,
    "rounds": rounds,
    "accuracy": accuracy,
    "gates": gates,
    "options": options,
    "claims": claims,
    "imported": imported,
}
