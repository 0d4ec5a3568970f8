"""Replays made from known distributions, and a server that answers like vLLM's completions endpoint."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from adrbench.agreement.replay import Replay
from numpy.typing import NDArray

VOCABULARY = 40


def distributions(seed: int, segments: int, positions: int, sharp: float = 2.0) -> NDArray[np.float64]:
    """Random next-token distributions ``[segments, positions, vocabulary]``."""
    logits = np.random.default_rng(seed).normal(0, sharp, (segments, positions, VOCABULARY))
    p = np.exp(logits)
    normalised: NDArray[np.float64] = p / p.sum(axis=-1, keepdims=True)
    return normalised


def replay_of(p: NDArray[np.float64], token: NDArray[np.int32], top: int) -> Replay:
    """What a replay would keep of full distributions."""
    order = np.argsort(-p, axis=-1, kind="stable")[..., :top].astype(np.int32)
    own = np.take_along_axis(p, token[..., None], axis=-1)[..., 0]
    return Replay(token, np.log(own), order, np.log(np.take_along_axis(p, order, axis=-1)))


@pytest.fixture
def pair() -> Callable[..., tuple[NDArray[np.float64], NDArray[np.float64], Replay, Replay]]:
    """Two sets of distributions and the replays of them: ``pair(top=20, mix=0.1)``."""

    def make(top: int = 20, mix: float = 0.1, segments: int = 4, positions: int = 30) -> Any:
        p = distributions(1, segments, positions)
        q = (1 - mix) * p + mix * distributions(2, segments, positions)
        token = np.random.default_rng(3).integers(0, VOCABULARY, (segments, positions)).astype(np.int32)
        return p, q, replay_of(p, token, top), replay_of(q, token, top)

    return make


class FakeServer:
    """Answers ``prompt_logprobs`` from a table of logits that depends on the previous token only."""

    model = "model"

    def __init__(self, top_of: int = 20, shift: float = 0.0, drop: bool = False, short: int = 0):
        table = np.random.default_rng(7).normal(0, 2, (VOCABULARY, VOCABULARY)) + shift * np.eye(VOCABULARY)
        self.logprobs = table - np.log(np.exp(table).sum(axis=1, keepdims=True))
        self.top_of, self.drop, self.short = top_of, drop, short
        self.resolved = {"vllm_version": "0.27.0", "attention_backend": "CPU_ATTN", "plugin": []}

    def request(self, path: str, body: dict[str, Any] | None = None, timeout_s: float = 60.0) -> Any:
        assert path == "/v1/completions"
        assert body is not None
        assert body["prompt_logprobs"] <= self.top_of
        ids = body["prompt"]
        entries: list[dict[str, Any] | None] = [None]
        for previous, token in pairwise(ids):
            row = self.logprobs[previous % VOCABULARY]
            best = [int(i) for i in np.argsort(-row)[: body["prompt_logprobs"]]]
            kept = dict.fromkeys([*best, token % VOCABULARY])
            named = {i if i != token % VOCABULARY else token: row[i] for i in kept}
            if self.drop:
                named.pop(token)
            entries.append({str(i): {"logprob": float(v), "rank": 1, "decoded_token": "x"} for i, v in named.items()})
        return {"usage": {"prompt_tokens": len(ids) - self.short}, "choices": [{"prompt_logprobs": entries}]}


@pytest.fixture
def fake_server() -> type[FakeServer]:
    return FakeServer
