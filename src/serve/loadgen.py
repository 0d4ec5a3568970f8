"""Run ``vllm bench serve`` for several tiers in one process (each start of vLLM's client costs seconds).

    python -m adrbench.serve.loadgen PLAN.json

runs in the serving interpreter. The plan is ``{"metrics_url": ..., "runs": [{"name", "argv", "before",
"after"}], "string_content": bool}``; argv goes through the command's own parser. /metrics is saved
before and after each run. A run that fails ends the process with its traceback.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from pathlib import Path
from typing import Any


def save_metrics(url: str, path: str) -> None:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {os.environ.get('OPENAI_API_KEY', '')}"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    Path(path).write_bytes(opener.open(request, timeout=30).read())


def force_string_content() -> None:
    """Make the chat client send ``content`` as a string (C07); it sends a list of parts by itself.

    See ``_get_chat_content`` of vllm/benchmarks/lib/endpoint_request_func.py.
    """
    from vllm.benchmarks.lib import endpoint_request_func as client

    if not hasattr(client, "_get_chat_content"):
        raise RuntimeError("this vLLM's benchmark client has no _get_chat_content: string content cannot be enforced")

    def as_string(request: Any, *_args: Any, **_kwargs: Any) -> Any:
        return request.prompt

    client._get_chat_content = as_string


def main() -> None:
    plan = json.loads(Path(sys.argv[1]).read_text())
    from vllm.entrypoints.cli.benchmark.serve import BenchmarkServingSubcommand
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    if plan["string_content"]:
        force_string_content()
    for run in plan["runs"]:
        parser = FlexibleArgumentParser()
        BenchmarkServingSubcommand.add_cli_args(parser)
        arguments = parser.parse_args(run["argv"])
        print(f"--- {run['name']}", flush=True)
        save_metrics(plan["metrics_url"], run["before"])
        BenchmarkServingSubcommand.cmd(arguments)
        save_metrics(plan["metrics_url"], run["after"])


if __name__ == "__main__":
    main()
