"""Greedy answers of a served arm to a few fixed prompts: does an arm still say what the baseline says?

Sent one at a time, so that batching cannot reorder floating-point sums between two servers.
"""

from __future__ import annotations

from collections.abc import Sequence

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
    return answers


def equal_answers(first: Sequence[str], second: Sequence[str]) -> int:
    """How many answers of two servers are the same text."""
    return sum(a == b for a, b in zip(first, second, strict=True))
