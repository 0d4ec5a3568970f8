"""A stand-in for the serving interpreter: ``vllm serve`` and its benchmark client in a second instead of half a minute.

Used where the fault strikes before a server is started, or strikes the job and its files, so that the job and its
rerun cost seconds. It proves nothing about vLLM: the faults of servers are put into real ones.

The script is started as ``STANDIN -m MODULE ...``, as the job starts its serving interpreter. Answers are a function
of the prompt; the server counts requests and tokens as vLLM's /metrics does.
"""

import json
import os
import socket
import sys
import tempfile
import threading
import time
import urllib.request
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

METRICS = """\
vllm:cache_config_info{{block_size="128",cache_dtype="{dtype}",enable_prefix_caching="False",num_gpu_blocks="364"}} 1.0
vllm:prompt_tokens_total{{engine="0"}} {prompt}.0
vllm:generation_tokens_total{{engine="0"}} {generation}.0
vllm:prefix_cache_hits_total{{engine="0"}} 0.0
vllm:num_preemptions_total{{engine="0"}} 0.0
"""


class Server(ThreadingHTTPServer):
    allow_reuse_port = True  # as vLLM listens


def serve(argv: list[str]) -> None:
    """An HTTP server with the endpoints that a job asks."""
    from tokenizers import Tokenizer

    port = int(argv[argv.index("--port") + 1])
    dtype = argv[argv.index("--kv-cache-dtype") + 1] if "--kv-cache-dtype" in argv else "auto"
    tokenizer = Tokenizer.from_file(str(Path(argv[argv.index("serve") + 1]) / "tokenizer.json"))
    counts, dying = {"prompt": 0, "generation": 0}, threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def allowed(self) -> bool:
            """As the middleware does it: without the key nothing is answered."""
            if self.headers["Authorization"] == f"Bearer {os.environ['ADRBENCH_API_KEY']}":
                return True
            self.send_error(401)
            return False

        def reply(self, body: str, kind: str = "application/json") -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.end_headers()
            self.wfile.write(body.encode())

        def do_GET(self) -> None:
            if not self.allowed():
                return
            if self.path == "/health" and dying.is_set():
                self.send_error(503)
            elif self.path == "/metrics":
                self.reply(METRICS.format(dtype=dtype, **counts), "text/plain")
            else:
                self.reply(json.dumps({"version": "0.27.0"}))

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if not self.allowed():
                return
            if "STANDIN_ENGINE_DIES" in os.environ and counts["generation"] > 60:
                # As vLLM whose engine died: the request fails, the API server ends a moment later.
                dying.set()
                threading.Timer(0.5, os._exit, [1]).start()
                self.send_error(500)
                return
            counts["prompt"] += len(tokenizer.encode(asked["prompt"]).ids)
            counts["generation"] += asked["max_tokens"]
            text = f" answer {sum(asked['prompt'].encode()) % 997}"
            usage = {"completion_tokens": asked["max_tokens"]}
            self.reply(json.dumps({"choices": [{"text": text}], "usage": usage}))

        def log_message(self, *_: object) -> None:
            pass

    # As vLLM: a socket where it is told to, else in the temporary folder, and never unlinked.
    inner = socket.socket(socket.AF_UNIX)
    inner.bind(f"{os.environ.get('VLLM_RPC_BASE_PATH', tempfile.gettempdir())}/{uuid.uuid4()}")
    print("Using HND KV cache layout for CPU_ATTN backend.\nGPU KV cache size: 46,592 tokens", flush=True)
    Server(("127.0.0.1", port), Handler).serve_forever()


def ask(url: str, body: dict | None) -> str:
    data = json.dumps(body).encode() if body else None
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    headers = {"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"}
    return opener.open(urllib.request.Request(url, data, headers), timeout=30).read().decode()


def load(plan: dict) -> None:
    """Every run of the plan: its prompts one after the other, and the result file of ``vllm bench serve``."""
    from tokenizers import Tokenizer

    for run in plan["runs"]:
        option = dict(zip(run["argv"], run["argv"][1:], strict=False)).get
        tokenizer = Tokenizer.from_file(str(Path(option("--tokenizer")) / "tokenizer.json"))
        rows = [json.loads(line) for line in Path(option("--dataset-path")).read_text().splitlines()]
        Path(run["before"]).write_text(ask(plan["metrics_url"], None))
        print(f"--- {run['name']}\nStarting main benchmark run...", flush=True)
        time.sleep(float(os.environ.get("STANDIN_LOAD_S", "0")))
        for row in rows:
            body = {"prompt": row["prompt"], "max_tokens": row["output_tokens"]}
            ask(option("--base-url") + option("--endpoint"), body)
        lengths = [len(tokenizer.encode(row["prompt"]).ids) for row in rows]
        outputs = [row["output_tokens"] for row in rows]
        result = {
            "completed": len(rows), "failed": 0, "duration": 1.0, "errors": [""] * len(rows), "input_lens": lengths,
            "output_lens": outputs, "ttfts": [0.1] * len(rows), "itls": [[0.01] * (n - 1) for n in outputs],
            "request_throughput": 1.0, "output_throughput": 1.0, "total_token_throughput": 1.0,
        }  # fmt: skip
        for name in ("ttft", "tpot", "itl", "e2el"):
            result |= {f"p{p}_{name}_ms": 1.0 for p in (50, 90, 99)} | {f"mean_{name}_ms": 1.0}
        if "STANDIN_NAN" in os.environ:
            result["p50_ttft_ms"] = float("nan")
        Path(option("--result-dir"), option("--result-filename")).write_text(json.dumps(result))
        Path(run["after"]).write_text(ask(plan["metrics_url"], None))


if __name__ == "__main__":
    module = sys.argv[sys.argv.index("-m") + 1]
    if module == "vllm.entrypoints.cli.main":
        serve(sys.argv)
    elif module == "adrbench.serve.loadgen":
        load(json.loads(Path(sys.argv[-1]).read_text()))
    else:
        sys.exit(f"the stand-in has no {module}")
