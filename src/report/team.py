"""The team's own tables: what their ADRs state, row by row, beside what is known about each statement.

The files of ``tables/`` are data with sources; a number in them is a citation, never a measurement.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import yaml
from adrbench.config.models import Section, Text
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


class Document(Section):
    """What both ADRs have."""

    document: str
    related: Text
    consequences: list[Consequence]


class Adr0011(Document):
    layers: list[Layer]
    device_rows: list[DeviceRow]
    schemes: list[SchemeRow]
    checklist: list[Item]


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


class Adr0010(Document):
    candidates: dict[str, Remark] = Field(description="by backend name")
    architectures: list[str]
    ways: list[Way]
    todos: list[Item]


def _read(name: str) -> object:
    return yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))


@cache
def adr0011() -> Adr0011:
    return Adr0011.model_validate(_read("adr0011"))


@cache
def adr0010() -> Adr0010:
    return Adr0010.model_validate(_read("adr0010"))
