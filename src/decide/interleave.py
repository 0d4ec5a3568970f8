"""The order of server starts: rounds interleave, and the order within a round is shuffled.

A machine drifts (temperature, neighbours, page cache). If all rounds of one arm ran before the next
arm's, the drift would look like a difference between arms. So runs are grouped in blocks: block k holds
round k of every arm, in an order shuffled from a recorded seed, and is finished before block k + 1.
An arm with more rounds than the others (the baseline, as its own A/A control) has its extra rounds
spread over the blocks: with twice the rounds it runs twice in each.

Only the standard library is used: the workflow takes the priority of each start from it (``Order``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cached_property

# Greatest priority. Starts so far on that they would fall to 1 run in any order; a longer queue than this is no
# plan. Not greater, because Snakemake's ILP scheduler multiplies it with a tolerance in mind.
TOP = 100_000


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
        seed: recorded with the run. Each block has a random order of its own, which neither more blocks nor more or
            fewer arms change.
    """
    blocks = count(rounds)
    runs = [(block(r, total, blocks), arm, r) for arm, total in rounds.items() for r in range(1, total + 1)]
    return [(arm, r) for _, arm, r in sorted(runs, key=lambda run: (run[0], _key(seed, *run)))]


def _key(seed: int, *run: str | int) -> bytes:
    """What runs of a block are sorted by: as good as a shuffle, and no other run has a part in it. So the order of the
    runs that two plans share is the same, whichever arms and rounds the one has beyond the other."""
    return hashlib.sha256("/".join(map(str, (seed, *run))).encode()).digest()


def count(rounds: Mapping[str, int]) -> int:
    """Number of blocks: the second greatest number of rounds, because one arm may run more often as a control."""
    totals = sorted(rounds.values())
    return totals[-2] if len(totals) > 1 else (totals[0] if totals else 0)


class Order:
    """Place of every start, planned or asked for beyond the plan; the workflow's source of priorities.

    Runs beyond the plan (a round asked for by name, rounds that an adaptive decision adds) stand where a longer
    plan of the same proportions would put them; a longer plan keeps the places of the shorter one.
    """

    def __init__(self, rounds: Mapping[str, int], seed: int):
        self.rounds, self.seed = dict(rounds), seed
        self._places: dict[int, dict[tuple[str, int], int]] = {}

    @cached_property
    def control(self) -> int:
        """Starts per block of the arm that runs most often (the baseline as its own control)."""
        return max(1, -(-max(self.rounds.values(), default=1) // max(1, count(self.rounds))))

    def block(self, arm: str, number: int) -> int:
        """Block (from 1) of a start."""
        factor = self._factor(arm, number)
        return block(number, factor * self.rounds[arm], factor * count(self.rounds))

    def _factor(self, arm: str, number: int) -> int:
        """How many times the plan must be as long to hold a round."""
        return max(1, -(-number // self.rounds[arm]))

    def place(self, arm: str, number: int) -> int:
        """Position (from 0) of a start among all of its plan.

        Raises:
            KeyError: the arm is not in the plan.
        """
        factor = self._factor(arm, number)
        if factor not in self._places:
            longer = {name: factor * total for name, total in self.rounds.items()}
            self._places[factor] = {run: position for position, run in enumerate(plan(longer, self.seed))}
        return self._places[factor][arm, number]

    def priority(self, arm: str, number: int) -> int:
        """Snakemake's priority of a start: earlier ones greater, and all greater than 0, which other jobs have."""
        return max(1, TOP - self.place(arm, number))
