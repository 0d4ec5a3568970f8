"""Claim files: one statement of a document an entry, with the check that proves or refutes it."""

from __future__ import annotations

import string
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml
from adrbench.claims import checks  # noqa: F401  (fills the register)
from adrbench.claims.conditions import Condition, ConditionError, parse
from adrbench.claims.registry import CHECKS, Check, Kind, Text
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator


class ClaimError(ValueError):
    """A claim file cannot be used; the text names file, entry, key and what is allowed."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Place(_Strict):
    """Where the statement stands. ``lines``: of the document's text, from 1, when it has stable lines."""

    document: str
    section: str
    lines: list[int] = Field(default_factory=list)


class Part(_Strict):
    """One check and what it must find.

    ``check`` is ``{name: ..., argument: value, ...}``; ``expect`` maps fields of its finding to
    conditions (see ``conditions``). ``correction`` is a template over the finding's fields, so a
    corrected value is the check's own and is never typed.
    """

    check: dict[str, Any]
    expect: dict[str, Any]
    correction: Text | None = None

    @property
    def registered(self) -> Check:
        return CHECKS[self.check["name"]]

    @property
    def arguments(self) -> dict[str, Any]:
        return {key: value for key, value in self.check.items() if key != "name"}

    @property
    def conditions(self) -> dict[str, Condition]:
        return {name: parse(name, raw) for name, raw in self.expect.items()}

    @model_validator(mode="after")
    def _fits_its_check(self) -> Part:
        name = self.check.get("name")
        if name not in CHECKS:
            raise ValueError(f"check: unknown check {name!r}; known: {', '.join(sorted(CHECKS))}")
        self.registered.validate(self.arguments)
        if not self.expect:
            raise ValueError("expect: is empty, so the claim could not fail")
        gives = self.registered.gives
        if unknown := sorted(self.expect.keys() - set(gives)):
            raise ValueError(f"expect: check {name!r} gives no {unknown[0]!r}; it gives: {', '.join(gives)}")
        try:
            for field, raw in self.expect.items():
                parse(field, raw)
        except ConditionError as error:
            raise ValueError(f"expect: {error}") from None
        for text in (self.correction.en, self.correction.zh) if self.correction else ():
            if unknown := sorted(_placeholders(text) - set(gives)):
                raise ValueError(f"correction: {{{unknown[0]}}} is not given by check {name!r}: {', '.join(gives)}")
        return self


class Claim(Part):
    """One statement. It holds when its check and every check under ``also`` find what is expected."""

    id: str
    place: Place
    statement: Text
    kind: Kind
    also: list[Part] = Field(default_factory=list)
    note: Text | None = None
    file: str = ""

    @property
    def parts(self) -> list[Part]:
        return [self, *self.also]

    @model_validator(mode="after")
    def _kind_is_its_checks(self) -> Claim:
        if self.registered.kind != self.kind:
            raise ValueError(
                f"kind: is {self.kind!r}, but check {self.check['name']!r} is of kind {self.registered.kind!r}"
            )
        return self


def _placeholders(template: str) -> set[str]:
    names = (name for _, name, _, _ in string.Formatter().parse(template) if name is not None)
    return {name.partition("[")[0].partition(".")[0] for name in names}


def _load_yaml(path: Path) -> Any:
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ClaimError(f"{path}: no such claim file") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ClaimError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from None


def _message(error: ValidationError) -> str:
    """The innermost complaint of a validation error, as ``key: text``."""
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    text = first["msg"].removeprefix("Value error, ")
    return f"{where}: {text}" if where else text


def _load_file(path: Path) -> list[Claim]:
    data = _load_yaml(path)
    if not isinstance(data, dict) or set(data) != {"claims"} or not isinstance(data["claims"], list):
        raise ClaimError(f"{path}: must be a mapping with the one key 'claims', a list of entries")
    claims = []
    for number, entry in enumerate(data["claims"], 1):
        name = entry.get("id", f"entry {number}") if isinstance(entry, dict) else f"entry {number}"
        try:
            claims.append(Claim.model_validate({**entry, "file": str(path)} if isinstance(entry, dict) else entry))
        except ValidationError as error:
            raise ClaimError(f"{path}: {name}: {_message(error)}") from None
    return claims


def load(paths: Iterable[Path | str]) -> list[Claim]:
    """All claims of the files, in file order.

    Raises:
        ClaimError: naming file and entry: unknown check, unknown or missing key or argument, an
            expectation that its check cannot answer, or an id that occurs twice.
    """
    claims = [claim for path in paths for claim in _load_file(Path(path))]
    seen: dict[str, str] = {}
    for claim in claims:
        if claim.id in seen:
            raise ClaimError(f"{claim.file}: {claim.id}: this id is already used in {seen[claim.id]}")
        seen[claim.id] = claim.file
    return claims
