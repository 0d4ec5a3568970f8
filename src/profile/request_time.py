"""Request-seconds of prefill and decode from a trace's steps, as vLLM's own counters sum them over requests.

vLLM 0.20.2 (``v1/metrics/stats.py``) counts a request's prefill from the scheduler's call that first took it up
(``scheduled_ts``) to its first token, and its decode from there to its last token. A token's time is when the
engine core has the step's output. With asynchronous scheduling (``EngineCore.step_with_batch_queue``) the next step
is scheduled and launched while the device still runs the one before, so a prefill counts almost one step more
than the steps that worked on it. The host's annotation says when a step was scheduled, its mirror on the device
when its tokens were ready; a trace without mirrors (CPU, where vLLM schedules after each step) has both in the
host's annotations.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from adrbench.profile.step import Step


def _ordered(steps: Sequence[Step]) -> list[Step]:
    """Steps that ran something, by start."""
    return sorted((step for step in steps if step.phase), key=lambda step: step.start_us)


def _work(step: Step) -> tuple[int, int, int, int]:
    return step.context_requests, step.context_tokens, step.generation_requests, step.generation_tokens


def stretches(steps: Sequence[Step], prompt_lengths: Sequence[int]) -> list[tuple[int, int]] | None:
    """For each prompt the numbers of its first and last step; None where the steps do not tell.

    vLLM serves first come, first served and cuts a prompt only where a step's token budget ends: all prompts of a
    step but its last one are finished in it. Steps whose tokens do not work out that way (prompts in another
    order, cut short by a prefix cache, preempted) tell nothing.
    """
    waiting, found = list(prompt_lengths), []
    left = first = 0
    for number, step in enumerate(steps):
        tokens = step.context_tokens
        for place in range(step.context_requests):
            if not left:
                if not waiting:
                    return None
                left, first = waiting.pop(0), number
            taken = min(left, tokens)
            left, tokens = left - taken, tokens - taken
            if not taken or (left and place + 1 < step.context_requests):
                return None
            if not left:
                found.append((first, number))
        if tokens:
            return None
    return None if left or waiting else found


def request_seconds(
    host: Sequence[Step], device: Sequence[Step], prompt_lengths: Sequence[int]
) -> dict[str, float | None]:
    """Seconds that requests spent in prefill and in decode, added up over requests.

    Args:
        host: steps as the host annotated them, empty ones included.
        device: their mirrors on the device, in any order; none on CPU.
        prompt_lengths: of the traced window, in the order sent.

    Returns:
        None for a phase whose times the trace does not tell: mirrors that are not the host's steps one for one,
        prompts whose steps are not known.
    """
    if not device:
        return _by_host(sorted(host, key=lambda step: step.start_us))
    begun, ran = _ordered(host), _ordered(device)
    if not ran or [_work(step) for step in begun] != [_work(step) for step in ran]:
        return {"prefill": None, "decode": None}
    ready = [ran[0].start_us, *(step.end_us for step in ran)]
    decode = sum((b - a) * step.generation_requests for (a, b), step in zip(pairwise(ready), ran, strict=True))
    spans = stretches(begun, prompt_lengths)
    prefill = None if spans is None else sum(ran[last].end_us - begun[first].start_us for first, last in spans) / 1e6
    return {"prefill": prefill, "decode": decode / 1e6}


def _by_host(steps: list[Step]) -> dict[str, float | None]:
    """Where the host waits for each step, it lasts until the next one begins: a request waits through the gap too."""
    ends = [step.start_us for step in steps[1:]] + [step.end_us for step in steps[-1:]]
    lasted = [(end - step.start_us) / 1e6 for step, end in zip(steps, ends, strict=True)]
    return {
        "prefill": sum((s * step.context_requests for s, step in zip(lasted, steps, strict=True)), 0.0),
        "decode": sum((s * step.generation_requests for s, step in zip(lasted, steps, strict=True)), 0.0),
    }
