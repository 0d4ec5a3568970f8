"""Draw every figure: ``python -m adrbench.report.figures --spec JSON --output reports/<platform>/figures``.

Writes ``<name>.svg``, ``<name>.zh.svg``, ``<name>.csv`` and ``figures.json``, which the page embeds. A figure
without data says why in its place, so that every file is always there.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from html import escape
from pathlib import Path
from textwrap import wrap
from typing import Any

import vl_convert
from adrbench.evidence import write_text
from adrbench.report.command import run
from adrbench.report.figures.charts import WIDTH, config, specification
from adrbench.report.figures.names import FIGURES, SUFFIXES, texts
from adrbench.report.figures.rows import Row, rows_of
from adrbench.report.site import Site, load

LANGUAGES = ("en", "zh")
EMPTY_COLUMNS = {"en": 88, "zh": 44}
# The page holds one row per request; beyond this many it takes every n-th, and its caption says so.
MOST_ROWS = 6000


def csv_text(rows: Sequence[Row]) -> str:
    """Rows as CSV with a header; no rows, no header."""
    if not rows:
        return ""
    stream = io.StringIO()
    writer = csv.DictWriter(
        stream, fieldnames=list(dict.fromkeys(key for row in rows for key in row)), lineterminator="\n"
    )
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


def reason_svg(title: str, reason: str, language: str) -> str:
    """A figure's place when there is no data: its title and the reason."""
    lines = wrap(reason, EMPTY_COLUMNS[language])
    height = 60 + 18 * len(lines)
    text = "".join(
        f'<text x="16" y="{54 + 18 * n}" font-size="12" fill="#5d6066">{escape(line)}</text>'
        for n, line in enumerate(lines)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'role="img" '
        f'font-family="sans-serif"><title>{escape(title)}</title><rect width="100%" height="100%" fill="#ffffff"/>'
        f'<text x="16" y="28" font-size="13" font-weight="600" fill="#24272b">{escape(title)}</text>{text}</svg>\n'
    )


def chart_svg(spec: dict[str, Any], rows: Sequence[Row]) -> str:
    """A specification with its rows as SVG on a white ground."""
    whole = spec | {"datasets": {"rows": list(rows)}, "config": config("light")}
    if whole.get("width") == "container":
        whole["width"] = WIDTH
    return str(vl_convert.vegalite_to_svg(json.dumps(whole), vl_version="6.4"))


def thinned(rows: Sequence[Row]) -> list[Row]:
    step = -(-len(rows) // MOST_ROWS)
    return list(rows[::step]) if step > 1 else list(rows)


def caption(name: str, site: Site, language: str) -> str:
    files = ", ".join(str(path) for path in site.spec.kernels)
    return texts()[f"{name}.caption"][language].replace("{files}", files)


def draw(name: str, site: Site, folder: Path) -> dict[str, Any]:
    """Write one figure's files; its entry for the page."""
    rows = rows_of(name, site)
    write_text(folder / f"{name}.csv", csv_text(rows))
    entry: dict[str, Any] = {
        "name": name,
        "title": texts()[f"{name}.title"],
        "caption": {language: caption(name, site, language) for language in LANGUAGES},
        "reason": None if rows else texts()[f"{name}.none"],
        "rows": thinned(rows),
        "all_rows": len(rows),
        "specs": {},
    }
    for language in LANGUAGES:
        if rows:
            entry["specs"][language] = specification(name, rows, language)
            svg = chart_svg(entry["specs"][language], rows)
        else:
            svg = reason_svg(entry["title"][language], entry["reason"][language], language)
        write_text(folder / f"{name}{SUFFIXES[language]}", svg)
    return entry


def write(site: Site, folder: Path) -> None:
    figures = [draw(name, site, folder) for name in FIGURES]
    document = {"figures": figures, "config": {mode: config(mode) for mode in ("light", "dark")}}
    write_text(folder / "figures.json", json.dumps(document, ensure_ascii=False, allow_nan=False) + "\n")


if __name__ == "__main__":
    run("report figures", lambda spec, output: write(load(spec), output))
