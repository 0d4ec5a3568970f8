"""Greedy answers of a served arm to a few fixed prompts: does an arm still say what the baseline says?

Sent one at a time, so that batching cannot reorder floating-point sums between two servers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from adrbench.job import JobError
from adrbench.serve.server import Server

PROMPTS = (
    "The capital of France is",
    "Water boils at a temperature of",
    "To sort a list in Python, one can",
    "Once upon a time there was a lighthouse keeper who",
)
NEW_TOKENS = 12


def greedy_answers(server: Server) -> list[str]:
    """The continuation of each prompt, ``NEW_TOKENS`` tokens at temperature 0."""
    answers = []
    for prompt in PROMPTS:
        body = {"model": server.model, "prompt": prompt, "max_tokens": NEW_TOKENS, "temperature": 0, "ignore_eos": True}
        answers.append(server.request("/v1/completions", body, 120)["choices"][0]["text"])
    if len(set(answers)) == 1:
        _check_logits(server, answers[0])
    return answers


def _check_logits(server: Server, answer: str) -> None:
    """Tell logits that are NaN from a model that merely says one thing, when every prompt got the same answer.

    Greedy sampling takes a NaN for the largest logit, so such a server answers every prompt alike, with the token
    counts that were asked for. Log-probabilities show it: vLLM cannot write NaN as JSON. They are asked for only here,
    because a server's first such request compiles for seconds.

    Raises:
        JobError: ``nan-logits``.
    """
    body = {"model": server.model, "prompt": PROMPTS[0], "max_tokens": 1, "temperature": 0, "logprobs": 1}
    told = ""
    try:
        logprobs = server.request("/v1/completions", body, 120)["choices"][0]["logprobs"]["token_logprobs"]
    except JobError as error:
        logprobs, told = [], f": {error}"
    if not logprobs or not all(isinstance(value, float | int) and math.isfinite(value) for value in logprobs):
        raise JobError(
            "nan-logits",
            f"every prompt was answered by {answer!r}, and its log-probability is no number{told}; the weights, a "
            f"scale or a kernel gives NaN: check the model folder, then the kernels' evidence; "
            f"the server's log is {server.folder / 'server.log'}",
        )


def equal_answers(first: Sequence[str], second: Sequence[str]) -> int:
    """How many answers of two servers are the same text."""
    return sum(a == b for a, b in zip(first, second, strict=True))
