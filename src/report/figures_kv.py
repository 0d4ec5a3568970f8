"""The Pareto figure of KV schemes: memory against accuracy difference and against divergence, as SVG.

    python -m adrbench.report.figures_kv --spec JSON --output reports/<platform>/figures/adr0009-pareto.svg

The specification is that of the report which shows the figure. ``chart`` takes plain rows, so that a page can draw
the same figure from the same rows.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import altair as alt
import vl_convert
from adrbench.evidence import EvidenceError, write_text
from adrbench.handover import received
from adrbench.report.collect import open_store
from adrbench.report.context import Context
from adrbench.report.markdown import catalogue
from adrbench.report.spec import Language, Spec
from adrbench.report.strategy import StrategyView, strategy

WIDTH, HEIGHT = 430, 360
# A divergence of zero has no place on a logarithmic axis: it is drawn at this one.
LEAST_KL = 1e-6
COLOURS = {"stored": "#0b7285", "simulated": "#c2541f"}
Row = dict[str, Any]


def rows(view: StrategyView, language: Language) -> list[Row]:
    """One row a measured scheme: memory, Δ with its interval, divergence. None where it was not measured."""
    found = []
    for place in view.places:
        if not place.ratio or place.arm is None:
            continue
        title = place.title if isinstance(place.title, str) else getattr(place.title, language)
        value = place.delta.amount if place.delta else 0.0 if place.gate == "none" else None
        found.append(
            {
                "title": title,
                "memory": place.ratio.amount,
                "delta": value,
                "low": place.delta.low,
                "high": place.delta.high,
                "kl": max(place.kl.amount, LEAST_KL) if place.kl else None,
                "kl_low": max(place.kl.low, LEAST_KL) if place.kl and place.kl.low is not None else None,
                "kl_high": max(place.kl.high, LEAST_KL) if place.kl and place.kl.high is not None else None,
                "how": "simulated" if place.simulated else "stored",
            }
        )
    return found


def _spread(values: Sequence[Row], key: str, logarithmic: bool) -> list[Row]:
    """Rows with ``label``: the ordinate of the title, moved up where titles of neighbours would overlap."""
    present = sorted((row for row in values if row[key] is not None), key=lambda row: (row["memory"], row[key]))

    def scaled(value: float) -> float:
        return math.log10(value) if logarithmic else value

    if not present:
        return []
    bounds = [scaled(v) for row in present for v in (row[key], row.get(f"{key}_low"), row.get(f"{key}_high")) if v]
    height = (max(bounds, default=1.0) - min(bounds, default=0.0)) or 1.0
    gap = height / 24
    placed: list[Row] = []
    for row in present:
        at = scaled(row[key])
        while any(abs(at - other["at"]) < gap and abs(row["memory"] - other["memory"]) < 0.3 for other in placed):
            at += gap
        placed.append(row | {"at": at, "label": 10**at if logarithmic else at})
    return placed


def _panel(values: list[Row], key: str, title: str, x_title: str, words: dict[str, str], limit: float | None) -> Any:
    logarithmic = key == "kl"
    shown = _spread(values, key, logarithmic)
    low, high = ("kl_low", "kl_high") if logarithmic else ("low", "high")
    base = alt.Chart(alt.InlineData(values=shown))
    x = alt.X("memory:Q", title=x_title, scale=alt.Scale(domain=[0, 1.25], nice=False))
    scale = alt.Scale(type="log") if logarithmic else alt.Scale(nice=True)
    colour = alt.Color(
        "how_shown:N", title=words["how"], scale=alt.Scale(domain=[words["stored"], words["simulated"]],
                                                            range=list(COLOURS.values()))
    )  # fmt: skip
    base = base.transform_calculate(
        how_shown=f"datum.how === 'stored' ? {json.dumps(words['stored'])} : {json.dumps(words['simulated'])}"
    )
    across = (
        base.transform_filter(f"isValid(datum.{low})")
        .mark_rule(opacity=0.45, strokeWidth=1.5)
        .encode(x, alt.Y(f"{low}:Q", title=title, scale=scale), y2=f"{high}:Q", color=colour)
    )
    points = base.mark_point(filled=True, size=70, opacity=1).encode(x, alt.Y(f"{key}:Q", scale=scale), color=colour)
    labels = base.mark_text(align="left", dx=7, fontSize=9).encode(x, alt.Y("label:Q", scale=scale), text="title:N")
    layers: Any = across + points + labels
    if limit is not None:
        rule = alt.Chart(alt.InlineData(values=[{"limit": limit}])).mark_rule(strokeDash=[5, 4], color="#5d6066")
        layers += rule.encode(alt.Y("limit:Q", scale=scale))
    return layers.properties(width=WIDTH, height=HEIGHT)


def chart(values: list[Row], language: Language, limit: float | None) -> dict[str, Any]:
    """The Vega-Lite specification, data inside."""
    texts = catalogue()
    words = {key: texts[f"pareto.{key}"][language] for key in ("how", "stored", "simulated", "memory", "delta", "kl")}
    panels = alt.hconcat(
        _panel(values, "delta", words["delta"], words["memory"], words, limit),
        _panel(values, "kl", words["kl"], words["memory"], words, None),
    )
    font = "system-ui, 'Segoe UI', 'Noto Sans CJK SC', 'WenQuanYi Micro Hei', sans-serif"
    shown: dict[str, Any] = panels.configure(font=font, background="#ffffff").to_dict()
    return shown


def svg(values: list[Row], language: Language, limit: float | None) -> str:
    """The figure as SVG."""
    return str(vl_convert.vegalite_to_svg(json.dumps(chart(values, language, limit))))


def main() -> None:
    import argparse

    parser = argparse.ArgumentParser(prog="python -m adrbench.report.figures_kv")
    parser.add_argument("--spec", required=True, help="the report's specification as JSON, or @FILE")
    parser.add_argument("--output", required=True, type=Path, help="SVG file to write")
    arguments = parser.parse_args()
    try:
        spec = Spec.model_validate_json(received(arguments.spec))
        view = strategy(Context(spec, open_store(spec)))
        if view is None:
            sys.exit(f"adrbench figures: {spec.adr} is no strategy: it has no such figure")
        limit = view.limit.amount if view.limit else None
        write_text(arguments.output, svg(rows(view, spec.language), spec.language, limit))
    except (EvidenceError, ValueError, OSError) as error:
        sys.exit(f"adrbench figures: {error}")


if __name__ == "__main__":
    main()
