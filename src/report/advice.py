"""What to do next: the evidence that could still change the decision, the option that needs the least of it first.

An option that is out already, or that only counts once others have failed, asks for nothing. Why a comparison is open
follows from its own numbers: it was not measured, its interval decides but not after the correction for several
comparisons, more of the same would decide it, or its value lies too near the limit for that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from adrbench.config.decision import Decision, Strategy
from adrbench.decide.strategy import GROUPS
from adrbench.report import standing, strategy
from adrbench.report.accuracy import Why, why_open
from adrbench.report.context import Context, both
from adrbench.report.lookup import Cell, derive
from adrbench.report.view import OptionRow, Phrase, Shown, phrase

# Further options named after the one that needs the least.
MOST_OTHERS = 2


@dataclass(frozen=True)
class Open:
    """An option that could still change the decision, at its place in the decide stage's document."""

    number: int
    raw: dict[str, Any]

    @property
    def title(self) -> Shown:
        return both(self.raw["title"])

    def gates(self, accuracy: bool) -> list[tuple[int, dict[str, Any]]]:
        """(place, gate) of the undecided gates: those of Δ, or those that rounds decide."""
        return [
            (place, gate)
            for place, gate in enumerate(self.raw["gates"])
            if gate["verdict"] == "undecided"
            and (gate["metric"] == "accuracy_delta" if accuracy else gate["metric"].endswith("_ms"))
        ]


def _in_comparison(decision: Decision, options: list[dict[str, Any]]) -> list[int]:
    """Options that are not out; stretch options only once every ordinary one is."""
    stretch = {option.name for option in decision.options if option.stretch}
    found = [
        number
        for number, option in enumerate(options)
        if option["state"] == "measured"
        and not option["violations"]
        and option["objective"]["verdict"] not in ("baseline", "worse")
        and not any(gate["verdict"] == "failed" for gate in option["gates"])
    ]
    return [number for number in found if options[number]["name"] not in stretch] or found


def _in_strategy(schemes: list[dict[str, Any]], options: list[dict[str, Any]], memory_at_most: float) -> list[int]:
    """Schemes that hold the decision up: of the first group that has any, those smaller than what passes there."""
    for group in GROUPS:
        mine = [number for number, scheme in enumerate(schemes) if scheme["role"] == group]
        absent = [number for number in mine if not schemes[number]["arm"] and not schemes[number]["excluded_by"]]
        if group == "must" and mine and len(absent) == len(mine):
            return []
        ratios = [schemes[number]["memory_ratio"] for number in mine if schemes[number]["eligible"]]
        smallest = min(ratios, default=memory_at_most)
        waiting = [
            number
            for number in mine
            if schemes[number]["arm"]
            and not schemes[number]["excluded_by"]
            and not options[number]["violations"]
            and schemes[number]["gate"] != "failed"
            and not schemes[number]["eligible"]
            and not (schemes[number]["memory_ratio"] or 0.0) > smallest
            and not (ratios and schemes[number]["memory_ratio"] == smallest)
        ]
        if waiting:
            return waiting
    return []


def still_open(context: Context) -> list[Open]:
    """The options whose evidence could still change the decision, in the file's order."""
    options, decision = context.store.raw("decide", "options") or [], context.spec.decision
    numbers: list[int] = []
    if isinstance(decision, Decision):
        numbers = _in_comparison(decision, options)
    if isinstance(decision, Strategy):
        found = context.store.raw("decide", "strategy") or {"schemes": [], "memory_at_most": 1.0}
        numbers = _in_strategy(found["schemes"], options, found["memory_at_most"])
    return [Open(number, options[number]) for number in numbers]


def _fewest_pairs(context: Context, planned: list[tuple[Cell, Open]]) -> Phrase:
    """The option that the fewest further pairs decide, then the next ones."""
    (more, first), *others = sorted(planned, key=lambda item: item[0].amount)
    pairs = context.store.cell("decide", "accuracy", first.raw["arm"], "mean", "pairs", unit="count")
    times = derive(lambda further, present: math.ceil((present + further) / present), more, pairs, unit="count")
    values: dict[str, Any] = {"option": first.title, "more": more, "pairs": pairs, "times": times}
    if not others:
        return Phrase("next.more_pairs", values)
    rest = [phrase("next.option_pairs", option=other.title, more=cell) for cell, other in others[:MOST_OTHERS]]
    return Phrase("next.fewest_pairs", values | {"others": rest})


def _unmeasured(context: Context, found: list[tuple[dict[str, Any], Open]]) -> list[Shown]:
    """Why Δ is unknown: random weights, which nothing changes here, or what each option lacks."""
    platform = context.spec.platform
    if found and platform.random_weights:
        if platform.accuracy_platform is None:
            return [Phrase("next.random_weights")]
        shown = context.store.raw("decide", "elsewhere", "accuracy")
        key = "next.random_weights_shown" if shown else "next.random_weights_elsewhere"
        return [phrase(key, platform=platform.accuracy_platform)]
    groups: dict[str, tuple[Shown, list[Shown]]] = {}
    for gate, option in found:
        groups.setdefault(str(gate["needs"]), (both(gate["needs"]), []))[1].append(option.title)
    return [phrase("next.unmeasured", options=titles, needs=needs) for needs, titles in groups.values()]


def for_accuracy(context: Context, options: list[Open]) -> list[Shown]:
    """What would decide the undecided gates of Δ, one sentence for each reason."""
    planned: list[tuple[Cell, Open]] = []
    unmeasured: list[tuple[dict[str, Any], Open]] = []
    titles: dict[str, list[Shown]] = {"next.near_delta": [], "next.corrected_delta": []}
    for option in options:
        for place, gate in option.gates(accuracy=True):
            why = why_open(gate, "pairs_needed", gate["limit"])
            if why == "more":
                key = ("options", option.number, "gates", place, "pairs_needed")
                planned.append((context.store.cell("decide", *key, unit="count"), option))
            elif why == "unmeasured":
                unmeasured.append((gate, option))
            else:
                titles["next.corrected_delta" if why == "corrected" else "next.near_delta"].append(option.title)
    steps: list[Shown] = [_fewest_pairs(context, planned)] if planned else []
    steps += [phrase(key, options=named) for key, named in titles.items() if named]
    return steps + _unmeasured(context, unmeasured)


def _rounds(context: Context, option: Open) -> tuple[Cell | None, set[Why]]:
    """Rounds that would decide all of an option that rounds can, and why each of its comparisons is open."""
    keys: list[tuple[str | int, ...]] = []
    whys: set[Why] = set()
    for place, gate in option.gates(accuracy=False):
        whys.add(why_open(gate, "rounds_needed", gate["limit"]))
        keys.append(("options", option.number, "gates", place, "rounds_needed"))
    goal = option.raw["objective"]
    if goal["verdict"] == "undecided":
        whys.add(why_open({**goal, "low": goal["gain_low"], "high": goal["gain_high"]}, "rounds_needed"))
        keys.append(("options", option.number, "objective", "rounds_needed"))
    cells = [cell for key in keys if (cell := context.store.cell("decide", *key, unit="count"))]
    return max(cells, key=lambda cell: cell.amount, default=None), whys


def for_rounds(context: Context, options: list[Open]) -> list[Shown]:
    """Rounds for the option that needs the fewest; options that no number of rounds decides are told apart."""
    planned: list[tuple[Cell, Open]] = []
    near: list[Shown] = []
    others: list[Shown] = []
    for option in options:
        rounds, whys = _rounds(context, option)
        if "near" in whys:
            near.append(option.title)
        elif rounds is not None:
            planned.append((rounds, option))
        elif whys - {"unmeasured"} or (not whys and not option.gates(accuracy=True)):
            others.append(option.title)
    steps: list[Shown] = []
    if planned:
        fewest = min((cell for cell, _ in planned), key=lambda cell: cell.amount)
        named = [option.title for cell, option in planned if cell.amount == fewest.amount]
        steps.append(phrase("next.more_rounds", rounds=fewest, options=named))
    elif others:
        steps.append(phrase("next.some_rounds", options=others))
    return [*steps, phrase("next.near_rounds", options=near)] if near else steps


def _evidence(context: Context) -> list[Shown]:
    options = still_open(context)
    steps = for_accuracy(context, options)
    if isinstance(context.spec.decision, Decision):
        steps += for_rounds(context, options)
    return steps or [Phrase("next.see_missing")]


def _of_comparison(context: Context, options: list[OptionRow], word: str, winner: str) -> list[Shown]:
    if word == "Accepted":
        arm = next((option.arm for option in options if option.name == winner), None)
        return [phrase("next.keep" if arm == context.baseline else "next.lock", option=winner)]
    if word == "Blocked" or not any(option.arm for option in options):
        return [Phrase("next.other_platform")]
    return _evidence(context)


def next_steps(context: Context, options: list[OptionRow]) -> list[Shown]:
    """What to do now: the first thing that stands between this status and an accepted one."""
    word, winner = (str(context.store.raw("decide", "status", key)) for key in ("word", "option"))
    decision = context.spec.decision
    steps: list[Shown]
    if isinstance(decision, Strategy):
        steps = strategy.next_steps(context, winner) if word == "Accepted" else _evidence(context)
    elif isinstance(decision, Decision):
        steps = _of_comparison(context, options, word, winner)
    else:
        steps = [Phrase("next.facts_accepted" if word == "Accepted" else "next.see_missing")]
    return standing.with_platform(context, steps)
