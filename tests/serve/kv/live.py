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
from vllm import LLM, SamplingParams


class Schedule:
    """What the scheduler told the worker in each step: (request, length before, length after)."""

    def __init__(self, runner: Any) -> None:
        self.steps: list[list[tuple[str, int, int]]] = []
        execute = runner.execute_model

        def recorded(output: Any, *args: Any, **kwargs: Any) -> Any:
            before = {new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs}
            cached = output.scheduled_cached_reqs
            before |= dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
            step = [(req, before[req], before[req] + n) for req, n in output.num_scheduled_tokens.items()]
            if step:
                self.steps.append(step)
            return execute(output, *args, **kwargs)

        runner.execute_model = recorded

    def of(self, request: str) -> list[tuple[int, int]]:
        """The steps of one request; the engine adds a suffix to the identifier that it was given."""
        return [(old, new) for step in self.steps for name, old, new in step if name.split("-")[0] == request]


def logits_of(output: Any, vocabulary: int) -> torch.Tensor:
    rows = []
    for position in output.logprobs:
        row = torch.full((vocabulary,), float("nan"))
        row[torch.tensor(list(position))] = torch.tensor([entry.logprob for entry in position.values()])
        rows.append(row)
    return torch.stack(rows)


def main(cases_path: str, output: str) -> None:
    asked = json.loads(Path(cases_path).read_text())
    llm = LLM(model=asked["model"], max_logprobs=-1, logprobs_mode="raw_logits", **asked["engine"])
    vocabulary = llm.llm_engine.model_config.get_vocab_size()
    runner = llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker.model_runner
    schedule = Schedule(runner)
    text = llm.get_tokenizer().encode(Path(asked["text"]).read_text())
    found = {}
    for case in asked["cases"]:
        if "ADRBENCH_PLUGIN" in os.environ:
            from adrbench.serve.simulation import attach

            attach.ACTIVE.simulation = None
            attach.activate(case["settings"], asked.get("folder"))
        schedule.steps = []
        sampling = SamplingParams(temperature=0, max_tokens=case["new_tokens"], logprobs=-1, ignore_eos=True)
        prompts = [text[start : start + count] for start, count in case["prompts"]]
        outputs = llm.generate([{"prompt_token_ids": ids} for ids in prompts], sampling, use_tqdm=False)
        found[case["name"]] = {
            "prompts": prompts,
            "tokens": [list(o.outputs[0].token_ids) for o in outputs],
            "logits": [logits_of(o.outputs[0], vocabulary) for o in outputs],
            "schedule": [schedule.of(o.request_id) for o in outputs],
        }
        if "ADRBENCH_PLUGIN" in os.environ:
            found[case["name"]]["counts"] = attach.ACTIVE.simulation.counts.read()
    torch.save(found, output)


if __name__ == "__main__":
    main(*sys.argv[1:])
