"""Decode of a served model shape, per attention backend and cache scheme: TPOT without prefill, TTFT, KV pool.

    python benchmarks/served_decode.py --output results/<platform>/served_decode.json

Each arm is one start of ``vllm serve`` with random weights of the shape, graphs and compilation on; all
requests are sent at once, and the window begins when the last of them has left its prefill. An arm
that fails is recorded with its reason and the others go on; the file is written after each arm. Arms
already measured in ``--output`` are kept, so that the command can be repeated.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import served_client
from adrbench.evidence import now, write_json
from adrbench.job import JobError, say
from adrbench.model import shapes
from adrbench.serve.resolved import metric_sum
from adrbench.serve.server import Server, serving

ENVIRONMENT = {"VLLM_NO_USAGE_STATS": "1", "VLLM_USE_FLASHINFER_SAMPLER": "0"}
ARMS = (
    "FLASH_ATTN:auto",
    "CUSTOM:int8_per_token_head",
    "CUSTOM:int4_per_token_head",
    "CUSTOM:bf16",
    "TRITON_ATTN:auto",
    "TRITON_ATTN:int8_per_token_head",
)


def specification(arm: str, args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """``ServerSpec`` of an arm ``BACKEND:SCHEME``; the scheme of another backend is its ``--kv-cache-dtype``."""
    backend, _, scheme = arm.partition(":")
    argv = [
        "--load-format", "dummy", "--dtype", "bfloat16", "--attention-backend", backend,
        "--max-model-len", str(args.input + args.tokens + 64),
        "--max-num-seqs", str(args.requests), "--no-enable-prefix-caching",
        "--gpu-memory-utilization", str(args.memory), "--max-num-batched-tokens", str(args.batched),
        "--cudagraph-capture-sizes", *map(str, (1, 2, 4, 8, 16, 32)), "--seed", "0", *args.extra,
    ]  # fmt: skip
    expect: dict[str, Any] = {"attention_backend": backend}
    plugin: dict[str, Any] = {}
    if backend == "CUSTOM":
        plugin = {"mechanism": "L3", "backend": "CUSTOM", "scheme": scheme}
        expect["plugin"] = "L3"
    elif scheme != "auto":
        argv += ["--kv-cache-dtype", scheme]
        expect["kv_cache_dtype"] = scheme
    return {
        "python": args.python, "model": str(folder), "args": argv, "env": ENVIRONMENT, "plugin": plugin,
        "expect": expect, "device_kind": "nvidia", "ready_timeout_s": args.ready,
    }  # fmt: skip


def measure(server: Server, args: argparse.Namespace, vocabulary: int) -> dict[str, Any]:
    """One arm's numbers; a short round first, so that what is compiled at first use is outside."""
    for warm in (served_client.prompts(2, 600, vocabulary, 1), served_client.prompts(2, args.input, vocabulary, 4)):
        served_client.run(server.base_url, server.api_key, server.model, warm, 12, 180)
    alone = served_client.prompts(1, args.input, vocabulary, 2)
    single = served_client.run(server.base_url, server.api_key, server.model, alone, 4, 120)[0]
    asked = served_client.prompts(args.requests, args.input, vocabulary, 3)
    before = server.metrics()
    streams = served_client.run(server.base_url, server.api_key, server.model, asked, args.tokens, args.client)
    after = server.metrics()
    name = "vllm:num_preemptions_total"
    preempted = (metric_sum(after, name) or 0) - (metric_sum(before, name) or 0)
    found = served_client.window(streams) | {"ttft_alone_ms": (single.times[0] - single.sent) * 1e3}
    if preempted:
        raise RuntimeError(f"{preempted:.0f} preemptions: the KV pool is too small for {args.requests} requests")
    return found | {"preemptions": preempted}


def run_arm(arm: str, args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Serve and measure one arm; its failure is a row too."""
    row: dict[str, Any] = {"arm": arm, "started_at": now()}
    began = time.monotonic()
    where = args.work / arm.replace(":", "_")
    try:
        vocabulary = shapes.vocabulary(json.loads((folder / "config.json").read_text()))
        with serving(specification(arm, args, folder), where) as server:
            row["resolved"] = server.resolved
            row["start_s"] = server.start_s
            row |= measure(server, args, vocabulary)
    except (JobError, RuntimeError, OSError, ValueError) as problem:
        row["failed"] = f"{type(problem).__name__}: {problem}"[:3000]
        log = where / "server.log"
        if log.is_file():
            row["log_end"] = log.read_text(errors="replace")[-6000:]
    return row | {"wall_s": time.monotonic() - began}


def show(row: dict[str, Any]) -> None:
    if "failed" in row:
        say(f"{row['arm']:<30} FAILED after {row['wall_s']:.0f} s: {row['failed'][:600]}")
        return
    pool = row["resolved"].get("kv_pool_tokens")
    say(
        f"{row['arm']:<30} TPOT p50 {row['tpot_p50_ms']:7.2f} ms (ITL {row['itl_p50_ms']:.2f})  TTFT p50 "
        f"{row['ttft_p50_ms']:8.0f} ms, alone {row['ttft_alone_ms']:6.0f} ms  pool {pool} tokens  "
        f"start {row['start_s']:.0f} s, all {row['wall_s']:.0f} s"
    )


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("results/served_decode"), help="logs and the model's folder")
    parser.add_argument("--shape", choices=list(shapes.SHAPES), default="qwen3-8b")
    parser.add_argument("--layers", type=int, help="fewer layers than the shape has; recorded")
    parser.add_argument("--arms", nargs="+", default=list(ARMS), help="BACKEND:SCHEME; `auto` is the model's dtype")
    parser.add_argument("--requests", type=int, default=32)
    parser.add_argument("--input", type=int, default=16384, help="tokens of a prompt")
    parser.add_argument("--tokens", type=int, default=208, help="tokens generated per request")
    parser.add_argument("--batched", type=int, default=8192, help="--max-num-batched-tokens")
    parser.add_argument("--memory", type=float, default=0.9, help="--gpu-memory-utilization")
    parser.add_argument("--python", default=sys.executable, help="interpreter that has vLLM")
    parser.add_argument("--ready", type=float, default=300.0, help="seconds for a server to start")
    parser.add_argument("--client", type=float, default=240.0, help="seconds for the requests")
    parser.add_argument(
        "--budget", type=float, default=1e9, help="seconds for all; no arm is begun that may exceed them"
    )
    parser.add_argument("--arm-seconds", type=float, default=150.0, help="what one arm is expected to take at most")
    parser.add_argument("--extra", nargs=argparse.REMAINDER, default=[], help="further arguments of vllm serve")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> None:
    args = parse(arguments)
    began = time.monotonic()
    folder = shapes.write(args.shape, args.work / args.shape, args.layers)
    rows: list[dict[str, Any]] = []
    if args.output.is_file():
        rows = [row for row in json.loads(args.output.read_text())["rows"] if "failed" not in row]
    for arm in args.arms:
        if any(row["arm"] == arm for row in rows):
            continue
        if time.monotonic() - began + args.arm_seconds > args.budget:
            say(f"{arm}: not begun, {args.budget:.0f} s would be exceeded")
            continue
        rows.append(run_arm(arm, args, folder))
        show(rows[-1])
        write_json(args.output, {"arguments": arguments, "layers": args.layers, "rows": rows})


if __name__ == "__main__":
    main(sys.argv[1:])
