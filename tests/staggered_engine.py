"""A stand-in for vLLM whose engine is stepped by hand and prefills a batch over several steps, so that requests decode
with different numbers of tokens behind them.

Cannot prove: how vLLM itself schedules; it takes running requests first, one token each, then prompts in order.
"""

from __future__ import annotations

import sys
import types
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import pytest


@dataclass
class Request:
    """One request: ``left`` prompt tokens are not computed yet."""

    request_id: str
    left: int
    most: int
    token_ids: list[int] = field(default_factory=list)

    @property
    def finished(self) -> bool:
        return len(self.token_ids) >= self.most

    @property
    def outputs(self) -> list[Request]:
        return [self]


class Engine:
    """``vllm.LLMEngine`` as far as benchmarks step it: ``budget`` tokens a step, one chunk or token of a request."""

    def __init__(self, budget: int, max_model_len: int) -> None:
        self.budget, self.requests = budget, deque[Request]()
        self.model_config = types.SimpleNamespace(get_vocab_size=lambda: 40_000, max_model_len=max_model_len)

    def add_request(self, name: str, prompt: dict[str, list[int]], sampling: Any) -> None:
        length = len(prompt["prompt_token_ids"])
        most = min(sampling.max_tokens, self.model_config.max_model_len - length)
        self.requests.append(Request(name, length, most))

    def step(self) -> list[Request]:
        room, answered = self.budget, []
        for request in sorted(self.requests, key=lambda one: one.left > 0):
            taken = min(room, max(1, request.left))
            if request.finished or not taken:
                continue
            room -= taken
            request.left = max(0, request.left - taken)
            if not request.left:
                request.token_ids.append(0)
                answered.append(request)
        return answered


def install(monkeypatch: pytest.MonkeyPatch) -> list[Engine]:
    """Make ``import vllm`` and ``import torch`` give stand-ins; the engines that are made."""
    engines: list[Engine] = []

    def llm(**arguments: Any) -> Any:
        engines.append(Engine(arguments["max_num_batched_tokens"], arguments["max_model_len"]))
        return types.SimpleNamespace(llm_engine=engines[-1])

    cuda = types.SimpleNamespace(is_available=lambda: False)
    vllm = types.SimpleNamespace(LLM=llm, SamplingParams=types.SimpleNamespace, __version__="stand-in")
    monkeypatch.setitem(sys.modules, "vllm", vllm)
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda, __version__="0"))
    return engines
