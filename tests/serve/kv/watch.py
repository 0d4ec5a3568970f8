"""What a vLLM in this process computes, step by step: schedule, logits, keys and values before the plugin sees them.

Keys and values are copied into buffers on their way into the backend's implementation: a copy that a captured
graph repeats, where a hook in Python would not run. ``Rows`` must exist before vLLM is started with the plugin.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import torch
from adrbench.serve.simulation import attach


class Rows:
    """A step's keys and values ``[layers, 2, tokens, heads, dim]`` as they reach an attention backend."""

    def __init__(self, model: Path, tokens: int, dtype: torch.dtype, device: str) -> None:
        config = json.loads((model / "config.json").read_text())
        heads = config["num_key_value_heads"]
        dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
        self.buffer = torch.zeros(config["num_hidden_layers"], 2, tokens, heads, dim, dtype=dtype, device=device)
        self.attached = False
        original = attach.attach

        def attach_both(backend: Any) -> None:
            original(backend)
            self.watch(backend)

        attach.attach = attach_both

    def watch(self, backend: Any) -> None:
        """Wrap the implementation outside the plugin's own wrapper."""
        if self.attached:
            return
        impl, self.attached = backend.get_impl_cls(), True
        in_forward = getattr(backend, "forward_includes_kv_cache_update", True)
        name, first = ("forward", 2) if in_forward else ("do_kv_cache_update", 1)
        inner = getattr(impl, name)

        @wraps(inner)
        def take(this: Any, layer: Any, *args: Any, **kwargs: Any) -> Any:
            key, value = args[first - 1 : first + 1]
            if key is not None and (not in_forward or args[first + 2] is not None):
                place = self.buffer[attach._number(layer)]
                place[0, : key.shape[0]].copy_(key)
                place[1, : key.shape[0]].copy_(value)
            return inner(this, layer, *args, **kwargs)

        setattr(impl, name, take)

    def split(self, counts: list[int]) -> list[torch.Tensor | None]:
        """The step's rows by request; copies."""
        if not self.attached:
            return [None] * len(counts)
        return [part.clone() for part in self.buffer[:, :, : sum(counts)].split(counts, 2)]


class Steps:
    """For every request and step: its length before and after, logits, computed rows. ``after`` is called with them."""

    def __init__(self, runner: Any, rows: Rows) -> None:
        self.rows, self.runner = rows, runner
        self.steps: list[tuple[str, int, int, torch.Tensor, torch.Tensor | None]] = []
        self.logits: torch.Tensor | None = None
        self.graphs: dict[str, int] = {}
        self.after: Callable[[str, int, int, torch.Tensor | None], None] | None = None
        self._watch_logits()
        self._watch_steps()
        self._watch_graphs()

    def _watch_logits(self) -> None:
        compute = self.runner.model.compute_logits

        def logits(*args: Any, **kwargs: Any) -> torch.Tensor:
            found = compute(*args, **kwargs)
            self.logits = found.float().cpu().clone()
            return found

        self.runner.model.compute_logits = logits

    def _watch_graphs(self) -> None:
        """Count steps by the mode in which their model ran, where this vLLM has graphs."""
        decide = getattr(self.runner, "_determine_batch_execution_and_padding", None)
        if decide is None:
            return

        def decided(*args: Any, **kwargs: Any) -> Any:
            found = decide(*args, **kwargs)
            mode = getattr(found[0], "name", str(found[0]))
            self.graphs[mode] = self.graphs.get(mode, 0) + 1
            return found

        self.runner._determine_batch_execution_and_padding = decided

    def _watch_steps(self) -> None:
        execute = self.runner.execute_model

        def executed(output: Any, *args: Any, **kwargs: Any) -> Any:
            before = {new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs}
            cached = output.scheduled_cached_reqs
            before |= dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
            result = execute(output, *args, **kwargs)
            if output.num_scheduled_tokens:
                names = list(self.runner.input_batch.req_ids)
                counts = [output.num_scheduled_tokens[name] for name in names]
                for name, count, logits, part in zip(names, counts, self.logits, self.rows.split(counts), strict=True):
                    old, new = before[name], before[name] + count
                    self.steps.append((name, old, new, logits, part))
                    if self.after is not None:
                        self.after(name, old, new, part)
            return result

        self.runner.execute_model = executed

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


def runner_of(llm: Any) -> Any:
    """The model runner of an ``LLM`` whose engine is in this process."""
    return llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker.model_runner


def generate(llm: Any, steps: Steps, case: dict[str, Any], text: list[int]) -> dict[str, Any]:
    """Run one case's prompts greedily; by name what ``Steps.of`` gives, ``prompts`` and ``tokens`` for each prompt."""
    from vllm import SamplingParams

    steps.steps.clear()
    sampling = SamplingParams(temperature=0, max_tokens=case["new_tokens"], ignore_eos=True)
    prompts = [text[start : start + count] for start, count in case["prompts"]]
    outputs = llm.generate([{"prompt_token_ids": ids} for ids in prompts], sampling, use_tqdm=False)
    ran = [steps.of(o.request_id, len(ids), case["new_tokens"]) for o, ids in zip(outputs, prompts, strict=True)]
    return {name: [one[name] for one in ran] for name in ran[0]} | {
        "prompts": prompts,
        "tokens": [list(o.outputs[0].token_ids) for o in outputs],
    }
