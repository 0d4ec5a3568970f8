"""The time of a decode launch, predicted; and the split count that would be least: a candidate, not the default.

``config.split_count`` takes powers of two. They fit two rounds of resident programs where sequences times KV heads is
a power of two as well, and leave a round mostly empty elsewhere. Here every count is compared by

    time = LAUNCH_US + FILL_US * min(1, N / slots) + PARTIAL_US_PER_MB * partial results, written and read
         + sum over rounds of the longer of (bytes of a program / alone) and (bytes of the round / together)

N programs with tokens in slots = units * resident; in every round but the last, all slots are full. ``longer`` is a
4-norm. Two speeds are the kernel's own: ``alone`` is bound by the issue of one program's instructions, ``together`` by
memory.

The constants are least squares (of relative errors) over the 90 rows that an H200 timed with counts of
``config.split_count`` in 8 and 16 bit (decode_small, decode_middle, decode_main, decode_large.json in
docs/evidence/h200). PARTIAL_US_PER_MB alone is from launches that differ in their splits only (sweep_int4.json: 16
splits instead of 4 write and read 12.7 MB more and take 9.5 and 10.1 us longer). What it predicts of these and of rows
that were not fitted: docs/kernels.md, "How many splits".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from adrbench.kernels.decode.config import MAX_SPLITS, Target, split_count
from adrbench.kernels.formats.layout import PageLayout
from adrbench.kernels.formats.served import scope_of

LAUNCH_US = 4.6
"""Both kernels of a captured graph, with one program in a unit."""

FILL_US = 3.7
"""What the first full round costs beside its bytes."""

PARTIAL_US_PER_MB = 0.75
NORM = 4

LEAST_TOKENS = 256
"""Of a split, as ``config.split_count``."""

MOST_ROUNDS = 5
"""More cost partial results; half a round that is empty is a tenth of five."""

GAIN = 0.02
"""The model's own error (root mean square) over the rows it was fitted to."""


@dataclass(frozen=True)
class Pace:
    """A partial kernel on an H200: ``resident`` programs a unit, and bytes per ns that one program reads which has its
    unit to itself (``alone``) and that all units read when full (``together``)."""

    resident: int
    alone: float
    together: float
    tile: int = 64


PACES = {
    (8, "token", 128): Pace(4, 22.3, 4120.0),
    (8, "token", 256): Pace(2, 35.5, 4210.0),
    (8, "static", 128): Pace(4, 26.8, 4170.0),
    (8, "static", 256): Pace(2, 41.5, 4210.0),
    (16, "none", 128): Pace(2, 60.7, 4560.0),
    (16, "none", 256): Pace(1, 59.8, 4660.0),
}
"""By bits, scope of scales and head dimension: kernels of which several loads were timed. ``resident`` is what Triton
3.6 compiles for sm_90; shared memory decides it. 4 bit is not here: each of its kernels was timed with one load."""


@dataclass(frozen=True)
class Launch:
    """``sequences``: padding included. ``group``: query heads of a KV head. ``token_bytes``: of one KV head: keys,
    values and scales. ``length``: tokens of every real sequence."""

    sequences: int
    kv_heads: int
    group: int
    head_dim: int
    token_bytes: float
    length: int


def cut(length: int, splits: int, tile: int) -> tuple[int, int]:
    """(tiles of the longest split, splits that have any), as the kernels cut a sequence."""
    tiles = -(-length // tile)
    longest = -(-tiles // splits)
    return longest, -(-tiles // max(1, longest))


def predicted_us(launch: Launch, real: int, splits: int, pace: Pace, units: int) -> float:
    """Microseconds of a launch of which ``real`` sequences have tokens, all of them ``launch.length``."""
    tiles, used = cut(launch.length, splits, pace.tile)
    return _time_us(launch, real * launch.kv_heads * used, tiles, splits, pace, units)


def _time_us(launch: Launch, programs: int, tiles: float, splits: int, pace: Pace, units: int) -> float:
    """``programs`` of ``tiles`` tiles each."""
    bytes_each = tiles * pace.tile * launch.token_bytes
    slots = units * pace.resident
    full, rest = divmod(programs, slots)

    def round_us(count: int) -> float:
        alone, together = bytes_each / pace.alone, bytes_each * count / pace.together
        return float((alone**NORM + together**NORM) ** (1 / NORM)) / 1e3

    rows = launch.sequences * launch.kv_heads * launch.group * splits
    partial_mb = 2 * rows * (launch.head_dim + 1) * 4 / 1e6
    rounds_us = full * round_us(slots) + (round_us(rest) if rest else 0.0)
    return LAUNCH_US + FILL_US * min(1.0, programs / slots) + PARTIAL_US_PER_MB * partial_mb + rounds_us


def reals(sequences: int) -> range:
    """How many of a launch's sequences may be real. A captured graph is padded with sequences of length 0, whose
    programs end at once; vLLM captures 1, 2, 4 and multiples of 8, so a graph of 16 serves 9 to 16 requests. Other
    numbers come without a graph, as they are."""
    captured = sequences == 4 or sequences % 8 == 0
    return range(max(sequences // 2, sequences - 8) + 1 if captured else sequences, sequences + 1)


@cache
def least_time_count(launch: Launch, pace: Pace, units: int, fewer: bool = False) -> int:
    """The split count with the least predicted time at ``launch.length``, the longest sequence expected.

    How many sequences are real is unknown, so a count's time is divided by the best for each of ``reals``, and the mean
    counts. Unless ``fewer``, never below what ``config.split_count`` takes: the model has equal lengths, and of unequal
    ones fewer programs end later. Splits keep ``LEAST_TOKENS``; an advantage below ``GAIN`` is none.
    """
    today = split_count(launch.sequences * launch.kv_heads, launch.length, units, pace.resident)
    rounds = MOST_ROUNDS * units * pace.resident // (reals(launch.sequences)[0] * launch.kv_heads)
    most = max(today, min(MAX_SPLITS, launch.length // LEAST_TOKENS, rounds))
    counts = range(1 if fewer else today, most + 1)
    ratios = dict.fromkeys(counts, 0.0)
    for real in reals(launch.sequences):
        times = {count: _expected_us(launch, real, count, pace, units) for count in counts}
        best = min(times.values())
        for count in counts:
            ratios[count] += times[count] / best
    chosen = min(counts, key=lambda count: ratios[count])
    return chosen if ratios[chosen] < ratios[today] * (1 - GAIN) else today


def _expected_us(launch: Launch, real: int, splits: int, pace: Pace, units: int) -> float:
    # A length ends anywhere in its tiles, so each split but one has half a tile more than its share.
    tiles = launch.length / pace.tile / splits + (1 - 1 / splits) / 2
    return _time_us(launch, real * launch.kv_heads * splits, tiles, splits, pace, units)


def launch_of(layout: PageLayout, heads: int, sequences: int, longest: int) -> tuple[Launch, Pace] | None:
    """What the model takes of a batch; None for a scheme whose kernel has no measured pace."""
    scheme, dim = layout.scheme, layout.head_dim
    if layout.windowed or (pace := PACES.get((scheme.key.values.bits, scope_of(scheme), dim))) is None:
        return None
    token_bytes = float(scheme.bytes_per_token(1, dim))
    return Launch(sequences, layout.kv_heads, heads // layout.kv_heads, dim, token_bytes, longest), pace


def candidate(
    layout: PageLayout, heads: int, sequences: int, longest: int, target: Target, fewer: bool = False
) -> int | None:
    """``least_time_count`` of a batch on an NVIDIA device, at an H200's speeds; None where nothing was measured."""
    found = launch_of(layout, heads, sequences, longest)
    return least_time_count(*found, target.units, fewer) if found and target.kind == "cuda" else None
