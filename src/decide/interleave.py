"""The order of server starts: rounds interleave, and the order within a round is shuffled.

A machine drifts (temperature, neighbours, page cache). If all rounds of one arm ran before the next
arm's, the drift would look like a difference between arms. So runs are grouped in blocks: block k holds
round k of every arm, in an order shuffled from a recorded seed, and is finished before block k + 1.
An arm with more rounds than the others (the baseline, as its own A/A control) has its extra rounds
spread over the blocks: with twice the rounds it runs twice in each.

Only the standard library is used: a workflow can take priorities from it.
"""

from __future__ import annotations

import random
from collections.abc import Mapping


def block(round_number: int, rounds: int, blocks: int) -> int:
    """Block (from 1) of a round, for an arm with ``rounds`` rounds over ``blocks`` blocks.

    With a fixed ratio of rounds to blocks the block of a round does not change when rounds are added.
    """
    if rounds <= blocks:
        return round_number
    return -(-round_number * blocks // rounds)


def plan(rounds: Mapping[str, int], seed: int) -> list[tuple[str, int]]:
    """(arm, round) of every run in the order in which it should start.

    Args:
        rounds: arm -> number of rounds. The least of them is the number of blocks that all arms share.
        seed: recorded with the run; each block has a random order of its own that added blocks do not change.
    """
    blocks = count(rounds)
    order = []
    for number in range(1, max([blocks, *rounds.values()], default=0) + 1):
        runs = [
            (arm, r)
            for arm, total in sorted(rounds.items())
            for r in range(1, total + 1)
            if block(r, total, blocks) == number
        ]
        # Seeded per block and by text, so that the order of earlier blocks stays when rounds are added.
        random.Random(f"{seed}/{number}").shuffle(runs)
        order += runs
    return order


def count(rounds: Mapping[str, int]) -> int:
    """Number of blocks: the second greatest number of rounds, because one arm may run more often as a control."""
    totals = sorted(rounds.values())
    return totals[-2] if len(totals) > 1 else (totals[0] if totals else 0)
