"""Draws a benchmark file of ``decode_attention.py`` as SVG: bandwidth of each kernel against the read ceiling.

    python benchmarks/decode_figure.py docs/evidence/h200/decode_main.json docs/evidence/h200/decode_main.svg

Standard library only.
"""

from __future__ import annotations

import html
import json
import sys
from pathlib import Path
from typing import Any

WIDTH, LEFT, RIGHT, BAR, GAP, TOP = 860, 270, 210, 18, 8, 44
COLOURS = {"ours": "#1b6ca8", "fa3": "#7a7a7a", "vllm_triton": "#b8b8b8"}


def panel(rows: list[dict[str, Any]], ceiling: float, y: int) -> tuple[list[str], int]:
    """SVG elements of one case, and where the next panel starts. Bars end with time, TB/s and error."""
    scale = (WIDTH - LEFT - RIGHT) / ceiling
    out = [f'<text x="10" y="{y + 16}" font-weight="bold">{html.escape(rows[0]["case"])}</text>']
    first = y = y + TOP - 16
    for row in sorted(rows, key=lambda row: row["median_us"]):
        length = row["bytes_per_s"] * scale
        colour = COLOURS[row["provider"].partition(":")[0]]
        name = html.escape(row["provider"].replace(":", " ").replace("_", " "))
        label = f"{row['median_us']:.0f} us, {row['bytes_per_s'] / 1e12:.2f} TB/s, error {row['error']:.4f}"
        out.append(f'<text x="{LEFT - 8}" y="{y + 13}" text-anchor="end">{name}, page {row["page"]}</text>')
        out.append(f'<rect x="{LEFT}" y="{y}" width="{length:.1f}" height="{BAR}" fill="{colour}"/>')
        out.append(f'<text x="{LEFT + length + 6:.1f}" y="{y + 13}">{label}</text>')
        y += BAR + GAP
    x = LEFT + ceiling * scale
    out.append(f'<line x1="{x}" y1="{first - 4}" x2="{x}" y2="{y}" stroke="#c0392b" stroke-dasharray="4 3"/>')
    out.append(
        f'<text x="{x}" y="{first - 8}" text-anchor="middle" fill="#c0392b">read {ceiling / 1e12:.2f} TB/s</text>'
    )
    return out, y + 16


def draw(measured: dict[str, Any]) -> str:
    """The whole figure; kernels in order of time within a case."""
    cases: dict[str, list[dict[str, Any]]] = {}
    for row in measured["rows"]:
        if "median_us" in row:
            cases.setdefault(row["case"], []).append(row)
    body, y = [], 8
    for rows in cases.values():
        elements, y = panel(rows, measured["ceilings"]["read_bytes_per_s"], y)
        body += elements
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y}" font-family="sans-serif" font-size="12">'
    )
    return "\n".join([head, f'<rect width="{WIDTH}" height="{y}" fill="white"/>', *body, "</svg>"]) + "\n"


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(draw(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))), encoding="utf-8")
