"""Waits without equals: what one kernel that is compiled in a tier looks like, and what an ordinary tier does.

Cannot prove: that the limit separates the two on hosts and loads that were not measured.
"""

from __future__ import annotations

from typing import Any

import pytest
from adrbench.serve.stalls import longest_stalls, stalls

STEP, PREFILL = 0.006, 0.25


def tier(extra: dict[int, float], requests: int = 24, concurrency: int = 4, tokens: int = 40) -> dict[str, Any]:
    """Result of a tier on one engine: a prefill step for each request, beside the others' decodes, else decode steps.

    ``extra``: seconds that a prefill, counted from 0, takes longer.
    """
    now, waiting, prefills = 100.0, list(range(requests)), 0
    running: list[int] = []
    free = dict.fromkeys(range(concurrency), 100.0)  # since when each slot is
    sent: dict[int, float] = {}
    first: dict[int, float] = {}
    last: dict[int, float] = {}
    gaps: dict[int, list[float]] = {n: [] for n in range(requests)}
    while waiting or running:
        new = None
        if waiting and len(running) < concurrency:
            new = waiting.pop(0)
            sent[new] = free.pop(min(free, key=lambda slot: free[slot]))
        now += (PREFILL + 0.01 * (prefills % 5) + extra.get(prefills, 0.0)) if new is not None else STEP
        prefills += new is not None
        for n in list(running):
            gaps[n].append(now - last[n])
            last[n] = now
            if len(gaps[n]) == tokens - 1:
                running.remove(n)
                free[len(sent) + n] = now
        if new is not None:
            first[new] = now - sent[new]
            last[new] = now
            running.append(new)
    order = range(requests)
    return {
        "start_times": [sent[n] for n in order],
        "ttfts": [first[n] for n in order],
        "itls": [gaps[n] for n in order],
    }


def test_a_wait_of_several_requests_counts_once() -> None:
    found = longest_stalls(tier({3: 0.8}))
    assert [round(length, 3) for length, _ in found] == [1.08, 0.29, 0.29]
    begins = [begin for _, begin in found]
    assert len({round(begin, 3) for begin in begins}) == 3
    assert all(begin >= 0 for begin in begins)


def test_a_kernel_compiled_in_the_tier_stands_alone() -> None:
    found = stalls(tier({3: 0.8}))
    assert found["unusual"] is True
    assert found["longest_ms"][0] == pytest.approx(1080)
    assert found["at_s"] == pytest.approx(0.25 + 0.26 + 0.27)


@pytest.mark.parametrize("extra", [{}, {0: 0.8}, {5: 0.15}, dict.fromkeys(range(24), 0.8)])
def test_prefills_and_what_only_first_tokens_wait_for_are_ordinary(extra: dict[int, float]) -> None:
    assert stalls(tier(extra))["unusual"] is False


def test_two_of_them_are_seen_as_well() -> None:
    assert stalls(tier({3: 0.8, 4: 0.5}))["unusual"] is True


@pytest.mark.parametrize(
    "result",
    [
        tier({3: 0.8}, requests=8),
        {k: v for k, v in tier({3: 0.8}).items() if k != "start_times"},
        {"start_times": [1.0] * 30, "ttfts": [0.1] * 30, "itls": [[]] * 30},
    ],
)
def test_too_little_is_not_judged(result: dict[str, Any]) -> None:
    assert stalls(result)["unusual"] is None


def test_the_longest_wait_is_told_without_times() -> None:
    result = {k: v for k, v in tier({3: 0.8}).items() if k != "start_times"}
    assert stalls(result)["longest_ms"] == [pytest.approx(1080)]
