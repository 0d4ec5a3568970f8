"""A view as Markdown, in one language, every number with the evidence it was read from."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
import yaml
from adrbench.config.section import Text
from adrbench.report.adr import Report
from adrbench.report.cells import Note
from adrbench.report.lookup import Cell, Source
from adrbench.report.numbers import Scale, quantity, scale_for
from adrbench.report.spec import Language
from adrbench.report.view import Phrase, Proof

FOLDER = Path(__file__).parent
# A dotted key, each part of it as alternatives.
Pattern = tuple[tuple[str, ...], ...]
LONGEST_KEYS = 8
LONGEST_BRACES = 6


@cache
def catalogue() -> dict[str, dict[str, str]]:
    """All texts by key, of every ``texts*.yaml``; each has both languages.

    Raises:
        ValueError: two files have the same key.
    """
    found: dict[str, dict[str, str]] = {}
    for path in sorted(FOLDER.glob("texts*.yaml")):
        entries = yaml.safe_load(path.read_text(encoding="utf-8"))
        if twice := sorted(found.keys() & entries.keys()):
            raise ValueError(f"{path.name}: {twice[0]} stands in another file too")
        found |= entries
    return found


def escape(text: str) -> str:
    """A text inside a table cell: no bar, no line break, no tag."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _merge(first: Pattern, second: Pattern) -> Pattern | None:
    """Two patterns as one, when they differ in one part only."""
    if len(first) != len(second):
        return None
    different = [i for i, (a, b) in enumerate(zip(first, second, strict=True)) if a != b]
    if len(different) != 1:
        return None
    at = different[0]
    return (*first[:at], tuple(dict.fromkeys((*first[at], *second[at]))), *first[at + 1 :])


def _merge_once(patterns: list[Pattern]) -> list[Pattern]:
    """Each pattern joined with the first earlier one that differs from it in one part only."""
    kept: list[Pattern] = []
    for pattern in patterns:
        for index, earlier in enumerate(kept):
            if joined := _merge(earlier, pattern):
                kept[index] = joined
                break
        else:
            kept.append(pattern)
    return kept


def _braces(part: tuple[str, ...]) -> str:
    """One part of a pattern: a name, or alternatives, the first few of which are written."""
    if len(part) == 1:
        return part[0]
    return "{" + ",".join(part[:LONGEST_BRACES]) + (",…" if len(part) > LONGEST_BRACES else "") + "}"


def compact(keys: Iterable[str]) -> list[str]:
    """Dotted keys with list positions starred, duplicates dropped, and siblings joined: ``a.{x,y}.{p50,p99}``."""
    starred = dict.fromkeys(re.sub(r"\.\d+(?=\.|$)", ".*", key) for key in keys)
    patterns: list[Pattern] = [tuple((part,) for part in key.split(".")) for key in starred]
    before = 0
    while len(patterns) != before:
        before, patterns = len(patterns), _merge_once(patterns)
    return [".".join(map(_braces, pattern)) for pattern in patterns]


def ranges(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Sorted numbers as runs of neighbours."""
    runs: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs


class Rendered(str):
    """Text that is Markdown already: shown as it is, never escaped again."""

    __slots__ = ()


class Footnotes:
    """Numbers of the statements that a report marks, in the order of their first mark."""

    def __init__(self) -> None:
        self.numbers: dict[str, tuple[int, Note]] = {}
        self.listed = 0

    def number(self, note: Note) -> int:
        return self.numbers.setdefault(note.claim, (len(self.numbers) + 1, note))[0]

    def new(self) -> list[tuple[int, Note]]:
        """Numbers and notes that were not listed yet; they count as listed afterwards."""
        found = list(self.numbers.values())[self.listed :]
        self.listed = len(self.numbers)
        return found


class Renderer:
    """Shows the parts of a view in one language and remembers which sources the current table used."""

    def __init__(
        self, language: Language, proofs: list[Proof], output: Path, cells: Mapping[str, list[Note]] | None = None
    ):
        self.language, self.output, self.cells = language, output, cells or {}
        self.footnotes = Footnotes()
        self.texts = catalogue()
        self.numbers = {proof.name: proof.number for proof in proofs}
        self.used: list[Source] = []

    def t(self, key: str, **arguments: Any) -> str:
        """A text of the catalogue with its arguments shown.

        Raises:
            KeyError: no such text or argument; a report is never rendered with a hole.
        """
        shown = {name: self.show(value) for name, value in arguments.items()}
        return Rendered(self.texts[key][self.language].format_map(shown))

    def show(self, shown: Any) -> str:
        """Any part of a view as text."""
        if isinstance(shown, Rendered):
            return shown
        if isinstance(shown, Cell):
            return self.cell(shown)
        if isinstance(shown, Phrase):
            return self.t(shown.key, **shown.args)
        if isinstance(shown, Text):
            return escape(getattr(shown, self.language))
        if isinstance(shown, (list, tuple)):
            return self.t("comma").join(self.show(item) for item in shown)
        return escape(str(shown))

    def marked(self, shown: Any, cell: str) -> str:
        """A cell of the team's tables with the verdicts on its statements, and what is the case instead.

        A cell that ``cells.yaml`` does not name has no marks; a test sees to it that it names all.
        """
        found = self.cells.get(cell, [])
        if any(note.checked for note in found):
            self.used.append(Source("claims", "measured.verdicts"))
        marks = "".join(
            f"[{note.sign}{self.footnotes.number(note)}](#s{self.footnotes.number(note)})" for note in found
        )
        corrected = ""
        if instead := [note.instead for note in found if note.refuted]:
            told = self.t("cells.instead", instead=Rendered(self.joined(instead)))
            corrected = f" ({told})"
        return Rendered(self.show(shown) + corrected + (f" <sup>{marks}</sup>" if marks else ""))

    def noted(self) -> str:
        """The footnotes under a table: the statements marked for the first time since the last such list."""
        lines = [self._footnote(number, note) for number, note in self.footnotes.new()]
        return "<sub>" + "<br>\n".join(lines) + "</sub>" if lines else ""

    def _footnote(self, number: int, note: Note) -> str:
        told = self.show(note.instead) if note.instead else ""
        tail = "; ".join(part for part in (told, f"`{note.where}`" if note.where else "") if part)
        verdict = self.t(f"claim.{note.verdict}")
        return f'<a id="s{number}"></a>{note.sign}{number} {note.claim}: {verdict}' + (f" ({tail})" if tail else "")

    def joined(self, parts: Sequence[Any]) -> str:
        """Sentences that each have commas of their own."""
        return self.t("separator").join(self.show(part) for part in parts)

    def cell(self, cell: Cell, scale: Scale | None = None, suffix: bool = True) -> str:
        """A looked-up value; ``unverified`` when there is none."""
        if not cell:
            return self.t("unverified")
        self.used += cell.sources
        if isinstance(cell.value, (str, bool)):
            return escape(str(cell.value))
        return quantity(cell.amount, cell.unit, cell.low, cell.high, scale, suffix)

    def plain(self, cell: Cell) -> str:
        """A value without its unit, for columns that name it."""
        return self.cell(cell, suffix=False)

    def triple(self, cells: Sequence[Cell], unit_of: Sequence[Cell]) -> str:
        """Percentiles of one cell, in the unit of the whole column, without intervals."""
        if not any(cells):
            return self.t("unverified")
        scale = column_scale(unit_of)
        points = (Cell(cell.value, cell.unit, sources=cell.sources) for cell in cells)
        return " / ".join(self.cell(point, scale, suffix=False) for point in points)

    def sources(self) -> str:
        """The line under a table: evidence numbers and keys of all that was shown since the last such line."""
        used, self.used = list(dict.fromkeys(self.used)), []
        groups: dict[tuple[str, ...], list[int]] = {}
        others: dict[str, list[str]] = {}
        by_document: dict[str, list[str]] = {}
        for source in used:
            by_document.setdefault(source.document, []).append(source.key)
        for document, keys in by_document.items():
            if document in self.numbers:
                groups.setdefault(tuple(compact(keys)), []).append(self.numbers[document])
            else:
                others[document] = compact(keys)
        parts = [f"{self._links(numbers)} {_keys(keys)}" for keys, numbers in groups.items()]
        parts += [f"{self.t('sources.' + document)} {_keys(keys)}" for document, keys in others.items()]
        return f"<sub>{self.t('sources.label')}: {self.t('separator').join(parts)}</sub>" if parts else ""

    def _links(self, numbers: Sequence[int]) -> str:
        names = (f"E{first}" if first == last else f"E{first}–E{last}" for first, last in ranges(numbers))
        return ", ".join(f"[{name}](#{name.partition('–')[0].lower()})" for name in names)

    def link(self, path: str) -> str:
        """A path relative to the report's folder."""
        return os.path.relpath(path, self.output.parent).replace(os.sep, "/")


def _keys(keys: Sequence[str]) -> str:
    shown = ", ".join(f"`{key}`" for key in keys[:LONGEST_KEYS])
    return shown + (" …" if len(keys) > LONGEST_KEYS else "")


def column_scale(cells: Sequence[Cell]) -> Scale | None:
    """One scale for all values of a column; None when there are none."""
    present = [cell for cell in cells if cell]
    return scale_for(present[0].unit, [cell.amount for cell in present]) if present else None


def column_unit(cells: Sequence[Cell]) -> str:
    """The unit that a column's heading names."""
    scale = column_scale(cells)
    return scale.suffix.strip() if scale else ""


@cache
def templates() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER / "templates"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 (Markdown; cells are escaped by the renderer)
    )


def render(report: Report, language: Language, output: Path, languages: Sequence[Language] = ()) -> str:
    """The ADR as Markdown.

    Args:
        output: where it will lie, for relative links to evidence.
        languages: languages that lie beside it, for the link between them.
    """
    renderer = Renderer(language, report.proofs, output, report.cells)
    text = (
        templates()
        .get_template("adr.md.j2")
        .render(
            r=report,
            t=renderer.t,
            show=renderer.show,
            plain=renderer.plain,
            triple=renderer.triple,
            joined=renderer.joined,
            sources=renderer.sources,
            marked=renderer.marked,
            noted=renderer.noted,
            link=renderer.link,
            column_unit=column_unit,
            other=_other_language(language, output, languages),
        )
    )
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def _other_language(language: Language, output: Path, languages: Sequence[Language]) -> tuple[str, str] | None:
    """(name, file) of the same report in the other language, when it is made."""
    other: Language = "zh" if language == "en" else "en"
    if other not in languages:
        return None
    stem = output.name.removesuffix(".md").removesuffix(".zh")
    return ("中文", f"{stem}.zh.md") if other == "zh" else ("English", f"{stem}.md")
