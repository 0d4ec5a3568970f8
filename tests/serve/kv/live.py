"""Run prompts through a real vLLM on CPU, in this process, and write what it computed.

    ADRBENCH_PLUGIN='{"kv_simulation": ...}' python live.py CASES OUTPUT

CASES (JSON): ``model``, ``engine`` (arguments of ``vllm.LLM``), ``text`` (a file whose tokens are the prompts),
``cases``: a list of ``name``, ``settings`` (``kv_simulation``), ``prompts`` (first token and number of tokens of
each) and ``new_tokens``. One engine serves all cases; between two of them the simulation is exchanged, which is all
that the plugin's settings decide once it is attached.

OUTPUT (torch file): by case, for each prompt ``prompts`` (token ids), ``tokens`` (generated), ``logits``
``[new_tokens, vocabulary]``, ``schedule`` (length before and after each step that computed it) and ``computed``: for
each of these steps the keys and values that the model computed, before the plugin saw them
``[layers, 2, tokens, heads, dim]``.
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
from vllm.model_executor.layers.attention.attention import Attention


class Steps:
    """What the worker computed in each step: for every request its length before and after, logits, keys, values."""

    def __init__(self, runner: Any) -> None:
        self.steps: list[tuple[str, int, int, torch.Tensor, torch.Tensor]] = []
        self.logits: torch.Tensor | None = None
        self.computed: list[torch.Tensor] = []
        self._watch_logits(runner)
        self._watch_attention()
        self._watch_steps(runner)

    def _watch_logits(self, runner: Any) -> None:
        compute = runner.model.compute_logits

        def logits(*args: Any, **kwargs: Any) -> torch.Tensor:
            found = compute(*args, **kwargs)
            self.logits = found.float().cpu().clone()
            return found

        runner.model.compute_logits = logits

    def _watch_attention(self) -> None:
        forward = Attention.forward

        def attend(layer: Any, query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
            rows = [x.reshape(x.shape[0], layer.num_kv_heads, layer.head_size) for x in (key, value)]
            self.computed.append(torch.stack(rows).float().cpu())
            return forward(layer, query, key, value, *args, **kwargs)

        Attention.forward = attend

    def _watch_steps(self, runner: Any) -> None:
        execute = runner.execute_model

        def executed(output: Any, *args: Any, **kwargs: Any) -> Any:
            before = {new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs}
            cached = output.scheduled_cached_reqs
            before |= dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
            self.computed = []
            result = execute(output, *args, **kwargs)
            if output.num_scheduled_tokens:
                names = runner.input_batch.req_ids
                counts = [output.num_scheduled_tokens[name] for name in names]
                parts = torch.stack(self.computed)[:, :, : sum(counts)].split(counts, 2)
                for name, count, logits, part in zip(names, counts, self.logits, parts, strict=True):
                    self.steps.append((name, before[name], before[name] + count, logits, part.clone()))
            return result

        runner.execute_model = executed

    def of(self, request: str, prompt: int, new_tokens: int) -> dict[str, Any]:
        """One request's schedule, computed keys and values, and the logits from which a token was drawn."""
        mine = [step[1:] for step in self.steps if step[0].split("-")[0] == request]
        drawn = []
        for _, new, logits, _ in mine:
            if new == prompt + len(drawn) and len(drawn) < new_tokens:
                drawn.append(logits)
        return {
            "schedule": [(old, new) for old, new, _, _ in mine],
            "computed": [part for *_, part in mine],
            "logits": torch.stack(drawn),
        }


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
        found[case["name"]] = {name: [one[name] for one in ran] for name in ran[0]} | {
            "prompts": prompts,
            "tokens": [list(o.outputs[0].token_ids) for o in outputs],
        }
    torch.save(found, output)


if __name__ == "__main__":
    main(*sys.argv[1:])
