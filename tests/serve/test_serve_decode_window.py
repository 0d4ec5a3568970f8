"""TPOT of decode alone: an engine whose steps prefill, mix and decode in known times, and tiers without such a window.

Cannot prove: that a server's scheduler never prefills without a first token to show for it, but where it counts a
preemption.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from adrbench.serve.bench import measure
from adrbench.serve.decode_window import LEAST_TOKENS, decode_window

DECODE, MIXED = 0.010, 0.700


def tier(requests: int = 4, tokens: int = 40, chunks: int = 4) -> dict[str, Any]:
    """All requests sent at 100 s; each prefills in ``chunks`` steps beside the decodes of those before it."""
    now, sent = 100.0, [100.0 + 0.001 * n for n in range(requests)]
    times: list[list[float]] = [[] for _ in range(requests)]
    for prefilling in range(requests):
        for chunk in range(chunks):
            now += MIXED
            for n in range(prefilling):
                times[n].append(now)
            if chunk == chunks - 1:
                times[prefilling].append(now)
    while any(len(own) < tokens for own in times):
        now += DECODE
        for own in times:
            if len(own) < tokens:
                own.append(now)
    return {
        "start_times": sent,
        "ttfts": [own[0] - start for own, start in zip(times, sent, strict=True)],
        "itls": [[b - a for a, b in pairwise(own)] for own in times],
        "output_lens": [len(own) for own in times],
    }


def test_only_steps_without_prefill_count() -> None:
    result = tier()
    found = decode_window(result, 4)
    assert found is not None
    assert found["tpot_ms"]["p50"] == pytest.approx(10.0)
    assert found["tpot_ms"]["min"] == pytest.approx(10.0) == found["tpot_ms"]["max"]
    # The first request has 13 of its 40 tokens when the last one's prompt is done; 27 more in the window.
    assert found["window_s"] == pytest.approx(27 * DECODE)
    assert found["requests"] == 4
    # What the client calls TPOT has the prefills of the others in.
    assert sum(result["itls"][0]) / 39 * 1e3 > 200


def test_one_slow_request_is_seen() -> None:
    result = tier()
    result["itls"][2] = [gap * (1.5 if gap < 0.1 else 1.0) for gap in result["itls"][2]]
    found = decode_window(result, 4)
    assert found is not None
    assert found["tpot_ms"]["max"] == pytest.approx(15.0)
    assert found["tpot_ms"]["p50"] == pytest.approx(10.0)


def test_a_single_request_is_all_decode() -> None:
    found = decode_window(tier(requests=1), 8)
    assert found is not None
    assert found["tpot_ms"]["p50"] == pytest.approx(10.0)
    assert found["requests"] == 1


@pytest.mark.parametrize(
    ("change", "concurrency"),
    [
        ({}, 3),  # the fourth waits for a slot
        ({"start_times": []}, 4),
        ({"start_times": None}, 4),
        ({"output_lens": [40, 41, 40, 40]}, 4),  # a chunk of the second held two tokens
    ],
)
def test_no_window(change: dict[str, Any], concurrency: int) -> None:
    assert decode_window(tier() | change, concurrency) is None


def test_a_request_that_was_preempted_prefills_again_in_the_window() -> None:
    assert decode_window(tier(), 4, preemptions=1.0) is None
    assert decode_window(tier(), 4, preemptions=None) is not None


def test_a_tier_with_preemptions_has_no_decode_alone() -> None:
    timed = {
        f"{stat}_{name}_ms": 1.0 for stat in ("p50", "p90", "p99", "mean") for name in ("ttft", "tpot", "itl", "e2el")
    }
    rates = dict.fromkeys(("request_throughput", "output_throughput", "total_token_throughput"), 1.0)
    result = tier() | timed | rates | {"completed": 4, "duration": 10.0, "input_lens": [8] * 4}
    load = {"name": "all", "prompts": 4, "output_tokens": 40, "concurrency": 4}
    counters = [f'vllm:num_preemptions_total{{engine="0"}} {count}' for count in (2.0, 2.0, 3.0)]
    found = [measure(load, [8] * 4, result, counters[0], after, False)["decode_window"] for after in counters[1:]]
    assert found[0] is not None
    assert found[1] is None


def test_a_window_of_too_few_tokens_says_nothing() -> None:
    short = 13 + LEAST_TOKENS - 1  # the first token of the window is the one at its begin
    assert decode_window(tier(tokens=short - 1), 4) is None
    assert decode_window(tier(tokens=short), 4) is not None
    assert decode_window(tier(tokens=6), 4) is None  # the first is done before the last begins


def test_a_client_without_the_times_of_requests() -> None:
    result = tier()
    del result["start_times"]
    assert decode_window(result, 4) is None
