"""Load one server with all tiers by ``vllm bench serve``, and turn its result files into measurements.

``vllm bench serve`` exits 0 with no successful request, so its exit code proves nothing: a tier counts
only when every request completed with the token counts that were asked for.

Definitions, per request: TTFT is the time from sending to the first chunk; E2EL the time to the last;
TPOT = (E2EL - TTFT) / (output tokens - 1); ITL the gaps between chunks. Under a concurrency cap the
clock starts when a slot is free. (vllm/benchmarks/serve.py)
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from adrbench.job import JobError
from adrbench.serve.decode_window import decode_window
from adrbench.serve.resolved import metric_sum
from adrbench.serve.stalls import stalls

PERCENTILES = (50, 90, 99)
# CPU time that vLLM's client spends per streamed chunk, measured as 27-37 us; the upper figure is used.
CLIENT_SECONDS_PER_CHUNK = 37e-6
# Above this share of one core the client's own queueing would show up as the server's latency.
CLIENT_LOAD_LIMIT = 0.8
# Tokens by which a chat template's share may differ between prompts.
TEMPLATE_SPREAD = 2


def bench_argv(
    tier: dict[str, Any], serve: dict[str, Any], base_url: str, model: str, prompts: Path, out: Path
) -> list[str]:
    """Arguments of ``vllm bench serve`` for one tier."""
    chat = serve["endpoint"] == "chat"
    argv = [
        "--backend", "openai-chat" if chat else "openai",
        "--endpoint", "/v1/chat/completions" if chat else "/v1/completions",
        "--base-url", base_url, "--model", "model", "--tokenizer", model,
        "--dataset-name", "custom", "--dataset-path", str(prompts), "--disable-shuffle", "--skip-chat-template",
        "--custom-output-len", str(tier["output_tokens"]), "--ignore-eos", "--temperature", "0",
        "--num-prompts", str(tier["prompts"]), "--max-concurrency", str(tier["concurrency"]),
        "--num-warmups", str(serve["warmup_requests"]), "--seed", str(serve["seed"]),
        "--percentile-metrics", "ttft,tpot,itl,e2el", "--metric-percentiles", ",".join(map(str, PERCENTILES)),
        "--save-result", "--save-detailed", "--result-dir", str(out.parent), "--result-filename", out.name,
        "--disable-tqdm",
    ]  # fmt: skip
    if serve["goodput"]:
        argv += ["--goodput", *(f"{name}:{limit}" for name, limit in sorted(serve["goodput"].items()))]
    return argv


def summary(values: Sequence[float]) -> dict[str, float]:
    return {"min": min(values), "median": statistics.median(values), "max": max(values), "total": sum(values)}


def check_complete(tier: dict[str, Any], lengths: list[int], result: dict[str, Any], chat: bool = False) -> None:
    """Refuse a tier that is not wholly measured.

    Args:
        lengths: the prompts' lengths in tokens, in the order of the prompt file.
        result: the JSON of ``vllm bench serve --save-detailed``.

    Raises:
        JobError: ``incomplete``, naming what is missing or differs.
    """
    name, errors = tier["name"], [error for error in result.get("errors", []) if error]
    completed, failed = result.get("completed", 0), result.get("failed", 0)
    if completed != tier["prompts"] or failed or errors:
        first = f"; the first error: {str(errors[0])[:300]}" if errors else ""
        raise JobError(
            "incomplete", f"tier {name}: {completed} of {tier['prompts']} requests completed, {failed} failed{first}"
        )
    wrong = [n for n in result["output_lens"] if n != tier["output_tokens"]]
    if wrong:
        raise JobError(
            "incomplete",
            f"tier {name}: {len(wrong)} answers are not {tier['output_tokens']} tokens long (first: {wrong[0]})",
        )
    extra = [sent - asked for sent, asked in zip(result["input_lens"], lengths, strict=True)]
    # The chat client counts what the server counts: the prompt and the chat template, the same for every prompt but
    # for a token that merges at a seam.
    if any(extra) and (not chat or min(extra) < 0 or max(extra) - min(extra) > TEMPLATE_SPREAD):
        raise JobError(
            "incomplete",
            f"tier {name}: prompt lengths differ from the prompt file's (sent {result['input_lens'][:3]}..., "
            f"asked {lengths[:3]}...): is another tokenizer in use?",
        )


def request_times(result: dict[str, Any]) -> dict[str, list[float]]:
    """TTFT, TPOT and E2EL in ms of each request, in sending order, from the detailed result."""
    ttft = [1e3 * seconds for seconds in result["ttfts"]]
    e2el = [1e3 * (first + sum(gaps)) for first, gaps in zip(result["ttfts"], result["itls"], strict=True)]
    tpot = [(end - first) / max(1, n - 1) for first, end, n in zip(ttft, e2el, result["output_lens"], strict=True)]
    return {"ttft_ms": ttft, "tpot_ms": tpot, "e2el_ms": e2el}


def measure(
    tier: dict[str, Any],
    lengths: list[int],
    result: dict[str, Any],
    before: str,
    after: str,
    goodput: bool,
    chat: bool = False,
) -> dict[str, Any]:
    """Measurements of one complete tier, from the client's result and the server's counters.

    Raises:
        JobError: ``incomplete`` or ``client-bound``.
    """
    check_complete(tier, lengths, result, chat)
    chunks = sum(len(gaps) + 1 for gaps in result["itls"])
    load = chunks / result["duration"] * CLIENT_SECONDS_PER_CHUNK
    if load > CLIENT_LOAD_LIMIT:
        raise JobError(
            "client-bound", f"tier {tier['name']}: the client would need {load:.0%} of a core; lower its concurrency"
        )

    def delta(metric: str) -> float | None:
        first, last = metric_sum(before, metric), metric_sum(after, metric)
        return None if last is None else last - (first or 0.0)

    preemptions = delta("vllm:num_preemptions_total")
    latencies = {
        f"{name}_ms": {f"p{p}": result[f"p{p}_{name}_ms"] for p in PERCENTILES} | {"mean": result[f"mean_{name}_ms"]}
        for name in ("ttft", "tpot", "itl", "e2el")
    }
    return {
        "completed": result["completed"],
        "failed": result.get("failed", 0),
        "duration_s": result["duration"],
        "input_tokens": summary(result["input_lens"]),
        "first_input_tokens": result["input_lens"][0],
        "output_tokens": summary(result["output_lens"]),
        **latencies,
        "requests_per_s": result["request_throughput"],
        "output_tokens_per_s": result["output_throughput"],
        "total_tokens_per_s": result["total_token_throughput"],
        "goodput_requests_per_s": result.get("request_goodput", result.get("request_goodput:")) if goodput else None,
        "per_request": request_times(result),
        "stalls": stalls(result),
        "decode_window": decode_window(result, tier["concurrency"], preemptions),
        "server_prompt_tokens": delta("vllm:prompt_tokens_total"),
        "server_generation_tokens": delta("vllm:generation_tokens_total"),
        "prefix_cache_hits": delta("vllm:prefix_cache_hits_total"),
        "preemptions": preemptions,
        "client_load": load,
    }


def check_server_count(tier: dict[str, Any], measured: dict[str, Any], warmups: int, chat: bool) -> None:
    """Hold the prompt tokens that the server counted against those that were sent.

    The client of some versions only repeats what it was told to send. Warm-up requests, and one that tests the
    connection, repeat the first prompt, so the rest must be a multiple of its length.

    Raises:
        JobError: ``incomplete``, with both counts.
    """
    counted, sent = measured["server_prompt_tokens"], measured["input_tokens"]["total"]
    if counted is None:
        return
    rest, first = counted - sent, measured["first_input_tokens"]
    if rest < 0 or (not chat and (rest % first or rest // first > warmups + 1)):
        raise JobError(
            "incomplete",
            f"tier {tier['name']}: the server counted {counted:.0f} prompt tokens, {sent} were sent and {warmups} "
            f"warm-ups of {first}: prompts were cut, cached or mixed with another client's",
        )


def check_cache(tier: dict[str, Any], measured: dict[str, Any], prefix_caching: str | None) -> None:
    """Refuse a tier part of which was answered from the prefix cache although caching is off.

    Raises:
        JobError: ``prefix-cache``.
    """
    if prefix_caching == "False" and measured["prefix_cache_hits"]:
        raise JobError(
            "prefix-cache",
            f"tier {tier['name']}: {measured['prefix_cache_hits']:.0f} tokens came from the prefix cache, which is off",
        )


def read_result(path: Path, log: Path) -> dict[str, Any]:
    """The client's result file.

    Raises:
        JobError: ``no-result`` with the log's end, when the client wrote none.
    """
    try:
        return dict(json.loads(path.read_text()))
    except (OSError, json.JSONDecodeError) as error:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-8:]) if log.is_file() else "(no log)"
        raise JobError(
            "no-result", f"vllm bench serve left no readable {path.name} ({error}); {log} ends:\n{tail}"
        ) from None
