"""Does a cache scheme pick bf16's token? Teacher-forced decoding of a shipped text by real weights.

    python benchmarks/served_agreement.py --model models/embedded --output results/<platform>/agreement.json

Every arm's server decodes the same text token by token (``adrbench.serve.forcing``), so each position
reads all earlier ones from the cache, as the arm stores them. Per arm: in how many positions where the
baseline is sure (probability above 0.5) its most likely token is the baseline's, and the mean
difference of the text's log probability. The servers start together: nothing here is timed.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from adrbench.evidence import digest_text, now, write_json
from adrbench.job import JobError, say
from adrbench.paths import ROOT
from adrbench.serve.forced import ARGUMENT
from adrbench.serve.server import Server, serving

ENVIRONMENT = {"VLLM_NO_USAGE_STATS": "1", "VLLM_USE_FLASHINFER_SAMPLER": "0"}
BASELINE = "FLASH_ATTN:auto"
ARMS = (
    BASELINE,
    "CUSTOM:bf16",
    "CUSTOM:int8_per_token_head",
    "CUSTOM:fp8_per_token_head",
    "CUSTOM:int4_per_token_head",
)
TEXTS = ("LICENSE", "README.md", "docs/architecture.md", "docs/decide.md", "docs/kernels.md")
PROMPT_TOKENS = 16


def passages(model: Path, tokens: int, count: int) -> list[list[int]]:
    """Token ids of ``count`` passages of the project's own texts, ``tokens`` long each."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    ids: list[int] = []
    for name in TEXTS:
        ids += tokenizer.encode((ROOT / name).read_text(encoding="utf-8"), add_special_tokens=False).ids
    found = [ids[i : i + tokens] for i in range(0, len(ids) - tokens + 1, tokens)][:count]
    if len(found) < count:
        raise JobError("short-text", f"the texts have {len(ids)} tokens, {count} passages of {tokens} are asked for")
    return found


def specification(arm: str, args: argparse.Namespace) -> dict[str, Any]:
    backend, _, scheme = arm.partition(":")
    argv = [
        "--attention-backend", backend, "--max-model-len", str(args.tokens + 64), "--max-num-seqs", str(args.passages),
        "--no-enable-prefix-caching", "--gpu-memory-utilization", "0.1", "--kv-cache-memory-bytes", str(2 << 30),
        "--logits-processors", "adrbench.serve.forcing:ForceTokens", "--no-async-scheduling", "--seed", "0",
        *args.extra,
    ]  # fmt: skip
    expect: dict[str, Any] = {"attention_backend": backend} if args.device != "cpu" else {}
    plugin: dict[str, Any] = {}
    if backend == "CUSTOM":
        plugin = {"mechanism": "L3", "backend": "CUSTOM", "scheme": scheme}
        expect["plugin"] = "L3"
    elif scheme != "auto":
        argv += ["--kv-cache-dtype", scheme]
    return {
        "python": args.python, "model": str(args.model), "args": argv, "env": ENVIRONMENT | args.env, "plugin": plugin,
        "expect": expect, "device_kind": "cpu", "ready_timeout_s": args.ready,
    }  # fmt: skip


def forced(server: Server, passage: list[int]) -> list[tuple[int, float, float]]:
    """Per decoded position: (most likely token, its log probability, the text's log probability).

    Raises:
        JobError: ``not-forced`` when the server did not say the text.
    """
    rest = passage[PROMPT_TOKENS:]
    body = {
        "model": server.model, "prompt": passage[:PROMPT_TOKENS], "max_tokens": len(rest), "temperature": 0,
        "ignore_eos": True, "logprobs": 1, "return_tokens_as_token_ids": True,
        "vllm_xargs": {ARGUMENT: ",".join(map(str, rest))},
    }  # fmt: skip
    answer = server.request("/v1/completions", body, 300)["choices"][0]["logprobs"]
    said = [int(token.partition(":")[2]) for token in answer["tokens"]]
    if said != rest:
        first = next((i for i, (a, b) in enumerate(zip(said, rest, strict=False)) if a != b), min(len(said), len(rest)))
        raise JobError("not-forced", f"position {first} of {len(rest)}: the server did not say the text")
    found = []
    for top, own in zip(answer["top_logprobs"], answer["token_logprobs"], strict=True):
        token, value = max(top.items(), key=lambda item: item[1])
        found.append((int(token.partition(":")[2]), float(value), float(own)))
    return found


def decode_texts(arm: str, args: argparse.Namespace, texts: list[list[int]]) -> list[list[tuple[int, float, float]]]:
    with serving(specification(arm, args), args.work / arm.replace(":", "_")) as server:
        shown = ("attention_backend", "block_size", "kv_pool_tokens")
        say(f"{arm}: {json.dumps({key: server.resolved[key] for key in shown})}")
        with ThreadPoolExecutor(len(texts)) as pool:
            return list(pool.map(lambda text: forced(server, text), texts))


def compare(own: list[list[tuple[int, float, float]]], base: list[list[tuple[int, float, float]]]) -> dict[str, Any]:
    """Agreement with the baseline, and the difference of the text's mean log probability."""
    pairs = [pair for a, b in zip(own, base, strict=True) for pair in zip(a, b, strict=True)]
    sure = [(a, b) for a, b in pairs if math.exp(b[1]) > 0.5]
    return {
        "positions": len(pairs),
        "sure_positions": len(sure),
        "sure_agreement": sum(a[0] == b[0] for a, b in sure) / max(1, len(sure)),
        "agreement": sum(a[0] == b[0] for a, b in pairs) / len(pairs),
        "text_logprob": sum(a[2] for a, _ in pairs) / len(pairs),
        "text_logprob_difference": sum(a[2] - b[2] for a, b in pairs) / len(pairs),
    }


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="Hugging Face folder of real weights")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("results/served_agreement"))
    parser.add_argument("--arms", nargs="+", default=list(ARMS))
    parser.add_argument("--tokens", type=int, default=1024, help="tokens of a passage")
    parser.add_argument("--passages", type=int, default=8)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--ready", type=float, default=220.0)
    parser.add_argument("--at-once", type=int, default=5, help="servers that run together")
    parser.add_argument("--device", default="nvidia")
    parser.add_argument("--env", type=json.loads, default={}, help="JSON: further environment of the servers")
    parser.add_argument("--extra", nargs=argparse.REMAINDER, default=[])
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> None:
    args = parse(arguments)
    texts = passages(args.model, args.tokens, args.passages)
    found: dict[str, list[list[tuple[int, float, float]]]] = {}
    failed: dict[str, str] = {}
    began, lock = time.monotonic(), threading.Lock()

    def save() -> None:
        rows: list[dict[str, Any]] = [{"arm": arm, "failed": text} for arm, text in failed.items()]
        if BASELINE in found:
            rows += [{"arm": arm} | compare(own, found[BASELINE]) for arm, own in found.items()]
        write_json(
            args.output,
            {"arguments": arguments, "finished_at": now(), "baseline": BASELINE, "prompt_tokens": PROMPT_TOKENS,
             "text_digest": digest_text(json.dumps(texts)), "rows": rows},
        )  # fmt: skip

    def one(arm: str) -> None:
        try:
            own = decode_texts(arm, args, texts)
        except (JobError, RuntimeError, OSError, ValueError, KeyError) as problem:
            with lock:
                failed[arm] = f"{type(problem).__name__}: {problem}"[:3000]
                say(f"{arm}: FAILED {failed[arm][:600]}")
        else:
            with lock:
                found[arm] = own
                save()

    with ThreadPoolExecutor(args.at_once) as pool:
        list(pool.map(one, args.arms))
    save()
    for row in json.loads(args.output.read_text())["rows"]:
        if "failed" not in row:
            say(
                f"{row['arm']:<30} agrees in {row['sure_agreement']:.2%} of {row['sure_positions']} sure positions, "
                f"{row['agreement']:.2%} of {row['positions']}; log probability of the text {row['text_logprob']:.4f} "
                f"({row['text_logprob_difference']:+.4f})"
            )
    say(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main(sys.argv[1:])
