"""Figures of a profile as SVG text: roofline, time shares, bandwidth over working set.

Pure functions from evidence to text, without a plotting library: a figure is a few lines and circles,
and the report must build wherever the workflow runs. Labels come in, so that one figure serves two
languages; colours are readable on light and dark pages and do not carry meaning alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from adrbench.profile.op_classes import CLASSES
from adrbench.profile.verdict import memory_ceiling, of_roof

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 720, 380, 70, 50, 20, 20
# Least distance of two labels' baselines.
LABEL_PITCH = 13.0
# The ring of a point above its roof.
WARNING = "#d64533"
COLOURS = ("#3b6fb6", "#c2662d", "#4b8f4b", "#8a5aa8", "#b5495b", "#5f9ed1", "#2f8f8f", "#a08a2e", "#6b6b6b", "#b0b0b0")

LABELS: dict[str, dict[str, str]] = {
    "en": {
        "intensity": "FLOP per byte",
        "rate": "FLOP/s",
        "set": "working set",
        "bandwidth": "GB/s",
        "read": "read",
        "copy": "copy",
        "write": "write",
        "prefill": "prefill",
        "decode": "decode",
        "mixed": "mixed",
        "share": "share of step time",
        "cache": "last-level cache",
        "above": "ringed: above the roof, which no phase can be: ceiling too low, or FLOP or bytes counted too high",
        "title.roofline": "Roofline: measured roof, and each phase at its intensity",
        "title.shares": "Share of step time by class of operation",
        "title.bandwidth": "Memory bandwidth over the working set",
    },
    "zh": {
        "intensity": "每字节 FLOP",
        "rate": "FLOP/s",
        "set": "工作集",
        "bandwidth": "GB/s",
        "read": "读",
        "copy": "复制",
        "write": "写",
        "prefill": "prefill",
        "decode": "decode",
        "mixed": "混合",
        "share": "占步时间比例",
        "cache": "末级缓存",
        "above": "圆环: 高于屋顶, 这不可能: 上限测低了, 或模型的 FLOP / 字节数偏高",
        "title.roofline": "Roofline: 实测上限与各阶段的算术强度",
        "title.shares": "按算子类别的 step 时间占比",
        "title.bandwidth": "内存带宽与工作集大小",
    },
}


@dataclass(frozen=True)
class Axis:
    """A logarithmic axis from values to pixels."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        span = math.log(self.high / self.low)
        return self.start + (self.end - self.start) * math.log(value / self.low) / span

    def ticks(self) -> list[float]:
        """Powers of ten within the axis; 1, 2 and 5 times those where it spans less than two of them."""
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        steps = (1, 2, 5) if self.high / self.low < 100 else (1,)
        values = [step * 10.0**exponent for exponent in range(first, last + 1) for step in steps]
        return [value for value in values if self.low <= value <= self.high]


def _axes(x_values: Sequence[float], y_values: Sequence[float]) -> tuple[Axis, Axis]:
    """Axes that hold all values with room around them."""
    x = Axis(min(x_values) / 2, max(x_values) * 2, LEFT, WIDTH - RIGHT)
    return x, Axis(min(y_values) / 2, max(y_values) * 2, HEIGHT - BOTTOM, TOP)


def _text(x: float, y: float, text: str, anchor: str = "middle") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {place} font-size="12" fill="currentColor">{escape(text)}</text>'


def _line(points: Sequence[tuple[float, float]], colour: str, dash: str = "") -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dashed}/>'


def _frame(x: Axis, y: Axis, x_label: str, y_label: str, x_ticks: Mapping[float, str]) -> list[str]:
    """Axis lines, ticks, labels."""
    parts = [_line([(x.start, y.end), (x.start, y.start), (x.end, y.start)], "currentColor")]
    parts += [_text(x(value), y.start + 18, text) for value, text in x_ticks.items()]
    parts += [_text(x.start - 8, y(value) + 4, engineering(value), "end") for value in y.ticks()]
    parts.append(_text((x.start + x.end) / 2, HEIGHT - 8, x_label))
    parts.append(_text(x.start + 6, TOP + 2, y_label, "start"))
    return parts


def _document(parts: Sequence[str], title: str, height: float = HEIGHT) -> str:
    box = f'viewBox="0 0 {WIDTH} {height:.0f}" role="img" font-family="sans-serif"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {box}>'
    return "\n".join([head, f"<title>{escape(title)}</title>", *parts, "</svg>"]) + "\n"


def message(text: str, title: str) -> str:
    """A text in the place of a figure that cannot be drawn."""
    return _document([_text(WIDTH / 2, 24, text)], title, 40)


def engineering(value: float) -> str:
    """1.2e9 as 1.2 G, 0.5 as 0.5."""
    for factor, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:g} {prefix}"
    return f"{value:g}"


def binary_size(value: float) -> str:
    """Bytes with a binary prefix."""
    for factor, prefix in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if value >= factor:
            return f"{value / factor:.3g} {prefix}"
    return f"{value:g} B"


def roofline(ceiling: Mapping[str, Any], arms: Mapping[str, Mapping[str, Any]], language: str, title: str) -> str:
    """Roof from measured ceilings, and each arm's phases at their intensity and reached FLOP/s.

    A phase above the roof of its own matrix format is ringed, and a line below the figure says what that means.

    Args:
        ceiling: ``measured`` of the ceiling's evidence.
        arms: by arm name, ``measured["bounds"]`` of its profile.

    Raises:
        ValueError: no arm, or no matrix rate in the arms' dtype: there is no roof to draw.
    """
    label = LABELS[language]
    found = [(arm, phase, row) for arm, rows in arms.items() for phase, row in rows.items()]
    dtypes = {row["matrix_dtype"] for _, _, row in found}
    rates = {d: ceiling["matmul_flop_per_s"].get(d, {}).get("median") for d in dtypes}
    if not found or None in rates.values():
        raise ValueError(f"no roofline without a profiled arm and a matrix rate of its dtype ({sorted(dtypes)})")
    bandwidth, peak = memory_ceiling(dict(ceiling))["median"], max(rates.values())
    ridge = peak / bandwidth
    reached = [(row["flops_per_byte"], row["flops"] / row["seconds"]["median"]) for _, _, row in found]
    x, y = _axes([ridge * 4, *(point[0] for point in reached)], [peak, *(point[1] for point in reached)])
    foot = max(x.low, y.low / bandwidth)
    roof = [(x(foot), y(foot * bandwidth)), (x(ridge), y(peak)), (x(x.high), y(peak))]
    ticks = {value: engineering(value) for value in x.ticks()}
    parts = [*_frame(x, y, label["intensity"], label["rate"], ticks), _line(roof, COLOURS[0])]
    taken: list[tuple[bool, float]] = []
    above = False
    for (arm, phase, row), (intensity, rate) in zip(found, reached, strict=True):
        colour = COLOURS[1 + list(arms).index(arm) % (len(COLOURS) - 1)]
        left_half = x(intensity) < WIDTH / 2
        side, anchor = (12, "start") if left_half else (-12, "end")
        baseline = _free_baseline(y(rate) + 4, [at for half, at in taken if half == left_half])
        taken.append((left_half, baseline))
        parts.append(f'<circle cx="{x(intensity):.1f}" cy="{y(rate):.1f}" r="5" fill="{colour}"/>')
        share = of_roof(row["flops"], row["seconds"]["median"], intensity, rates[row["matrix_dtype"]], bandwidth)
        told = f"{arm} {label[phase]}"
        if share > 1:
            above, told = True, f"{told} {share:.0%}"
            parts.append(f'<path d="{_ring(x(intensity), y(rate))}" fill="none" stroke="{WARNING}" stroke-width="2"/>')
        parts.append(_text(x(intensity) + side, baseline, told, anchor))
    if above:
        parts.append(_text(x.start, HEIGHT + 10, label["above"], "start"))
    return _document(parts, title, HEIGHT + 18 if above else HEIGHT)


def _ring(x: float, y: float, radius: float = 9) -> str:
    """Path of a circle around a point."""
    half = f"a{radius},{radius} 0 1,0"
    return f"M{x - radius:.1f},{y:.1f}{half} {2 * radius},0{half} {-2 * radius},0"


def _free_baseline(wanted: float, taken: Sequence[float]) -> float:
    """A baseline near ``wanted`` that no earlier label of the same half lies on: points of arms often coincide."""
    for step in range(2 * len(taken) + 1):
        offset = LABEL_PITCH * ((step + 1) // 2) * (1 if step % 2 else -1)
        if all(abs(wanted + offset - at) >= LABEL_PITCH for at in taken):
            return wanted + offset
    return wanted


def bandwidth(ceiling: Mapping[str, Any], language: str, title: str) -> str:
    """Read, copy and write bandwidth over the working set; the last-level cache as a dashed line."""
    label, rows = LABELS[language], ceiling["by_size"]
    kinds = ("read", "copy", "write")
    values = [row[kind]["median"] / 1e9 for row in rows for kind in kinds]
    x, y = _axes([row["bytes"] for row in rows], values)
    ticks = {row["bytes"]: binary_size(row["bytes"]) for row in rows[::2]}
    parts = _frame(x, y, label["set"], label["bandwidth"], ticks)
    colours = dict(zip(kinds, COLOURS, strict=False))
    for kind, colour in colours.items():
        parts.append(_line([(x(row["bytes"]), y(row[kind]["median"] / 1e9)) for row in rows], colour))
    parts += _legend({label[kind]: colour for kind, colour in colours.items()}, LEFT + 70, 3, 80)
    cache = ceiling.get("last_level_cache_bytes") or 0
    if x.low < cache < x.high:
        parts.append(_line([(x(cache), y.start), (x(cache), y.end)], "#999999", "4 4"))
        parts.append(_text(x(cache) - 4, y.end + 24, f"{label['cache']} {binary_size(cache)}", "end"))
    return _document(parts, title)


def shares(arms: Mapping[str, Mapping[str, Any]], language: str, title: str) -> str:
    """One bar per arm and phase: share of step time by class of operation (device time where there is one).

    Args:
        arms: by arm name, ``measured["phases"]`` of its profile.
    """
    label = LABELS[language]
    bars = [(arm, phase, row) for arm, rows in arms.items() for phase, row in rows.items()]
    left, top, height = 190.0, 70.0, 26.0
    end = top + height * len(bars) + 22
    parts, width = _legend(dict(zip(CLASSES, COLOURS, strict=True)), 20, 4, 170), WIDTH - RIGHT - left
    for number, (arm, phase, row) in enumerate(bars):
        classes = row["device"]["classes"] if "device" in row else row["classes"]
        total, at, y = sum(classes.values()), left, top + number * height
        parts.append(_text(left - 8, y + height / 2 + 3, f"{arm} {label[phase]} {row['share']:.0%}", "end"))
        for index, name in enumerate(CLASSES):
            part = width * classes.get(name, 0.0) / total if total else 0.0
            if part > 0:
                where = f'x="{at:.1f}" y="{y:.1f}" width="{part:.1f}" height="{height - 4:.1f}"'
                hover = f"{name} {classes[name] / total:.1%}"
                parts.append(f'<rect {where} fill="{COLOURS[index]}"><title>{hover}</title></rect>')
            at += part
    parts.append(_text(left + width / 2, end, label["share"]))
    return _document(parts, title, end + 12)


def _legend(entries: Mapping[str, str], left: float, columns: int, pitch: float) -> list[str]:
    """Swatches and names, in rows from the top."""
    parts = []
    for index, (name, colour) in enumerate(entries.items()):
        x, y = left + pitch * (index % columns), TOP + 16.0 * (index // columns)
        parts.append(f'<rect x="{x:.1f}" y="{y - 9:.1f}" width="10" height="10" fill="{colour}"/>')
        parts.append(_text(x + 14, y, name, "start"))
    return parts
