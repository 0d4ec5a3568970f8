"""Vega-Lite charts over named rows, in one language. Pure: rows in, a specification without data out.

Colours of arms come from the configuration's category range, so that one specification serves light and
dark; the domain is always all arms, so that an arm keeps its colour when others are filtered away.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import altair as alt
from adrbench.report.figures.names import texts
from adrbench.report.figures.rows import Row

WIDTH = 620
ROW = 22  # pixels of one row of a list-like chart
# Bytes with a binary prefix, as a Vega expression.
BINARY = (
    "datum.value >= 1073741824 ? format(datum.value / 1073741824, '.3~g') + ' GiB' : datum.value >= 1048576 ? "
    "format(datum.value / 1048576, '.3~g') + ' MiB' : format(datum.value / 1024, '.3~g') + ' KiB'"
)
VERDICTS = {"passed": "#2a9158", "undecided": "#b97a0a", "failed": "#d64533"}
FONT = "system-ui, -apple-system, 'Segoe UI', 'Noto Sans CJK SC', 'WenQuanYi Micro Hei', sans-serif"
CATEGORY = {
    "light": [
        "#5b6770",
        "#0b7285",
        "#c2541f",
        "#6d4fa3",
        "#2f7d32",
        "#b0306a",
        "#8a6d00",
        "#3b5bdb",
        "#a3492f",
        "#557a95",
    ],
    "dark": [
        "#aab4bd",
        "#4cc3d9",
        "#f0935d",
        "#b79cf0",
        "#7bc47f",
        "#f08db8",
        "#d9b93b",
        "#8ea8ff",
        "#e0a08c",
        "#9dbdd6",
    ],
}
INK = {"light": ("#24272b", "#5d6066", "#dedbd3"), "dark": ("#e8e6e1", "#a7a9ad", "#34383e")}


def config(mode: str) -> dict[str, Any]:
    """Vega-Lite configuration of a colour scheme."""
    ink, muted, line = INK[mode]
    axis = {"labelColor": muted, "titleColor": ink, "gridColor": line, "domainColor": line, "tickColor": line}
    return {
        "font": FONT,
        "background": "#ffffff" if mode == "light" else "transparent",
        "view": {"stroke": None},
        "axis": axis
        | {"tickCount": 6, "labelFontSize": 11, "titleFontSize": 12, "titleFontWeight": "normal", "labelLimit": 260},
        "legend": {
            "symbolOpacity": 1,
            "symbolBaseFillColor": ink,
            "symbolBaseStrokeColor": ink,
            "labelColor": ink,
            "titleColor": muted,
            "labelFontSize": 11,
            "titleFontSize": 11,
            "titleFontWeight": "normal",
            "orient": "top",
            "columns": 4,
        },
        "title": {"color": ink, "fontSize": 12, "fontWeight": 600, "anchor": "start"},
        "range": {"category": CATEGORY[mode]},
        "rule": {"color": muted},
        "text": {"color": muted},
    }


class Words:
    """Texts of one language."""

    def __init__(self, language: str):
        self.language = language

    def __call__(self, key: str) -> str:
        return texts()[key][self.language]

    def tip(self, field: str, word: str, form: str | None = None) -> alt.Tooltip:
        title = self(word)
        return alt.Tooltip(field, title=title, format=form) if form else alt.Tooltip(field, title=title)


def _base() -> alt.Chart:
    return alt.Chart(alt.NamedData(name="rows"))


def _arms(rows: Sequence[Row], t: Words) -> alt.Color:
    arms = list(dict.fromkeys(row["arm"] for row in rows if row["arm"]))
    return alt.Color("arm:N", scale=alt.Scale(domain=arms), title=t("word.arm"))


def _tiers(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row["tier"] for row in rows))


def pareto(rows: Sequence[Row], t: Words) -> Any:
    tips = [t.tip("arm:N", "word.arm"), t.tip("tier:N", "word.tier"), t.tip("delta:Q", "axis.delta", ".2f"),
            t.tip("delta_low:Q", "word.low", ".2f"), t.tip("delta_high:Q", "word.high", ".2f"),
            t.tip("output_tokens_per_s:Q", "axis.throughput", ".4~s")]  # fmt: skip
    x = alt.X("delta:Q", title=t("axis.delta"), scale=alt.Scale(zero=True, nice=True))
    y = alt.Y("output_tokens_per_s:Q", title=t("axis.throughput"), scale=alt.Scale(zero=False, nice=True))
    base, colour = _base(), _arms(rows, t)
    shape = alt.Shape("tier:N", scale=alt.Scale(domain=_tiers(rows)), title=t("word.tier"))
    line = base.mark_line(strokeWidth=1, opacity=0.45, color="#8a8d91").encode(x, y, detail="tier:N")
    across = base.mark_rule(opacity=0.55).encode(alt.X("delta_low:Q"), y, x2="delta_high:Q", color=colour)
    up = base.mark_rule(opacity=0.55).encode(x, alt.Y("rate_low:Q"), y2="rate_high:Q", color=colour)
    points = base.mark_point(filled=True, size=90, opacity=1).encode(x, y, color=colour, shape=shape, tooltip=tips)
    return (line + across + up + points).properties(width="container", height=320)


def _forest(gate: str, rows: Sequence[Row], t: Words) -> Any:
    own = [row for row in rows if row["gate"] == gate]
    base = _base().transform_filter(alt.FieldEqualPredicate(field="gate", equal=gate))
    tips = [
        t.tip("label:N", "word.option"),
        *(t.tip(f"{key}:Q", f"word.{key}", ".3~f") for key in ("value", "low", "high", "limit")),
        t.tip("verdict:N", "word.verdict"),
    ]
    y = alt.Y("label:N", title=None, sort=None, axis=alt.Axis(ticks=False, domain=False))
    colour = alt.Color(
        "verdict:N", scale=alt.Scale(domain=list(VERDICTS), range=list(VERDICTS.values())), title=t("word.verdict")
    )
    scale = alt.Scale(zero=False, nice=False, padding=8)
    interval = base.mark_rule(strokeWidth=5, opacity=0.5, strokeCap="round").encode(
        alt.X("shown_low:Q", title=None, scale=scale), y, x2="shown_high:Q", color=colour, tooltip=tips
    )
    # As a condition, not as a filter: an empty layer has no extent and Vega warns of it.
    left = base.mark_text(fontSize=11).encode(
        alt.X("shown_low:Q"), y, color=colour, text=alt.condition("datum.low === null", alt.value("◀"), alt.value(""))
    )
    right = base.mark_text(fontSize=11).encode(
        alt.X("shown_high:Q"), y, color=colour, text=alt.condition("datum.high === null", alt.value("▶"), alt.value(""))
    )
    value = base.mark_point(filled=True, size=70, opacity=1).encode(alt.X("value:Q"), y, color=colour, tooltip=tips)
    limit = base.mark_rule(strokeDash=[4, 3]).encode(alt.X("min(limit):Q"))
    height = max(2, len({row["label"] for row in own})) * ROW
    return (interval + left + right + value + limit).properties(title=gate, width=WIDTH, height=height)


def gates(rows: Sequence[Row], t: Words) -> Any:
    names = list(dict.fromkeys(row["gate"] for row in rows))
    return alt.vconcat(*(_forest(name, rows, t) for name in names), spacing=18)


def _latency(rows: Sequence[Row], t: Words) -> Any:
    tips = [t.tip("arm:N", "word.arm"), t.tip("tier:N", "word.tier"), t.tip("round:Q", "word.round"),
            t.tip("request:Q", "word.request"), t.tip("ms:Q", "axis.ms", ".4~f")]  # fmt: skip
    arms = list(dict.fromkeys(row["arm"] for row in rows))
    y = alt.Y("tier:N", title=None, sort=_tiers(rows), scale=alt.Scale(paddingInner=0.35))
    offset = alt.YOffset("arm:N", sort=arms)
    colour = _arms(rows, t)
    x = alt.X("ms:Q", title=t("axis.ms"), scale=alt.Scale(zero=True, nice=True))
    ticks = _base().mark_tick(thickness=1.5, opacity=0.5, bandSize=11).encode(x, y, offset, color=colour, tooltip=tips)
    middle = _base().mark_tick(thickness=4, bandSize=16).encode(alt.X("median(ms):Q"), y, offset, color=colour)
    height = max(3, len(_tiers(rows)) * len(arms)) * ROW
    return (ticks + middle).properties(width="container", height=height)


def rounds(rows: Sequence[Row], t: Words) -> Any:
    tips = [t.tip("arm:N", "word.arm"), t.tip("tier:N", "word.tier"), t.tip("round:Q", "word.round"),
            t.tip("started_at:N", "axis.start"), t.tip("output_tokens_per_s:Q", "axis.throughput", ".4~s")]  # fmt: skip
    x = alt.X("minutes:Q", title=t("axis.start"), scale=alt.Scale(nice=True, padding=10))
    y = alt.Y("output_tokens_per_s:Q", title=t("axis.throughput"), scale=alt.Scale(zero=False, nice=True))
    dash = alt.StrokeDash("tier:N", scale=alt.Scale(domain=_tiers(rows)), title=t("word.tier"), legend=None)
    shape = alt.Shape("tier:N", scale=alt.Scale(domain=_tiers(rows)), title=t("word.tier"))
    colour = _arms(rows, t)
    line = _base().mark_line(strokeWidth=1.5, opacity=0.7).encode(x, y, color=colour, strokeDash=dash)
    points = _base().mark_point(filled=True, size=80, opacity=1).encode(x, y, color=colour, shape=shape, tooltip=tips)
    return (line + points).properties(width="container", height=300)


def kv_memory(rows: Sequence[Row], t: Words) -> Any:
    tips = [t.tip("arm:N", "word.arm"), t.tip("scheme:N", "word.scheme"), t.tip("memory_ratio:Q", "axis.memory", ".3f"),
            t.tip("kv_pool_tokens:Q", "word.pool", ",.0f"), t.tip("delta:Q", "axis.delta", ".2f"),
            t.tip("delta_low:Q", "word.low", ".2f"), t.tip("delta_high:Q", "word.high", ".2f")]  # fmt: skip
    x = alt.X("memory_ratio:Q", title=t("axis.memory"), scale=alt.Scale(domainMin=0, nice=True, padding=12))
    y = alt.Y("delta:Q", title=t("axis.delta"), scale=alt.Scale(zero=True, nice=True))
    colour = _arms(rows, t)
    zero = alt.Chart(alt.InlineData(values=[{"delta": 0}])).mark_rule(strokeDash=[4, 3]).encode(alt.Y("delta:Q"))
    interval = (
        _base().mark_rule(strokeWidth=2, opacity=0.6).encode(x, alt.Y("delta_low:Q"), y2="delta_high:Q", color=colour)
    )
    points = _base().mark_point(filled=True, size=100, opacity=1).encode(x, y, color=colour, tooltip=tips)
    return (zero + interval + points).properties(width="container", height=300)


def roofline(rows: Sequence[Row], t: Words) -> Any:
    log = alt.Scale(type="log", nice=False)
    x = alt.X("flop_per_byte:Q", title=t("axis.intensity"), scale=log, axis=alt.Axis(grid=False, tickCount=5))
    y = alt.Y("flop_per_s:Q", title=t("axis.rate"), scale=alt.Scale(type="log"), axis=alt.Axis(format="~s", grid=False))
    tips = [t.tip("arm:N", "word.arm"), t.tip("phase:N", "word.phase"),
            t.tip("flop_per_byte:Q", "axis.intensity", ".3~s"), t.tip("flop_per_s:Q", "axis.rate", ".3~s"),
            t.tip("of_roof:Q", "word.of_roof", ".0%")]  # fmt: skip
    base, phases = _base().transform_filter("datum.role === 'phase'"), ["prefill", "decode", "mixed"]
    roof = _base().transform_filter("datum.role === 'roof'").mark_line(strokeWidth=2, color="#8a8d91").encode(x, y)
    shape = alt.Shape("phase:N", scale=alt.Scale(domain=phases), title=t("word.phase"))
    points = base.mark_point(filled=True, size=110, opacity=1).encode(
        x, y, color=_arms(rows, t), shape=shape, tooltip=tips
    )
    # As conditions, not as filters: an empty layer has no extent and Vega warns of it.
    above = "datum.of_roof > 1"
    ring = base.mark_point(size=320, strokeWidth=2, filled=False, color=VERDICTS["failed"]).encode(
        x, y, opacity=alt.condition(above, alt.value(1), alt.value(0))
    )
    share = base.mark_text(dx=14, align="left", fontSize=11).encode(
        x, y, text=alt.condition(above, alt.Text("of_roof:Q", format=".0%"), alt.value(""))
    )
    return (roof + points + ring + share).properties(width="container", height=300)


def shares(rows: Sequence[Row], t: Words) -> Any:
    tips = [t.tip("arm:N", "word.arm"), t.tip("phase:N", "word.phase"), t.tip("class:N", "word.class"),
            t.tip("share:Q", "axis.share", ".1%")]  # fmt: skip
    bars = list(dict.fromkeys(row["bar"] for row in rows))
    x = alt.X("share:Q", stack="zero", title=t("axis.share"), axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1]))
    return (
        _base()
        .mark_bar(height=16)
        .encode(x, alt.Y("bar:N", sort=bars, title=None), alt.Color("class:N", title=t("word.class")), tooltip=tips)
        .properties(width="container", height=max(2, len(bars)) * ROW)
    )


def bandwidth(rows: Sequence[Row], t: Words) -> Any:
    sizes = alt.Axis(labelExpr=BINARY, tickCount=6, grid=False)
    x = alt.X("bytes:Q", title=t("axis.set"), scale=alt.Scale(type="log", base=2, nice=False), axis=sizes)
    y = alt.Y("bytes_per_s:Q", title=t("axis.bytes_per_s"), scale=alt.Scale(zero=True), axis=alt.Axis(format="~s"))
    colour = alt.Color("kind:N", scale=alt.Scale(domain=["read", "copy", "write"]), title=t("word.kind"))
    tips = [
        t.tip("kind:N", "word.kind"),
        t.tip("bytes:Q", "axis.set", ",.0f"),
        t.tip("bytes_per_s:Q", "axis.bytes_per_s", ".3~s"),
    ]
    base = _base().transform_filter("datum.kind !== 'cache'")
    line = base.mark_line(point=True).encode(x, y, color=colour, tooltip=tips)
    spread = base.mark_rule(opacity=0.5, strokeWidth=2).encode(x, alt.Y("low:Q"), y2="high:Q", color=colour)
    drawn = spread + line
    if any(row["kind"] == "cache" for row in rows):  # a layer without rows would warn of an empty scale
        drawn = _base().transform_filter("datum.kind === 'cache'").mark_rule(strokeDash=[4, 3]).encode(x) + drawn
    return drawn.properties(width="container", height=300)


def _kernel_case(case: str, rows: Sequence[Row], t: Words) -> Any:
    own = [row for row in rows if row["case"] == case]
    base = _base().transform_filter(alt.FieldEqualPredicate(field="case", equal=case))
    tips = [t.tip("kernel:N", "word.provider"), t.tip("bytes_per_s:Q", "axis.bytes_per_s", ".3~s"),
            t.tip("median_us:Q", "word.us", ".1f"), t.tip("ceiling:Q", "word.ceiling", ".3~s")]  # fmt: skip
    order = [row["kernel"] for row in sorted(own, key=lambda row: -row["bytes_per_s"])]
    y = alt.Y("kernel:N", sort=order, title=None)
    families = list(dict.fromkeys(row["family"] for row in rows))
    colour = alt.Color("family:N", scale=alt.Scale(domain=families), title=None)
    x = alt.X("bytes_per_s:Q", title=t("axis.bytes_per_s"), axis=alt.Axis(format="~s"))
    bars = base.mark_bar(height=13).encode(x, y, color=colour, tooltip=tips)
    ceiling = base.mark_rule(strokeDash=[4, 3], strokeWidth=2).encode(alt.X("max(ceiling):Q"))
    return (bars + ceiling).properties(title=f"{own[0]['device']}, {case}", width=WIDTH, height=len(set(order)) * 18)


def kernels(rows: Sequence[Row], t: Words) -> Any:
    cases = list(dict.fromkeys(row["case"] for row in rows))
    return alt.vconcat(*(_kernel_case(case, rows, t) for case in cases), spacing=18)


CHARTS: dict[str, Callable[[Sequence[Row], Words], Any]] = {
    "pareto": pareto,
    "gates": gates,
    "latency_ttft": _latency,
    "latency_tpot": _latency,
    "rounds": rounds,
    "kv_memory": kv_memory,
    "roofline": roofline,
    "shares": shares,
    "bandwidth": bandwidth,
    "kernels": kernels,
}


def specification(name: str, rows: Sequence[Row], language: str) -> dict[str, Any]:
    """The Vega-Lite specification of a figure, without its rows and without colours of a scheme."""
    spec: dict[str, Any] = CHARTS[name](rows, Words(language)).to_dict()
    spec.pop("config", None)
    spec.pop("$schema", None)
    return spec
