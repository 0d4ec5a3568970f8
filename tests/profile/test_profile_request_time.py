"""Request-seconds on hand-made steps whose answer is known by construction."""

import pytest
from adrbench.profile.request_time import request_seconds, stretches
from adrbench.profile.step import Step


def step(start, duration, context=0, tokens=0, generation=0):
    return Step(start, duration, context, tokens, generation, generation)


def seconds(prefill, decode):
    return pytest.approx({"prefill": prefill, "decode": decode})


# Prompts of 10, 40 and 40 tokens, 40 tokens a step. The host launches each step while the one before runs.
LENGTHS = [10, 40, 40]
WORK = [(1, 10, 0), (1, 40, 0), (1, 39, 1), (1, 1, 2), (0, 0, 2), (0, 0, 2)]
DEVICE = [step(100 * i, 100, *work) for i, work in enumerate(WORK)]
HOST = [step(max(0, 100 * i - 90), 5, *work) for i, work in enumerate(WORK)]


def test_a_step_of_a_synchronous_host_lasts_until_the_next_one():
    steps = [step(0, 100, 1, 64), step(200, 50, 1, 64, 1), step(300, 100, generation=2)]
    assert request_seconds(steps, [], [64, 64]) == seconds(300e-6, 300e-6)


def test_each_prompt_has_its_first_and_last_step():
    assert stretches(HOST, LENGTHS) == [(0, 0), (1, 1), (2, 3)]


def test_prefill_counts_from_scheduling_to_the_first_token_decode_by_the_device():
    """By hand: 0 to 100; 10 to 200; 110 to 400. Decode 1, 2, 2, 2 requests in steps of 100."""
    assert request_seconds(HOST, DEVICE, LENGTHS) == seconds((100 + 190 + 290) * 1e-6, 700e-6)


def test_host_steps_alone_would_not_do():
    """What was done until a GPU's trace showed it: launches are short and early, the last one waits for the device."""
    assert request_seconds(HOST, [], LENGTHS) != request_seconds(HOST, DEVICE, LENGTHS)


def test_empty_steps_of_the_host_have_no_mirror():
    empty = step(95, 1)
    assert request_seconds([*HOST, empty], DEVICE, LENGTHS) == request_seconds(HOST, DEVICE, LENGTHS)


@pytest.mark.parametrize(
    "lengths",
    [
        [10, 40],
        [10, 40, 40, 40],
        [10, 41, 40],
        [10, 39, 40],
    ],
    ids=["unknown prompt", "prompt that never ran", "unfinished before the next", "tokens left over"],
)
def test_prompts_that_do_not_fit_the_steps_leave_prefill_unknown(lengths):
    assert stretches(HOST, lengths) is None
    found = request_seconds(HOST, DEVICE, lengths)
    assert found["prefill"] is None
    assert found["decode"] == pytest.approx(700e-6)


def test_a_prompt_left_unfinished_beside_another_one_tells_nothing():
    assert stretches([step(0, 1, 2, 20)], [40, 40]) is None


def test_mirrors_of_other_steps_tell_nothing():
    assert request_seconds(HOST, DEVICE[:-1], LENGTHS) == {"prefill": None, "decode": None}
