"""The order in which rounds really ran: late reruns, and drift of the machine under the measurement.

Rounds are planned to interleave: round k of every arm before round k + 1 of any. An arm that is edited
and measured again later has its rounds far from the others'; a difference then holds the drift between,
and such rounds are not paired.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal

import numpy as np
from adrbench.decide import interleave
from adrbench.decide.comparable import host_of
from adrbench.decide.context import Context
from adrbench.decide.records import Runs
from adrbench.decide.verdict import Drift, Order, Run
from adrbench.decide.words import text
from scipy.stats import t as student

# Metrics whose drift is tested: one of rate, one of latency.
DRIFT_METRICS = ("output_tokens_per_s", "ttft_ms.p50")


def starts(runs: Runs) -> dict[tuple[str, int], datetime]:
    """(arm, round) -> when its server was started."""
    return {
        (arm, number): min(datetime.fromisoformat(run.document.started_at) for run in tiers.values())
        for arm, rounds in runs.items()
        for number, tiers in rounds.items()
    }


def ends(runs: Runs) -> dict[tuple[str, int], datetime]:
    """(arm, round) -> when its last tier was finished."""
    return {
        (arm, number): max(datetime.fromisoformat(run.document.finished_at) for run in tiers.values())
        for arm, rounds in runs.items()
        for number, tiers in rounds.items()
    }


def blocks(rounds: Mapping[str, Iterable[int]]) -> dict[tuple[str, int], int]:
    """(arm, round) -> block, from the rounds that each arm was to have."""
    totals = {arm: max(numbers, default=0) for arm, numbers in rounds.items()}
    number = interleave.count(totals)
    return {(arm, r): interleave.block(r, totals[arm], number) for arm, numbers in rounds.items() for r in numbers}


def late(begun: Mapping[tuple[str, int], datetime], block_of: Mapping[tuple[str, int], int]) -> list[tuple[str, int]]:
    """Runs measured out of turn: they began after another arm's run of a later block, or after a run that did so
    parted their own block.

    The second catches a rerun of all rounds of an arm in the last block, which no later block follows. A rerun of
    the last round alone leaves no such trace; ``parted`` sees it by the time that passed.
    """
    order = sorted(begun, key=lambda run: (begun[run], run))
    found: list[tuple[str, int]] = []
    # The greatest block begun so far, and the greatest of another arm than that one's.
    first, second = (0, ""), (0, "")
    open_before: dict[int, bool] = {}
    for run in order:
        other = second if first[1] == run[0] else first
        if other[0] > block_of[run] or open_before.get(block_of[run], False):
            found.append(run)
            # Blocks begun before a late run are parted by it.
            open_before = dict.fromkeys(open_before, True)
        else:
            open_before.setdefault(block_of[run], False)
        mine = (block_of[run], run[0])
        if mine[1] == first[1]:
            first = max(first, mine)
        elif mine > first:
            first, second = mine, first
        elif mine > second or mine[1] == second[1]:
            second = max(second, mine)
    return found


def parted(
    begun: Mapping[tuple[str, int], datetime],
    ended: Mapping[tuple[str, int], datetime],
    block_of: Mapping[tuple[str, int], int],
) -> list[tuple[str, int]]:
    """Runs that began long after the runs of their block before them had ended: what was true then may not be now.

    Long is more than an hour and more than three times the longest run.
    """
    longest = max((ended[run] - begun[run] for run in begun), default=timedelta(0))
    limit = max(timedelta(hours=1), 3 * longest)
    last: dict[int, datetime] = {}
    found, split = [], set()
    for run in sorted(begun, key=lambda run: (begun[run], run)):
        block = block_of[run]
        if block in last and begun[run] - last[block] > limit:
            split.add(block)
        if block in split:
            found.append(run)
        last[block] = max(last.get(block, ended[run]), ended[run])
    return found


def elsewhere(runs: Runs, block_of: Mapping[tuple[str, int], int], baseline: str) -> list[tuple[str, int]]:
    """Runs on another host than the baseline's first run of their block: not side by side with it."""
    host = {
        (arm, number): host_of(next(iter(tiers.values())).document)
        for arm, rounds in runs.items()
        for number, tiers in rounds.items()
    }
    first: dict[int, Any] = {}
    for number in sorted(runs.get(baseline, {})):
        first.setdefault(block_of[baseline, number], host[baseline, number])
    return [run for run in sorted(host) if block_of[run] in first and host[run] != first[block_of[run]]]


def _in_order(context: Context) -> list[tuple[str, int]]:
    begun = starts(context.runs)
    return sorted(begun, key=lambda key: (begun[key], key))


def planned(context: Context) -> dict[tuple[str, int], int]:
    """(arm, round) -> place (from 1) in the order that the recorded seed planned, of every run asked for."""
    rounds = {arm: max(numbers, default=0) for arm, numbers in context.spec.evidence.serve.items()}
    return {run: place for place, run in enumerate(interleave.plan(rounds, context.spec.order_seed), start=1)}


def order(context: Context) -> list[Run]:
    """All runs by start time."""
    place, begun = planned(context), starts(context.runs)
    first = {key: min(run.document.started_at for run in context.runs[key[0]][key[1]].values()) for key in begun}
    return [
        Run(
            arm=arm,
            round=number,
            started_at=first[arm, number],
            late=number in context.unpaired.get(arm, set()),
            block=context.blocks[arm, number],
            planned=place.get((arm, number)),
        )
        for arm, number in _in_order(context)
    ]


def longest_ascent(places: Sequence[int]) -> int:
    """Length of the longest ascending subsequence: the others are the fewest that must move to sort it."""
    tails: list[int] = []
    for place in places:
        position = bisect_left(tails, place)
        tails[position : position + 1] = [place]
    return len(tails)


def ordering(context: Context) -> Order | None:
    """How the real order of starts stands to the planned one; None where nothing ran."""
    place, real = planned(context), _in_order(context)
    if not real:
        return None
    moved = len(real) - longest_ascent([place.get(run, 0) for run in real])
    blocks = [context.blocks[run] for run in real]
    mixed = sum(number < max(blocks[: position + 1]) for position, number in enumerate(blocks))
    unpaired = sum(run[1] in context.unpaired.get(run[0], set()) for run in real)
    seed = context.spec.order_seed
    en = f"{len(real)} server starts in {len(set(blocks))} rounds side by side, shuffled by seed {seed}: "
    zh = f"{len(real)} 次服务启动, 分 {len(set(blocks))} 组并列轮次, 组内次序由种子 {seed} 打乱: "
    if moved or unpaired:
        en += f"{moved} ran out of the planned turn, {unpaired} are late and not paired"
        zh += f"{moved} 次偏离计划次序, {unpaired} 次过晚、不参与配对"
    else:
        en, zh = en + "they ran as planned", zh + "均按计划进行"
    return Order(
        seed=seed, starts=len(real), blocks=len(set(blocks)), out_of_turn=moved, blocks_mixed=mixed,
        unpaired=unpaired, text=text(en, zh),
    )  # fmt: skip


def slope(
    hours: list[float], logs: list[float], arms: list[str], confidence: float
) -> tuple[float, float, float] | None:
    """Common slope of the logarithm per hour with each arm's own level removed, and its t interval.

    Least squares with one intercept per arm; arms with a single run say nothing about it. None when the
    repeats leave no degree of freedom or no spread in time.
    """
    x, y = np.asarray(hours, dtype=float), np.asarray(logs, dtype=float)
    groups = [np.flatnonzero([arm == name for arm in arms]) for name in dict.fromkeys(arms)]
    groups = [group for group in groups if len(group) >= 2]
    df = sum(len(group) - 1 for group in groups) - 1
    if df < 1:
        return None
    dx = np.concatenate([x[g] - x[g].mean() for g in groups])
    dy = np.concatenate([y[g] - y[g].mean() for g in groups])
    square = float(dx @ dx)
    if not square > 0:
        return None
    value = float(dx @ dy) / square
    residual = dy - value * dx
    half = float(student.ppf((1 + confidence) / 2, df)) * float(np.sqrt(residual @ residual / df / square))
    return value, value - half, value + half


def drift(context: Context) -> list[Drift]:
    """Drift of each tier; empty while too few arms are repeated to see any.

    The error rate is shared among the tests (Bonferroni), so that a quiet machine is called drifting in
    no more than the permitted fraction of runs.
    """
    begun = starts(context.runs)
    arms = [arm for arm in context.runs if arm not in context.refused]
    tests = [(tier, metric) for tier in context.tiers for metric in DRIFT_METRICS]
    confidence = 1 - (1 - context.confidence) / max(1, len(tests))
    found = []
    for tier, metric in tests:
        points = [
            (arm, begun[arm, number].timestamp() / 3600, float(np.log(value)))
            for arm in arms
            for number, value in context.values(arm, tier, metric).items()
        ]
        fit = slope([p[1] for p in points], [p[2] for p in points], [p[0] for p in points], confidence)
        if fit is None:
            continue
        per_hour, low, high = (float(np.expm1(np.clip(value, -700, 700))) for value in fit)
        verdict: Literal["drift", "none seen"] = "drift" if low > 0 or high < 0 else "none seen"
        found.append(Drift(metric=metric, tier=tier, per_hour=per_hour, low=low, high=high, verdict=verdict))
    return found
