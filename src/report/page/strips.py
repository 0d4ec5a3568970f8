"""Gates as coloured intervals: one horizontal strip a gate, option and tier, on a scale that a gate's strips share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from adrbench.report.lookup import Cell
from adrbench.report.view import GateRow, Shown
from markupsafe import Markup

HEIGHT = 26
MIDDLE = HEIGHT / 2
# Where no difference lies, by unit: drawn as a thin line.
NEUTRAL = {"ratio": 1.0, "points": 0.0}
ARROWS = {"left": ("0%", "M7,-5 L0,0 L7,5"), "right": ("100%", "M-7,-5 L0,0 L-7,5")}


@dataclass(frozen=True)
class Scale:
    low: float
    high: float

    def __call__(self, value: float) -> str:
        """A value as percent of the strip's width."""
        share = (value - self.low) / (self.high - self.low)
        return f"{100 * min(1.0, max(0.0, share)):.2f}%"


@dataclass(frozen=True)
class Strip:
    row: GateRow
    svg: Markup


@dataclass(frozen=True)
class Block:
    """All strips of one gate."""

    gate: str
    title: Shown
    limit: Cell
    limit_at: str
    unit: str
    strips: list[Strip]


def scale_of(rows: Sequence[GateRow]) -> Scale:
    """A scale that holds every value, every end and the limit, with room."""
    known = [row.limit.amount for row in rows]
    for row in rows:
        if row.value:
            known += [v for v in (row.value.amount, row.value.low, row.value.high) if v is not None]
    neutral = NEUTRAL.get(rows[0].limit.unit)
    if neutral is not None:
        known.append(neutral)
    room = 0.09 * ((max(known) - min(known)) or abs(max(known)) or 1.0)
    return Scale(min(known) - room, max(known) + room)


def _line(kind: str, start: str, end: str | None = None) -> Markup:
    if end is None:
        return Markup('<line class="{}" x1="{}" x2="{}" y1="3" y2="{}"/>').format(kind, start, start, HEIGHT - 3)
    return Markup('<line class="{}" x1="{}" x2="{}" y1="{}" y2="{}"/>').format(kind, start, end, MIDDLE, MIDDLE)


def _arrow(side: str) -> Markup:
    """The mark of an open end."""
    x, path = ARROWS[side]
    return Markup('<svg x="{}" y="{}" overflow="visible"><path class="arrow" d="{}"/></svg>').format(x, MIDDLE, path)


def strip(row: GateRow, scale: Scale) -> Markup:
    """Limit, interval and value of one gate; an open end runs to the edge and ends in an arrow."""
    parts = []
    neutral = NEUTRAL.get(row.limit.unit)
    if neutral is not None:
        parts.append(_line("neutral", scale(neutral)))
    if row.value:
        low, high = row.value.low, row.value.high
        parts.append(_line("interval", "0%" if low is None else scale(low), "100%" if high is None else scale(high)))
        parts += [_arrow("left")] if low is None else []
        parts += [_arrow("right")] if high is None else []
        parts.append(Markup('<circle cx="{}" cy="{}" r="4.5"/>').format(scale(row.value.amount), MIDDLE))
    parts.append(_line("limit", scale(row.limit.amount)))
    # The value, its interval and the verdict stand beside the strip as text.
    head = Markup('<svg class="strip {}" width="100%" height="{}" aria-hidden="true" focusable="false">')
    return head.format(row.verdict, HEIGHT) + Markup("").join(parts) + Markup("</svg>")


def blocks(rows: Sequence[GateRow]) -> list[Block]:
    """Gates in the order of the decision file."""
    found = []
    for gate in dict.fromkeys(row.gate for row in rows):
        own = [row for row in rows if row.gate == gate]
        scale, first = scale_of(own), own[0]
        strips = [Strip(row, strip(row, scale)) for row in own]
        found.append(Block(gate, first.title, first.limit, scale(first.limit.amount), first.limit.unit, strips))
    return found
