"""Processor time of a server's processes: what a phase costs on a CPU, whoever else keeps the host busy.

On a CPU platform the wall time of a step is its work and its waiting for a core. The processor time of the
process that does the work is the work alone, so phase shares by it hold on a busy host as well (but for
caches that others fill). On an accelerator the host's processor time says nothing about a phase.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from adrbench.device.neighbours import processes

Sample = Mapping[int, float]
Sampler = Callable[[], Sample]


def descendants(table: Mapping[int, tuple[str, int, int]], pid: int) -> set[int]:
    """``pid`` and all that it started, directly or not."""
    own, grown = {pid}, True
    while grown:
        found = {child for child, (_, parent, _) in table.items() if parent in own} - own
        own, grown = own | found, bool(found)
    return own


def sampler(pid: int, root: Path = Path("/")) -> Sampler:
    """Reads the processor seconds used so far by a process and by each of its descendants."""
    ticks_per_s = os.sysconf("SC_CLK_TCK")

    def sample() -> dict[int, float]:
        table = processes(root)
        return {one: table[one][2] / ticks_per_s for one in descendants(table, pid) if one in table}

    return sample


def busiest(first: Sample, middle: Sample, last: Sample) -> tuple[float, float] | None:
    """Processor seconds of the busiest process from first to middle and from middle to last; None if none ran."""
    spent = {pid: last[pid] - first[pid] for pid in last if pid in first and pid in middle}
    worker = max(spent, key=lambda pid: spent[pid], default=None)
    if worker is None or spent[worker] <= 0:
        return None
    return middle[worker] - first[worker], last[worker] - middle[worker]
