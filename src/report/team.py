"""The team's own tables: what their ADRs state, row by row, beside what is known about each statement.

The files of ``tables/`` are data with sources; a number in them is a citation, never a measurement.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import yaml
from adrbench.config.section import Section, Text
from pydantic import Field

FOLDER = Path(__file__).with_name("tables")


class Layer(Section):
    """A way of putting a backend into vLLM (block A)."""

    name: str
    title: Text
    trigger: Text
    fact: Text
    risk: Text
    claims: list[str] = Field(description="prefixes of the ids of the claims that this row makes")


class DeviceRow(Section):
    """A row of block B; ``measured`` names the quantity that stands against it."""

    measured: str
    dimension: Text
    team: Text
    fact: Text
    source: str
    claims: list[str]


class Stated(Section):
    """What the team wrote about a KV scheme."""

    memory: str
    delta: str
    support: Text
    cost: Text


class SchemeRow(Section):
    """A row of block C, and how arms, flags and kernel checks are recognised as belonging to it."""

    id: str
    title: Text
    schemes: list[str]
    flags: list[str]
    formats: list[str]
    team: Stated
    fact: Text
    claims: list[str]


class Item(Section):
    """An entry of a checklist; ``check`` names the function that computes its state."""

    check: str
    phase: Text
    text: Text


class Consequence(Section):
    """What the team drew from the decision, and how it stands now."""

    team: Text
    now: Text


class Remark(Section):
    team: Text
    fact: Text


class Way(Section):
    """A row of ADR 0010's table of ways (接入方式)."""

    name: str
    way: Text
    team: Text
    fact: Text
    claims: list[str]


class Statement(Section):
    """Something that the team's documents say on the question, beside what is known."""

    team: Text
    fact: Text
    claims: list[str] = Field(description="prefixes of the ids of the claims that this row makes")


class Column(Section):
    """A column of the options' table: a key of each arm's serving evidence."""

    title: Text
    key: str = Field(description="dotted key, such as `resolved.block_size`")
    unit: str = Field("number", description="a unit of `report/numbers.py`")
    first_round: bool = Field(False, description="the first round's value, of what later rounds do not repeat")


# What an ADR shows when its table file says nothing else. Each is a template `_<name>.md.j2`.
SECTIONS = [
    "decision", "statements", "options", "serving", "accuracy", "gates", "dissent", "turning", "lock", "history",
    "resolutions", "consequences", "checklist", "proof",
]  # fmt: skip
BLANK = Text(en="", zh="")


class Document(Section):
    """What the team wrote on one ADR's question, and the sections that the ADR is made of.

    ``statements_of``: prefixes of the ids of the claims that the ADR lists; empty: those of its own number.
    """

    document: str = Field("", description="the team's own ADR that this one replaces; empty: there is none at hand")
    related: Text = BLANK
    context: Text = BLANK
    sections: list[str] = SECTIONS
    statements_of: list[str] = Field([])
    statements: list[Statement] = Field([])
    columns: list[Column] = Field([])
    consequences: list[Consequence] = Field([])
    layers: list[Layer] = Field([])
    device_rows: list[DeviceRow] = Field([])
    schemes: list[SchemeRow] = Field([])
    candidates: dict[str, Remark] = Field({}, description="by backend name")
    architectures: list[str] = Field([])
    ways: list[Way] = Field([])
    checklist_title: Text = BLANK
    checklist: list[Item] = Field([])


@cache
def document(adr: str) -> Document:
    """The table file of an ADR; an ADR without one has the common sections and nothing of the team's."""
    path = FOLDER / f"{adr}.yaml"
    return Document.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")) if path.is_file() else {})


def shared() -> Document:
    """The document whose tables of device and integration rows every ADR refers to."""
    return document("adr0011")
