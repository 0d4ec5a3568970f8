"""Asking a served model for the log-probabilities of a given text, and keeping them in arrays.

vLLM's ``prompt_logprobs`` (OpenAI completions, ``prompt`` as token ids) gives at each position of the prompt
the most probable next tokens and the token that really follows. They are computed in prefill steps. In
vLLM's V1 engine an attention layer first writes the step's K and V to the paged cache and then reads all of them, its
own step's included, from there (CPU_ATTN, TRITON_ATTN and FLASH_ATTN; ``do_kv_cache_update`` before ``forward``), so a
quantised cache is read at every position. What differs from decoding token by token is the age of a token: all
queries of a step read the cache as the whole step leaves it, so a scheme with a window of recent tokens has quantised
some that were still recent for the step's first queries. A short step keeps that difference short.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from adrbench.job import JobError
from numpy.typing import NDArray


class Asks(Protocol):
    """What a replay needs of a server."""

    model: str

    def request(self, path: str, body: dict[str, Any] | None = None, timeout_s: float = 60.0) -> Any: ...


@dataclass(frozen=True)
class Replay:
    """Log-probabilities of S segments at their N = tokens - 1 predicted positions.

    Position j predicts token j + 1 from the j + 1 tokens before it.

    Attributes:
        token: the token that follows, ``[S, N]``.
        logprob: its natural log-probability, ``[S, N]``.
        top: ids of the most probable tokens, the first first, ``[S, N, K]``.
        top_logprob: their log-probabilities, ``[S, N, K]``.
    """

    token: NDArray[np.int32]
    logprob: NDArray[np.float64]
    top: NDArray[np.int32]
    top_logprob: NDArray[np.float64]

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(
            path,
            token=self.token,
            logprob=self.logprob.astype(np.float32),
            top=self.top,
            top_logprob=self.top_logprob.astype(np.float32),
        )

    @classmethod
    def load(cls, path: Path) -> Replay:
        """Raises JobError ``evidence`` for a file that is missing or damaged."""
        try:
            with np.load(path) as data:
                return cls(
                    data["token"],
                    data["logprob"].astype(np.float64),
                    data["top"],
                    data["top_logprob"].astype(np.float64),
                )
        except (OSError, KeyError, ValueError) as error:
            raise JobError("evidence", f"{path}: {error}; delete its evidence file and rerun the replay") from None


def parse_positions(
    entries: list[dict[str, Any] | None], ids: list[int], top: int
) -> tuple[list[float], list[list[int]], list[list[float]]]:
    """(log-probability of the token that follows, top ids, top log-probabilities) of one answer.

    Args:
        entries: ``prompt_logprobs`` of one choice: None at the first token, then token id -> logprob and rank.

    Raises:
        JobError: ``incomplete`` naming the first position that lacks something.
    """
    if len(entries) != len(ids):
        raise JobError("incomplete", f"prompt_logprobs has {len(entries)} positions, the text {len(ids)} tokens")
    own, tops, values = [], [], []
    for position, (entry, token) in enumerate(zip(entries[1:], ids[1:], strict=True), start=1):
        known = {int(key): float(item["logprob"]) for key, item in (entry or {}).items()}
        best = sorted(known.items(), key=lambda item: (-item[1], item[0]))[:top]
        if token not in known or len(best) < top:
            raise JobError("incomplete", f"position {position}: token {token} or one of the {top} best is missing")
        if not all(math.isfinite(value) for value in known.values()):
            raise JobError("incomplete", f"position {position}: a log-probability is not finite")
        own.append(known[token])
        tops.append([key for key, _ in best])
        values.append([value for _, value in best])
    return own, tops, values


def ask(server: Asks, ids: list[int], top: int, timeout_s: float) -> Any:
    """One segment's log-probabilities; one token is generated because the interface wants at least one.

    Raises:
        JobError: ``incomplete`` when the server read another number of tokens.
    """
    body = {
        "model": server.model,
        "prompt": ids,
        "max_tokens": 1,
        "temperature": 0,
        "prompt_logprobs": top,
        "add_special_tokens": False,
    }
    answer = server.request("/v1/completions", body, timeout_s)
    counted = answer["usage"]["prompt_tokens"]
    if counted != len(ids):
        raise JobError("incomplete", f"the server counted {counted} prompt tokens, {len(ids)} were sent")
    return parse_positions(answer["choices"][0]["prompt_logprobs"], ids, top)


def replay(server: Asks, text: list[list[int]], top: int, concurrency: int, timeout_s: float) -> Replay:
    """All segments, ``concurrency`` at a time."""
    with ThreadPoolExecutor(concurrency) as pool:
        answers = list(pool.map(lambda ids: ask(server, ids, top, timeout_s), text))
    return Replay(
        token=np.array([ids[1:] for ids in text], dtype=np.int32),
        logprob=np.array([own for own, _, _ in answers], dtype=np.float64),
        top=np.array([tops for _, tops, _ in answers], dtype=np.int32),
        top_logprob=np.array([values for _, _, values in answers], dtype=np.float64),
    )
