"""What the server says about the requests of a run, from its own counters.

A vLLM that is told to stop answers requests in flight with HTTP 200 and a text that ends where it
happened to be (finish reason ``abort``), and OpenCompass takes that for an answer. The
counters show it, and they show that whole prompts arrived.
"""

from __future__ import annotations

import re

from adrbench.job import JobError

_LINE = re.compile(r"^(vllm:[a-z_]+)(?:\{(.*)\})? ([0-9.eE+-]+)$", re.MULTILINE)
_REASON = re.compile(r'finished_reason="([a-z_]+)"')


def counters(metrics: str) -> dict[str, float]:
    """Finished requests by reason (``stop``, ``length``, ``abort``, ...) and ``prompt_tokens``.

    Raises:
        JobError: ``no-metrics`` when the text has none of vLLM's counters.
    """
    found: dict[str, float] = {}
    for name, labels, value in _LINE.findall(metrics):
        reason = _REASON.search(labels)
        key = reason[1] if name == "vllm:request_success_total" and reason else None
        if name == "vllm:prompt_tokens_total":
            key = "prompt_tokens"
        if key:
            found[key] = found.get(key, 0.0) + float(value)
    if "prompt_tokens" not in found:
        raise JobError(
            "no-metrics", "/metrics has no vllm:prompt_tokens_total; the server is not a vLLM this version knows"
        )
    return found


def check(before: dict[str, float], after: dict[str, float], requests: int, tokens: int) -> dict[str, int]:
    """The change of the counters over a run that should have asked ``requests`` prompts of ``tokens`` in all.

    Raises:
        JobError: ``partial-eval`` for aborted or missing requests, ``short-prompts`` when fewer
            tokens arrived than the prompts have.
    """
    change = {key: round(value - before.get(key, 0.0)) for key, value in after.items()}
    complete = change.get("stop", 0) + change.get("length", 0)
    bad = {key: value for key, value in change.items() if key not in ("stop", "length", "prompt_tokens") and value}
    if bad or complete < requests:
        raise JobError(
            "partial-eval", f"the server finished {complete} of {requests} requests; other ends: {bad or 'none'}"
        )
    if change["prompt_tokens"] < tokens:
        raise JobError(
            "short-prompts", f"the server got {change['prompt_tokens']} prompt tokens, the prompts have {tokens}"
        )
    return change
