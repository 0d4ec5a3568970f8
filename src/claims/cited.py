"""Datasheet and literature checks: values quoted from a named source, with a trust mark.

The tables are ``hardware.yaml`` and ``literature.yaml`` in ``config/claims/data``. A verdict is only
drawn from a value that was read in its source (``published``) or in a third party's text that is
named (``quoted``); a value that is inferred or general knowledge leaves the claim unverified, with
the value shown.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml
from adrbench.claims.registry import Context, Finding, Unverifiable, check
from pydantic import BaseModel, ConfigDict, ValidationError

Trust = Literal["published", "quoted", "inferred", "general knowledge", "not found"]

USABLE: tuple[Trust, ...] = ("published", "quoted")


class CitedError(ValueError):
    """A table of cited values is damaged, or has no such row or column; names file and key."""


class Record(BaseModel):
    """One cited value. ``source`` is a locator: document and place, repository and file, or arXiv id."""

    model_config = ConfigDict(extra="forbid")

    value: Any
    trust: Trust
    source: str


Table = dict[str, dict[str, Record]]


@cache
def load_table(path: Path) -> Table:
    """A table of cited values: row name to column name to record.

    Raises:
        CitedError: the file is missing, no mapping, or a record lacks value, trust or source.
    """
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
        return {
            row: {column: Record.model_validate(cell) for column, cell in cells.items()} for row, cells in raw.items()
        }
    except FileNotFoundError:
        raise CitedError(f"{path}: no such table of cited values") from None
    except ValidationError as error:
        first = error.errors()[0]
        raise CitedError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}: {first['input']!r}") from None
    except (yaml.YAMLError, AttributeError) as error:
        raise CitedError(f"{path}: not a table of cited values ({error})") from None


def lookup(path: Path, row: str, column: str) -> Record:
    """One record.

    Raises:
        CitedError: naming the rows or columns that exist.
    """
    table = load_table(path)
    if row not in table:
        raise CitedError(f"{path}: no row {row!r}; known: {', '.join(table)}")
    if column not in table[row]:
        raise CitedError(f"{path}: {row} has no {column!r}; known: {', '.join(table[row])}")
    return table[row][column]


def hardware(context: Context, card: str, quantity: str) -> Record:
    return lookup(context.data / "hardware.yaml", card, quantity)


def need_trust(record: Record, name: str) -> Record:
    """The record itself, if its value can carry a verdict.

    Raises:
        Unverifiable: the value is inferred, general knowledge, or was not found.
    """
    if record.trust in USABLE:
        return record
    shown, shown_zh = f"{record.value} is {record.trust}", f"{record.value} 为 {record.trust}"
    if record.trust == "not found":
        shown, shown_zh = "not found in the text searched, which proves no absence", "所查文本中未找到 (不证明不存在)"
    raise Unverifiable(
        f"needs a source for {name}: {shown} ({record.source})", f"需要 {name} 的来源: {shown_zh} ({record.source})"
    )


def _finding(record: Record, name: str) -> Finding:
    need_trust(record, name)
    text = f"{name}: {record.value} ({record.trust}: {record.source})"
    return Finding({"value": record.value, "trust": record.trust, "source": record.source}, text, record.source)


@check("datasheet", kind="datasheet", gives="value trust source")
def datasheet(context: Context, card: str, quantity: str) -> Finding:
    """A quantity of a card (``*_gb``, ``*_gib``, ``*_tb_per_s``, ``*_tflops``, ...) or its architecture."""
    return _finding(hardware(context, card, quantity), f"{card} {quantity}")


@check("datasheet-ratio", kind="datasheet", gives="value")
def datasheet_ratio(context: Context, quantity: str, of: str, to: str) -> Finding:
    """How many times the quantity of card ``to`` that of card ``of`` is."""
    upper, lower = (_finding(hardware(context, card, quantity), f"{card} {quantity}") for card in (of, to))
    ratio = upper.values["value"] / lower.values["value"]
    return Finding({"value": ratio}, f"{upper.text}; {lower.text}; ratio {ratio:.2f}", f"{upper.where}; {lower.where}")


@check("cards-with", kind="datasheet", gives="value count")
def cards_with(context: Context, quantity: str, equal: Any, maker: str = "") -> Finding:
    """Names of all cards of the table (of one maker) whose quantity equals a value: e.g. every gfx90a."""
    table = load_table(context.data / "hardware.yaml")
    known = [
        (card, cells[quantity])
        for card, cells in table.items()
        if quantity in cells and (not maker or cells["maker"].value == maker)
    ]
    names = [card for card, record in known if record.value == equal and record.trust in USABLE]
    text = f"{quantity} = {equal}: {', '.join(names) or 'none'} of {', '.join(card for card, _ in known)}"
    return Finding({"value": names, "count": len(names)}, text, "hardware.yaml")


@check("literature", kind="literature", gives="value trust source")
def literature(context: Context, work: str, field: str) -> Finding:
    """A field of a paper, pull request or model card: authors, year, what it claims."""
    return _finding(lookup(context.data / "literature.yaml", work, field), f"{work} {field}")
