"""TPOT of decode alone, from a tier that sends all its requests at once.

TPOT as clients report it has the prefills of other requests in: on long prompts most of it is theirs. Once the last
request has its first token, and until the first has its last, every request decodes and none prefills: what an
attention backend or a smaller KV cache does to decoding shows there undiluted.
"""

from __future__ import annotations

import statistics
from itertools import accumulate
from typing import Any

# Fewer tokens of a request say more about one step than about decoding.
LEAST_TOKENS = 8


def decode_window(result: dict[str, Any], concurrency: int, preemptions: float | None = 0.0) -> dict[str, Any] | None:
    """Times per token while all requests of a tier decode together.

    Args:
        result: the JSON of ``vllm bench serve --save-detailed``; ``start_times``, ``ttfts``, ``itls`` in seconds.
        concurrency: requests in flight at most.
        preemptions: requests that the server put off in the tier: they prefill again, without a first token to show
            for it. None where the server does not tell.

    Returns:
        ``tpot_ms``: ``p50``, ``min`` and ``max`` over the requests; ``window_s``: its length; ``requests``: how many
        are in it, which is all of the tier. None where requests waited for a slot, where the window holds
        fewer than ``LEAST_TOKENS`` of one, where a chunk held several tokens, where a request was preempted, or where
        the client tells no times.
    """
    starts, ttfts, gaps = result.get("start_times"), result["ttfts"], result["itls"]
    if not starts or len(starts) > concurrency or preemptions:
        return None
    if any(len(own) + 1 != tokens for own, tokens in zip(gaps, result["output_lens"], strict=True)):
        return None
    # When each token of each request came.
    times = [
        list(accumulate(own, initial=start + first)) for start, first, own in zip(starts, ttfts, gaps, strict=True)
    ]
    begin, end = max(own[0] for own in times), min(own[-1] for own in times)
    inside = [[at for at in own if begin <= at <= end] for own in times]
    if any(len(own) < LEAST_TOKENS for own in inside):
        return None
    tpot = [1e3 * (own[-1] - own[0]) / (len(own) - 1) for own in inside]
    return {
        "tpot_ms": {"p50": statistics.median(tpot), "min": min(tpot), "max": max(tpot)},
        "window_s": end - begin,
        "requests": len(times),
    }
