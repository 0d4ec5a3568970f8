"""Block B's conclusions: what limits each phase, what would help by how much, and whether predictions held.

Everything is looked up in the profiles' and the ceiling's evidence. The one derivation is the prediction for
an arm in a tier: the bytes model of ``profile.prediction`` at the tier's batch and length, with the fraction of a
step that is memory traffic from the baseline's profile.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from adrbench.profile.bound import Interval, interval
from adrbench.profile.checks import LOADED
from adrbench.profile.model_shape import ModelConfigError
from adrbench.profile.prediction import agreement, predicted_ratio, shape_from_dict
from adrbench.profile.verdict import memory_ceiling, of_roof
from adrbench.report.context import Context
from adrbench.report.doubts import Doubts, doubts
from adrbench.report.lookup import MISSING, Cell, Source, derive
from adrbench.report.view import Phrase, Shown, phrase

LIMITS = ("compute", "bandwidth", "launch", "host")
PHASES = ("prefill", "decode")
# What the estimate of a lever rests on; a block size moves no bytes.
RESTS_ON = {
    "kv_8bit": ("bandwidth",),
    "weights_8bit": ("bandwidth",),
    "double_batch": ("bandwidth",),
    "compile_or_graphs": ("launch", "host"),
}
# A decode step of a tier has on average half of its output before it.
HALF = 2


@dataclass(frozen=True)
class BoundRow:
    """One phase of one profile: its verdict, the share of its time that each limit alone takes, and the rule."""

    profile: str
    phase: str
    verdict: Shown
    shares: list[Shown]
    seconds: Cell
    intensity: Cell
    rule: Shown


@dataclass(frozen=True)
class ClassRow:
    """One class of kernels in one phase: its share of the phase, how near its ceiling it runs, what could be gained."""

    profile: str
    phase: str
    name: Phrase
    share: Cell
    reached: Cell
    limit: Phrase
    left: Cell
    lever: Phrase


@dataclass(frozen=True)
class LeverRow:
    name: Phrase
    most: Cell
    saves: Shown
    why: Shown
    allowed: Shown


@dataclass(frozen=True)
class PredictionRow:
    """An arm in a tier (or in its own profile) against the baseline: change of decode time, predicted and measured."""

    arm: str
    where: Shown
    predicted: Cell
    measured: Cell
    verdict: Shown


@dataclass(frozen=True)
class CheckedRow:
    profile: str
    name: Phrase
    computed: Cell
    measured: Cell
    ratio: Cell
    limit: Cell
    verdict: Phrase


@dataclass(frozen=True)
class SizeRow:
    """Bandwidth over one working set."""

    size: Cell
    read: Cell
    write: Cell
    copy: Cell


@dataclass(frozen=True)
class CountedRow:
    """Memory traffic of one arm's decode by hardware counters, or why there is none."""

    arm: str
    text: Shown


@dataclass(frozen=True)
class Bottleneck:
    bounds: list[BoundRow] = field(default_factory=list)
    classes: list[ClassRow] = field(default_factory=list)
    levers: list[LeverRow] = field(default_factory=list)
    predictions: list[PredictionRow] = field(default_factory=list)
    checks: list[CheckedRow] = field(default_factory=list)
    sizes: list[SizeRow] = field(default_factory=list)
    counted: list[CountedRow] = field(default_factory=list)
    window_shares: list[Cell] = field(default_factory=list)
    cpu_shares: list[Cell] = field(default_factory=list)
    step_overhead: Cell = MISSING
    figures: dict[str, Path] = field(default_factory=dict)
    above: list[Phrase] = field(default_factory=list)


def profiles(context: Context) -> list[str]:
    """Names of the profiles that there are: an arm, or ``arm/tier``."""
    return [name.partition("/")[2] for name in context.store.names("profile/")]


def _rule(context: Context, document: str, phase: str, row: dict[str, Any]) -> Shown:
    """The rule that gave a phase's verdict, with the limits it rests on."""
    rule = row.get("decided_by")
    if rule is None:
        return Phrase("unverified")
    threshold = context.store.cell(document, "measured", "bounds", phase, "threshold", unit="fraction")
    limits = [Phrase(f"bound.{name}") for name in row["leading"]]
    said = phrase(f"bound.rule.{rule}", limits=limits, threshold=threshold)
    judged_by = row.get("overheads_by")
    if not judged_by:
        return said
    return phrase("bound.judged", rule=said, judged_by=Phrase(f"bound.by.{judged_by.replace(' ', '_')}"))


def bound_rows(context: Context) -> list[BoundRow]:
    """Every phase of every profile; what rests on a doubtful ceiling says so."""
    store, doubtful, rows = context.store, doubts(context), []
    for name in profiles(context):
        document = f"profile/{name}"
        bounds = store.raw(document, "measured", "bounds") or {}
        for phase in (p for p in PHASES if p in bounds):
            key = ("measured", "bounds", phase)
            rows.append(
                BoundRow(
                    profile=name.replace("/", ", "),
                    phase=phase,
                    verdict=doubtful.verdict(
                        Phrase(f"bound.{bounds[phase]['bound']}"), *(bounds[phase].get("leading") or ())
                    ),
                    shares=[
                        doubtful.share(store.cell(document, *key, "shares", limit, unit="fraction")) for limit in LIMITS
                    ],
                    seconds=store.cell(document, *key, "seconds", unit="s"),
                    intensity=store.cell(document, *key, "flops_per_byte"),
                    rule=_rule(context, document, phase, bounds[phase]),
                )
            )
    return rows


def class_rows(context: Context) -> list[ClassRow]:
    """Where the device's time goes in every phase of every profile that has a device's trace."""
    store, rows = context.store, []
    for name in profiles(context):
        document = f"profile/{name}"
        bounds = store.raw(document, "measured", "bounds") or {}
        for phase in (p for p in PHASES if p in bounds):
            for index, row in enumerate(bounds[phase].get("classes", [])):
                key = ("measured", "bounds", phase, "classes", index)
                share, reached, left = (
                    store.cell(document, *key, part, unit="fraction") for part in ("share", "reached", "left")
                )
                rows.append(
                    ClassRow(
                        profile=name.replace("/", ", "),
                        phase=phase,
                        name=Phrase(f"class.{row['class']}"),
                        share=share,
                        reached=reached,
                        limit=Phrase(f"class.of.{row['limit'] or 'unknown'}"),
                        left=left,
                        lever=Phrase(f"class.lever.{row['lever']}"),
                    )
                )
    return rows


def _why(lever: dict[str, Any], waste: Cell) -> Shown:
    """Why a lever would save something."""
    if lever["lever"] == "block_size":
        return phrase("lever.why.block_size", waste=waste)
    return Phrase(f"lever.why.{lever['lever']}" + ("_replay" if lever.get("graphs") else ""))


def lever_rows(context: Context, profile: str) -> list[LeverRow]:
    """What could speed decode up, from one profile, what forbids it named."""
    store, document, doubtful, rows = context.store, f"profile/{profile}", doubts(context), []
    for index, lever in enumerate(store.raw(document, "measured", "levers") or []):
        key, name = ("measured", "levers", index), lever["lever"]
        waste = store.cell(document, *key, "pool_waste", unit="fraction")
        rule = lever.get("forbidden_by")
        rows.append(
            LeverRow(
                name=Phrase(f"lever.{name}"),
                most=store.cell(document, *key, "saves_at_most", unit="fraction"),
                saves=doubtful.estimate(store.cell(document, *key, "saves", unit="fraction"), *RESTS_ON.get(name, ())),
                why=_why(lever, waste),
                allowed=phrase("lever.forbidden", rule=rule) if rule else Phrase("lever.allowed"),
            )
        )
    return rows


def _traffic(context: Context, tier: str) -> tuple[str, Interval | None]:
    """The baseline's profile that suits a tier, and the fraction of its decode step that is memory traffic."""
    names = [f"{context.baseline}/{tier}", context.baseline]
    document = next((f"profile/{name}" for name in names if context.store.has(f"profile/{name}")), "")
    used = context.store.raw(document, "measured", "decode", "utilisation")
    return document, interval(used["low"], used["median"], used["high"]) if used else None


def _predicted(context: Context, arm: str, tier: str) -> Cell:
    """Predicted change of an arm's decode step in one tier, as a fraction of the baseline's step."""
    store, (document, traffic) = context.store, _traffic(context, tier)
    model = store.raw(document, "measured", "model")
    declared = next(t for t in context.spec.platform.tiers if t.name == tier)
    prompt = context.over_rounds(context.baseline, tier, "measured", "input_tokens", "median", unit="tokens")
    dtypes = [context.resolved(name, "kv_cache_dtype") for name in (context.baseline, arm)]
    if model is None or traffic is None or not prompt or not all(dtypes):
        return MISSING
    length = prompt.amount + declared.output_tokens / HALF
    try:
        ratio = predicted_ratio(
            shape_from_dict(model), str(dtypes[0].value), str(dtypes[1].value), declared.concurrency, length, traffic
        )
    except (ModelConfigError, TypeError):
        return MISSING
    used = [Source(document, f"measured.decode.utilisation.{end}") for end in ("median", "low")]
    return Cell(ratio["median"] - 1, "gain", ratio["low"] - 1, ratio["high"] - 1, (*used, *prompt.sources))


def _change(arm: Cell, base: Cell) -> Cell:
    """Change of a time from the baseline to an arm, the ranges over rounds at their worst; missing if either is."""
    if not arm or not base or not base.amount:
        return MISSING

    def end(cell: Cell, side: str) -> float:
        value = getattr(cell, side)
        return cell.amount if value is None else float(value)

    low, high = end(arm, "low") / end(base, "high") - 1, end(arm, "high") / end(base, "low") - 1
    sources = tuple(dict.fromkeys((*arm.sources, *base.sources)))
    return Cell(arm.amount / base.amount - 1, "gain", low, high, sources)


def _agrees(predicted: Cell, measured: Cell, repeated: bool, doubtful: Doubts) -> Shown:
    """``repeated``: both sides were started more than once, so that their ranges hold the noise between starts."""
    if not predicted or not measured:
        return Phrase("unverified")
    if not repeated or measured.low == measured.high:
        return Phrase("prediction.no_range")
    ends = [
        interval(*(cell.amount if end is None else end for end in (cell.low, cell.amount, cell.high)))
        for cell in (predicted, measured)
    ]
    return doubtful.verdict(Phrase(f"prediction.{agreement(*ends)}"), "bandwidth")


def prediction_rows(context: Context) -> list[PredictionRow]:
    """Served arms with another KV format than the baseline's, in each tier: time per output token."""
    rows, doubtful = [], doubts(context)
    base_dtype = context.resolved(context.baseline, "kv_cache_dtype")
    for arm in context.served_arms():
        dtype = context.resolved(arm, "kv_cache_dtype")
        if arm == context.baseline or not dtype or dtype.value == base_dtype.value:
            continue
        for tier in context.tiers:
            base, mine = (
                context.over_rounds(name, tier, "measured", "tpot_ms", "p50", unit="ms")
                for name in (context.baseline, arm)
            )
            predicted, measured = _predicted(context, arm, tier), _change(mine, base)
            repeated = mine.low is not None and base.low is not None
            verdict = _agrees(predicted, measured, repeated, doubtful)
            rows.append(PredictionRow(arm, phrase("prediction.tier", tier=tier), predicted, measured, verdict))
    return rows


def check_rows(context: Context) -> list[CheckedRow]:
    """The bytes model and the trace against what was measured otherwise, for every profile."""
    store, rows = context.store, []
    for name in profiles(context):
        document = f"profile/{name}"
        for index, row in enumerate(store.raw(document, "measured", "checks") or []):
            key = ("measured", "checks", index)
            computed, measured = (
                store.cell(document, *key, side, unit=row["unit"]) for side in ("computed", "measured")
            )
            loaded = "_loaded" if row.get("against") == LOADED else ""
            rows.append(
                CheckedRow(
                    profile=name.replace("/", ", "),
                    name=Phrase(f"checked.{row['check']}{loaded}"),
                    computed=computed,
                    measured=measured,
                    ratio=store.cell(document, *key, "ratio"),
                    limit=store.cell(document, *key, "limit", unit="fraction"),
                    verdict=Phrase(f"checked.verdict.{row['verdict']}"),
                )
            )
    return rows


def size_rows(context: Context) -> list[SizeRow]:
    """Bandwidth over working sets."""
    store, rows = context.store, []
    for index in range(len(store.raw("ceiling", "measured", "by_size") or [])):
        key = ("measured", "by_size", index)
        read, write, copy = (
            store.cell("ceiling", *key, kind, unit="bytes_per_s") for kind in ("read", "write", "copy")
        )
        rows.append(SizeRow(store.cell("ceiling", *key, "bytes", unit="bytes"), read, write, copy))
    return rows


def counted_rows(context: Context) -> list[CountedRow]:
    """Hardware counters of each arm that was to be counted."""
    store, rows = context.store, []
    for document in store.names("counters/"):
        absent = store.cell(document, "measured", "absent")
        if absent:
            text = phrase("counted.absent", reason=absent)
        else:
            read, written, model = (
                store.cell(document, "measured", key, unit="bytes")
                for key in ("read_bytes_per_step", "written_bytes_per_step", "model_bytes_per_step")
            )
            ratio = store.cell(document, "measured", "counted_over_model", unit="ratio")
            text = phrase("counted.bytes", read=read, written=written, model=model, ratio=ratio)
        rows.append(CountedRow(document.partition("/")[2], text))
    return rows


def above_roof(context: Context) -> list[Phrase]:
    """Phases that the roofline figure draws above the roof, each with the share of it that it would reach."""
    store, ceiling, found = context.store, context.store.raw("ceiling", "measured"), []
    if not ceiling:
        return []
    memory = store.cell("ceiling", "measured", f"{memory_ceiling(ceiling)['kind']}_bytes_per_s", "median")
    for profile in profiles(context):
        for phase, row in (store.raw(f"profile/{profile}", "measured", "bounds") or {}).items():
            key = (f"profile/{profile}", "measured", "bounds", phase)
            numbers = [store.cell(*key, "flops"), store.cell(*key, "seconds", "median")]
            numbers.append(store.cell(*key, "flops_per_byte"))
            rate = store.cell("ceiling", "measured", "matmul_flop_per_s", row.get("matrix_dtype", ""), "median")
            share = derive(of_roof, *numbers, rate, memory, unit="fraction")
            if share and share.amount > 1:
                found.append(phrase("b.above_phase", profile=profile, phase=Phrase(f"phase.{phase}"), share=share))
    return found


def bottleneck(context: Context, profile: str) -> Bottleneck:
    """All of block B's conclusions; ``profile`` is the one whose levers are listed."""
    store, document = context.store, f"profile/{profile}"

    def shares(section: str) -> list[Cell]:
        known = store.raw(document, "measured", section) or {}
        return [store.cell(document, "measured", section, phase, unit="fraction") for phase in PHASES if phase in known]

    return Bottleneck(
        bounds=bound_rows(context),
        classes=class_rows(context),
        levers=lever_rows(context, profile),
        predictions=prediction_rows(context),
        checks=check_rows(context),
        sizes=size_rows(context),
        counted=counted_rows(context),
        window_shares=shares("window_shares"),
        cpu_shares=shares("cpu_time_shares"),
        step_overhead=store.cell(document, "measured", "overhead", "decode_step_ratio", unit="ratio"),
        figures=dict(context.spec.figures),
        above=above_roof(context),
    )
