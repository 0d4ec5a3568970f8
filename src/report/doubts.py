"""Ceilings that the measurements themselves contradict, and the verdicts that rest on them.

A phase cannot take more than all of its time: one that needs more than that at a measured ceiling shows that the
ceiling was not reached. And memory does not become faster with a larger working set once the cache is passed: sizes
that differ so were measured beside other work. Either way the ceiling is to be measured again on a quiet host, and a
verdict that rests on it is not reliable.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

from adrbench.report.context import Context
from adrbench.report.lookup import Cell
from adrbench.report.view import Phrase, Shown, phrase

PHASES = ("prefill", "decode")
KINDS = ("read", "write", "copy")
# A share above 1 is noise up to here: as much as models and counters may differ before they are flagged.
TOLERANCE = 0.10
# Bandwidths of memory that differ by more than this are not of one quiet device: quiet ones differ by some per cent.
UNEVEN = 1.5
# Working sets from so many times the last-level cache on pass it; of those from ``FAR_BEYOND`` on it holds so little
# that even a smaller one is no faster for it.
BEYOND_CACHE, FAR_BEYOND = 2, 4


def exceeds(share: Cell) -> bool:
    """Whether a share of a phase's time is more than all of it, beyond its interval or the permitted disagreement."""
    if not share:
        return False
    return share.amount > 1 + TOLERANCE or (share.low is not None and share.low > 1)


def _slowest_and_fastest(context: Context, kind: str) -> tuple[tuple[Cell, Cell], tuple[Cell, Cell]] | None:
    """(working set, bandwidth) of the slowest and the fastest memory that contradict each other; None if none do."""
    store, cache = context.store, context.store.raw("ceiling", "measured", "last_level_cache_bytes")
    rows = []
    for index, row in enumerate(store.raw("ceiling", "measured", "by_size") or []):
        key = ("measured", "by_size", index)
        speed = store.cell("ceiling", *key, kind, unit="bytes_per_s")
        if cache and speed and row["bytes"] >= BEYOND_CACHE * cache:
            rows.append((store.cell("ceiling", *key, "bytes", unit="bytes"), speed))
    # A smaller set may still profit from the cache; that it is slower than a larger one has no such reason.
    found = [
        (slow, fast)
        for slow in rows
        for fast in rows
        if fast[1].amount > UNEVEN * slow[1].amount
        and (fast[0].amount > slow[0].amount or fast[0].amount >= FAR_BEYOND * cache)
    ]
    return max(found, key=lambda pair: pair[1][1].amount / pair[0][1].amount, default=None)


@dataclass(frozen=True)
class Doubts:
    """Why ceilings are not to be trusted: by limit (``compute``, ``bandwidth``, ...), and by kind of memory access.

    ``formats``: matrix formats whose rate a phase exceeds; ``phases``: those whose verdict is not reliable;
    ``rests_on``: kinds of memory access that a profile's bandwidth is held against.
    """

    limits: dict[str, list[Shown]]
    uneven: dict[str, Shown]
    formats: frozenset[str]
    phases: list[str]
    rests_on: frozenset[str] = frozenset({"read"})

    def __bool__(self) -> bool:
        return bool(self.limits or self.uneven)

    def of(self, *limits: str) -> bool:
        """Whether a verdict that rests on these limits is not reliable."""
        return any(limit in self.limits for limit in limits)

    def verdict(self, found: Shown, *limits: str) -> Shown:
        """A verdict as found, or that it is not reliable, for the limits that it rests on."""
        return phrase("doubt.verdict", verdict=found) if self.of(*limits) else found

    def estimate(self, value: Cell, *limits: str) -> Shown:
        """An estimate, flagged where a limit that it rests on is doubtful."""
        return phrase("doubt.estimate", value=value) if self.of(*limits) else value

    def share(self, cell: Cell) -> Shown:
        """A share of a phase's time, flagged where it is more than all of it."""
        return phrase("doubt.share", share=cell) if exceeds(cell) else cell

    @property
    def of_verdicts(self) -> Shown:
        """What contradicts each limit, in one sentence."""
        reasons = [reason for found in self.limits.values() for reason in found]
        return reduce(lambda first, second: phrase("doubt.and", first=first, second=second), reasons)

    @property
    def reasons(self) -> list[Shown]:
        """Every reason once: what contradicts each limit, and uneven bandwidths that no verdict rests on."""
        return [
            *(r for found in self.limits.values() for r in found),
            *(reason for kind, reason in self.uneven.items() if kind not in self.rests_on),
        ]


def doubts(context: Context) -> Doubts:
    """Doubts about the platform's ceilings, from their own table and from every profile."""
    limits: dict[str, list[Shown]] = {}
    formats: set[str] = set()
    for document in context.store.names("profile/"):
        name = document.partition("/")[2]
        for phase, bound in (context.store.raw(document, "measured", "bounds") or {}).items():
            for limit in bound["shares"]:
                share = context.store.cell(document, "measured", "bounds", phase, "shares", limit, unit="fraction")
                if exceeds(share):
                    told = phrase(
                        "doubt.exceeded",
                        profile=name.replace("/", ", "),
                        phase=Phrase(f"phase.{phase}"),
                        limit=Phrase(f"bound.{limit}"),
                        share=share,
                    )
                    limits.setdefault(limit, []).append(told)
                    formats |= {bound.get("matrix_dtype", "")} if limit == "compute" else set()
    uneven: dict[str, Shown] = {}
    for kind in KINDS:
        pair = _slowest_and_fastest(context, kind)
        if pair:
            (size, slow), (other, fast) = pair
            values = {"slow": slow, "size": size, "fast": fast, "other": other}
            uneven[kind] = Phrase("doubt.uneven", {"kind": Phrase(f"ceiling.{kind}"), **values})
    rests_on = _memory_kinds(context)
    for kind in (k for k in KINDS if k in uneven and k in rests_on):
        limits.setdefault("bandwidth", []).append(uneven[kind])
    return Doubts(limits, uneven, frozenset(formats), _phases(context, set(limits)), rests_on)


def _memory_kinds(context: Context) -> frozenset[str]:
    """Kinds of access that made the memory ceilings of the profiles: reads, where a profile does not say."""
    ceilings = [
        context.store.raw(name, "measured", "decode", "ceiling_bytes_per_s") or {}
        for name in context.store.names("profile/")
    ]
    return frozenset(ceiling.get("kind", "read") for ceiling in ceilings) or frozenset({"read"})


def _phases(context: Context, limits: set[str]) -> list[str]:
    """Phases whose verdict rests on one of these limits, in any profile."""
    bounds = [context.store.raw(name, "measured", "bounds") or {} for name in context.store.names("profile/")]
    doubtful = {phase for found in bounds for phase, bound in found.items() if limits & set(bound.get("leading") or ())}
    return [phase for phase in PHASES if phase in doubtful]
