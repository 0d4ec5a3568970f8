"""A bounded decode in one process, for a counter tool to watch; runs in the serving interpreter.

    TOOL ... python counters_window.py SPEC.json RESULT.json

The engine is vLLM's own, in this process (no engine core of its own), so that the tool sees its kernels. All
requests are prefilled, then counting is switched on for a few steps that decode the whole batch, and off
again. Written to RESULT: steps, batch, mean context, and the window's begin and end in CLOCK_BOOTTIME
nanoseconds, for tools that cannot be switched.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

LOWEST_TOKEN, TOKENS = 1000, 30_000
# Steps between the last prefill and counting: graphs and caches settle.
SETTLE_STEPS = 4


def clock_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def engine(spec: dict[str, Any]) -> Any:
    """vLLM's engine with the arm's own arguments, in this process."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    from vllm.engine.arg_utils import EngineArgs  # type: ignore[import-not-found, unused-ignore]
    from vllm.utils.argparse_utils import FlexibleArgumentParser  # type: ignore[import-not-found, unused-ignore]
    from vllm.v1.engine.llm_engine import LLMEngine  # type: ignore[import-not-found, unused-ignore]

    parser = EngineArgs.add_cli_args(FlexibleArgumentParser())
    arguments = parser.parse_args(["--model", spec["model"], *spec["args"]])
    return LLMEngine.from_engine_args(EngineArgs.from_cli_args(arguments))


def switch(on: bool) -> None:
    """Begin or end counting, after everything launched so far has finished; nothing on a CPU."""
    import torch  # type: ignore[import-not-found, unused-ignore]

    if torch.cuda.is_available():
        torch.cuda.synchronize()
        (torch.cuda.profiler.start if on else torch.cuda.profiler.stop)()


def run(llm: Any, workload: dict[str, Any], steps: int) -> dict[str, Any]:
    """Prefill the batch, then count ``steps`` decode steps of all of it.

    Raises:
        RuntimeError: a request ended before the counted steps were done.
    """
    from vllm import SamplingParams  # type: ignore[import-not-found, unused-ignore]

    choose, batch = random.Random(0), workload["requests"]
    # All that the length leaves: the first request is the further ahead, the fewer prompts a step prefills.
    limit = llm.model_config.max_model_len - workload["input_tokens"]
    for number in range(batch):
        ids = [choose.randint(LOWEST_TOKEN, LOWEST_TOKEN + TOKENS) for _ in range(workload["input_tokens"])]
        params = SamplingParams(temperature=0, max_tokens=limit, ignore_eos=True)
        llm.add_request(str(number), {"prompt_token_ids": ids}, params)
    produced: dict[str, int] = {}

    def step() -> None:
        for output in llm.step():
            produced[output.request_id] = len(output.outputs[0].token_ids)
            if output.finished:
                raise RuntimeError(f"request {output.request_id} ended during the window; raise --max-model-len")

    while len(produced) < batch:
        step()
    for _ in range(SETTLE_STEPS):
        step()
    before = sum(produced.values()) / batch
    switch(on=True)
    begin = clock_ns()
    for _ in range(steps):
        step()
    switch(on=False)
    end, after = clock_ns(), sum(produced.values()) / batch
    context = workload["input_tokens"] + (before + after) / 2
    return {"steps": steps, "batch": batch, "context_tokens": context, "begin_ns": begin, "end_ns": end}


def main() -> None:
    spec = json.loads(Path(sys.argv[1]).read_text())
    result = run(engine(spec), spec["workload"], spec["steps"])
    Path(sys.argv[2]).write_text(json.dumps(result))


if __name__ == "__main__":
    main()
