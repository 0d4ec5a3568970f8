"""A view as HTML in both languages at once, every number with the evidence it was read from.

Whatever comes from evidence or configuration passes ``escape`` here; only the catalogue's own `**bold**`
and `` `code` `` become tags. Both languages are in the page, the style sheet shows one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from adrbench.config.section import Text
from adrbench.report.lookup import Cell, Source, Store
from adrbench.report.markdown import catalogue, column_scale
from adrbench.report.numbers import Scale, quantity
from adrbench.report.view import Phrase
from markupsafe import Markup, escape

LANGUAGES = {"en": "en", "zh": "zh-CN"}
# A number can rest on dozens of requests' files; the drawer lists this many.
MOST_SOURCES = 24


@cache
def words() -> dict[str, dict[str, str]]:
    """The reports' catalogue and the page's own texts."""
    own = yaml.safe_load(Path(__file__).with_name("texts.yaml").read_text(encoding="utf-8"))
    return catalogue() | dict(own)


def inline(text: str) -> Markup:
    """Escaped text with the two Markdown marks that texts use."""
    safe = str(escape(text))
    safe = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", safe)
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", safe))  # noqa: S704 (escaped above)


def value_at(data: Any, key: str) -> Any:
    """The value at a dotted key, whose parts may hold dots themselves; None where there is none."""
    if not key:
        return data
    if isinstance(data, list):
        first, _, rest = key.partition(".")
        return value_at(data[int(first)], rest) if first.isdigit() and int(first) < len(data) else None
    if not isinstance(data, dict):
        return None
    if key in data:
        return data[key]
    for name in sorted((k for k in data if key.startswith(f"{k}.")), key=len, reverse=True):
        if (found := value_at(data[name], key[len(name) + 1 :])) is not None:
            return found
    return None


def stored(value: Any) -> str:
    """A stored value for the drawer, short."""
    text = str(value)
    return text if len(text) <= 160 else text[:159] + "…"


class Registry:
    """Evidence of all numbers of the page: files once, and each distinct set of sources once."""

    def __init__(self, output: Path):
        self.output = output
        self.files: list[str] = []
        self.groups: list[list[tuple[int, str, str]]] = []
        self._numbers: dict[tuple[tuple[int, str], ...], int] = {}

    def file(self, path: str) -> int:
        """Number of a file; its path is kept relative to the working folder, to which ``data-root`` leads."""
        path = path if path.startswith("(") else os.path.relpath(path).replace(os.sep, "/")
        if path not in self.files:
            self.files.append(path)
        return self.files.index(path)

    def link(self, path: str | Path) -> str:
        """A path relative to the page's folder."""
        return os.path.relpath(path, self.output.parent).replace(os.sep, "/")

    def group(self, sources: Sequence[Source], store: Store) -> int:
        """Number of this set of sources."""
        entries = []
        for source in list(dict.fromkeys(sources))[:MOST_SOURCES]:
            document = store.documents.get(source.document)
            path = str(document.path) if document and document.path else f"({source.document})"
            found = value_at(document.data, source.key) if document and document.data is not None else None
            entries.append((self.file(path), source.key, stored(found)))
        identity = tuple((number, key) for number, key, _ in entries)
        if identity not in self._numbers:
            self._numbers[identity] = len(self.groups)
            self.groups.append(entries)
        return self._numbers[identity]


class Html:
    """Shows parts of a view; numbers are looked up in the documents of one decision."""

    def __init__(self, registry: Registry, store: Store):
        self.registry, self.store = registry, store

    def cell(self, cell: Cell, language: str, scale: Scale | None = None, suffix: bool = True) -> Markup:
        """A number as a link to its evidence; ``unverified`` when there is none."""
        if not cell:
            return Markup('<span class="missing">{}</span>').format(words()["unverified"][language])
        if isinstance(cell.value, (str, bool)):
            text = str(cell.value)
        else:
            text = quantity(cell.amount, cell.unit, cell.low, cell.high, scale, suffix)
        if not cell.sources:
            return escape(text)
        group = self.registry.group(cell.sources, self.store)
        path = self.registry.files[self.registry.groups[group][0][0]]
        target = "#evidence" if path.startswith("(") else self.registry.link(path)
        return Markup('<a class="num" href="{}" data-e="{}">{}</a>').format(target, group, text)

    def one(self, shown: Any, language: str) -> Markup:
        """Any part of a view in one language."""
        if isinstance(shown, Markup):
            return shown
        if isinstance(shown, Cell):
            return self.cell(shown, language)
        if isinstance(shown, Phrase):
            text = inline(words()[shown.key][language])
            values = {name: self.one(value, language) for name, value in shown.args.items()}
            return Markup(str(text).format_map(values))  # noqa: S704 (all parts are escaped)
        if isinstance(shown, Text):
            return inline(getattr(shown, language))
        if isinstance(shown, (list, tuple)):
            return inline(words()["comma"][language]).join(self.one(item, language) for item in shown)
        return escape(str(shown))

    def both(self, shown: Any) -> Markup:
        """Any part of a view in both languages; once where they agree."""
        return pair(*(self.one(shown, language) for language in LANGUAGES))

    def t(self, key: str, **arguments: Any) -> Markup:
        """A text of the catalogue in both languages.

        Raises:
            KeyError: no such text or argument.
        """
        return self.both(Phrase(key, arguments))

    def triple(self, cells: Sequence[Cell], unit_of: Sequence[Cell]) -> Markup:
        """Percentiles in the unit of the whole column, without intervals."""
        if not any(cells):
            return self.t("unverified")
        scale = column_scale(unit_of)
        points = [Cell(cell.value, cell.unit, sources=cell.sources) for cell in cells]
        return Markup('<span class="sep"> / </span>').join(
            self.cell(point, "en", scale, suffix=False) for point in points
        )


def pair(english: Markup, chinese: Markup) -> Markup:
    """One text in both languages."""
    if english == chinese:
        return english
    return Markup('<span lang="en">{}</span><span lang="zh-CN">{}</span>').format(english, chinese)


def attributes(name: str, key: str) -> Markup:
    """An attribute in English, with both languages beside it for the switch: attributes cannot hold two spans."""
    text = words()[key]
    return Markup('{}="{}" data-{}-en="{}" data-{}-zh="{}"').format(
        name, text["en"], name, text["en"], name, text["zh"]
    )
