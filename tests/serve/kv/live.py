"""Run prompts through a real vLLM on CPU, in this process, and write the logits it computed.

    ADRBENCH_PLUGIN='{"kv_simulation": ...}' python live.py CASES OUTPUT

CASES (JSON): ``model``, ``engine`` (arguments of ``vllm.LLM``), ``text`` (a file whose tokens are the prompts),
``cases``: a list of ``name``, ``settings`` (``kv_simulation``), ``prompts`` (first token and number of tokens of
each) and ``new_tokens``. One engine serves all cases; between
two of them the simulation is exchanged, which is all that the plugin's settings decide once it is attached.

OUTPUT (torch file): by case, for each prompt ``prompts`` (token ids), ``tokens`` (generated), ``logits``
``[new_tokens, vocabulary]`` and ``schedule`` (length before and after each step that computed it).
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"

import torch
from adrbench.serve.simulation import attach
from vllm import LLM, SamplingParams


class Steps:
    """What the worker computed in each step: for every request its length before and after, and its logits."""

    def __init__(self, runner: Any) -> None:
        self.steps: list[tuple[str, int, int, torch.Tensor]] = []
        self.logits: torch.Tensor | None = None
        execute, compute = runner.execute_model, runner.model.compute_logits

        def computed(*args: Any, **kwargs: Any) -> torch.Tensor:
            logits = compute(*args, **kwargs)
            self.logits = logits.float().clone()
            return logits

        def executed(output: Any, *args: Any, **kwargs: Any) -> Any:
            before = {new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs}
            cached = output.scheduled_cached_reqs
            before |= dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
            result = execute(output, *args, **kwargs)
            if output.num_scheduled_tokens:
                for request, logits in zip(runner.input_batch.req_ids, self.logits, strict=True):
                    old = before[request]
                    self.steps.append((request, old, old + output.num_scheduled_tokens[request], logits))
            return result

        runner.execute_model, runner.model.compute_logits = executed, computed

    def of(self, request: str, prompt: int, new_tokens: int) -> tuple[list[tuple[int, int]], torch.Tensor]:
        """The schedule of one request, and the logits of the steps after which a token was drawn."""
        mine = [step[1:] for step in self.steps if step[0].split("-")[0] == request]
        drawn = []
        for _, new, logits in mine:
            if new == prompt + len(drawn) and len(drawn) < new_tokens:
                drawn.append(logits)
        return [(old, new) for old, new, _ in mine], torch.stack(drawn)


def main(cases_path: str, output: str) -> None:
    asked = json.loads(Path(cases_path).read_text())
    llm = LLM(model=asked["model"], **asked["engine"])
    runner = llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker.model_runner
    steps = Steps(runner)
    text = llm.get_tokenizer().encode(Path(asked["text"]).read_text())
    found = {}
    for case in asked["cases"]:
        if case["settings"] is not None:
            attach.ACTIVE.simulation = None
            attach.activate(case["settings"], None)
        steps.steps.clear()
        sampling = SamplingParams(temperature=0, max_tokens=case["new_tokens"], ignore_eos=True)
        prompts = [text[start : start + count] for start, count in case["prompts"]]
        outputs = llm.generate([{"prompt_token_ids": ids} for ids in prompts], sampling, use_tqdm=False)
        ran = [steps.of(o.request_id, len(ids), case["new_tokens"]) for o, ids in zip(outputs, prompts, strict=True)]
        found[case["name"]] = {
            "prompts": prompts,
            "tokens": [list(o.outputs[0].token_ids) for o in outputs],
            "logits": [logits for _, logits in ran],
            "schedule": [schedule for schedule, _ in ran],
            "counts": attach.ACTIVE.simulation.counts.read() if attach.ACTIVE.simulation else None,
        }
    torch.save(found, output)


if __name__ == "__main__":
    main(*sys.argv[1:])
