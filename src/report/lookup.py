"""Looking numbers up: a ``Cell`` is a value with its unit, its interval and the evidence it stands in.

Nothing in a report is typed: a cell comes from a key of an evidence file, from a derivation over such
cells, or it is missing, and then it prints ``unverified``.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from adrbench import evidence
from adrbench.decide.verdict import SCHEMA_VERSION, Verdict
from adrbench.evidence import EvidenceError
from pydantic import ValidationError


@dataclass(frozen=True, order=True)
class Source:
    """Where a value stands: the logical name of a document (``serve/auto/r1/short``) and a dotted key in it."""

    document: str
    key: str


@dataclass(frozen=True)
class Cell:
    """A looked-up value. ``value`` None means that nobody measured it."""

    value: float | str | bool | None
    unit: str = "number"
    low: float | None = None
    high: float | None = None
    sources: tuple[Source, ...] = ()

    def __bool__(self) -> bool:
        return self.value is not None

    @property
    def amount(self) -> float:
        """The value as a number.

        Raises:
            ValueError: it is missing or is not a number.
        """
        if isinstance(self.value, bool) or not isinstance(self.value, (int, float)):
            raise ValueError(f"{self.value!r} from {self.sources} is not a number")
        return float(self.value)


MISSING = Cell(None)


def derive(compute: Callable[..., float], *cells: Cell, unit: str) -> Cell:
    """A value computed from others; missing when one of them is. Intervals are not propagated."""
    if not cells or not all(cells):
        return MISSING
    sources = tuple(dict.fromkeys(source for cell in cells for source in cell.sources))
    return Cell(compute(*(cell.amount for cell in cells)), unit, sources=sources)


def ratio(numerator: Cell, denominator: Cell) -> Cell:
    if not denominator or not denominator.amount:
        return MISSING
    return derive(lambda a, b: a / b, numerator, denominator, unit="ratio")


def median(cells: Sequence[Cell]) -> Cell:
    """Median over rounds, with their range as the interval where there are several; missing ones are left out."""
    present = [cell for cell in cells if cell]
    if not present:
        return MISSING
    middle = derive(lambda *values: statistics.median(values), *present, unit=present[0].unit)
    if len(present) == 1:
        return present[0]
    amounts = [cell.amount for cell in present]
    return Cell(middle.value, middle.unit, min(amounts), max(amounts), middle.sources)


@dataclass
class Document:
    """One file of evidence: its data as plain JSON, None when the report was given none."""

    name: str
    path: Path | None
    data: dict[str, Any] | None = None


def read_decide(path: Path) -> dict[str, Any]:
    """The decision stage's document, which is not a measurement and has a schema of its own.

    Raises:
        EvidenceError: missing, damaged, or of a version this one does not read.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise EvidenceError(f"{path}: no such file; rerun the decide job") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise EvidenceError(f"{path}: not valid JSON ({error}); delete it and rerun the decide job") from None
    version = data.get("schema_version") if isinstance(data, dict) else None
    if version != SCHEMA_VERSION:
        raise EvidenceError(f"{path}: schema_version is {version!r}, this report reads {SCHEMA_VERSION}")
    try:
        return Verdict.model_validate(data).model_dump(mode="json")
    except ValidationError as error:
        first = error.errors()[0]
        raise EvidenceError(
            f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}; rerun the decide job"
        ) from None


def read_plain(path: Path) -> dict[str, Any]:
    """A derived document with a schema of its own that its writer has checked.

    Raises:
        EvidenceError: missing or damaged.
    """
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise EvidenceError(f"{path}: no such file; rerun the job that writes it") from None
    except (UnicodeDecodeError, ValueError) as error:
        raise EvidenceError(f"{path}: not valid JSON ({error}); delete it and rerun its job") from None


# Documents that are derived from evidence, by logical name.
DERIVED: dict[str, Callable[[Path], dict[str, Any]]] = {
    "decide": read_decide,
    "history": read_plain,
    "lock": read_plain,
}


@dataclass
class Store:
    """All documents of one report, by logical name, in the order of their declaration."""

    documents: dict[str, Document] = field(default_factory=dict)

    @classmethod
    def open(cls, paths: Mapping[str, Path | None]) -> Store:
        """Read every document.

        Raises:
            EvidenceError: naming the first file that cannot be read. A path of None is not an error: such
                a document was not made, and what it would say is unverified.
        """
        store = cls()
        for name, path in paths.items():
            data = None
            if path is not None:
                reader = DERIVED.get(name)
                data = reader(path) if reader else evidence.read(path).model_dump(mode="json")
            store.documents[name] = Document(name, path, data)
        return store

    def add(self, name: str, data: dict[str, Any]) -> None:
        """A document that is no evidence file: the validated platform or decision file."""
        self.documents[name] = Document(name, None, data)

    def has(self, name: str) -> bool:
        document = self.documents.get(name)
        return document is not None and document.data is not None

    def names(self, prefix: str) -> list[str]:
        """Documents that exist below a prefix, such as ``integrate/``."""
        return [name for name in self.documents if name.startswith(prefix) and self.has(name)]

    def raw(self, name: str, *key: str | int) -> Any:
        """The plain JSON at a key, None where there is none. For structure; numbers go through ``cell``."""
        document = self.documents.get(name)
        node: Any = document.data if document else None
        for part in key:
            if isinstance(node, dict):
                node = node.get(str(part))
            elif isinstance(node, list) and isinstance(part, int) and part < len(node):
                node = node[part]
            else:
                return None
        return node

    def cell(self, name: str, *key: str | int, unit: str = "number") -> Cell:
        """The value at a key; a mapping with ``median``, ``low``, ``high`` gives a cell with an interval."""
        node, dotted = self.raw(name, *key), ".".join(map(str, key))
        if isinstance(node, dict):
            return self.interval(name, *key, value="median", unit=unit)
        if node is None or isinstance(node, list):
            return MISSING
        return Cell(node, unit, sources=(Source(name, dotted),))

    def element(self, name: str, index: int, *key: str | int, unit: str = "number") -> Cell:
        """One entry of a list."""
        node = self.raw(name, *key, index)
        sources = (Source(name, ".".join(map(str, (*key, index)))),)
        return MISSING if node is None or isinstance(node, (dict, list)) else Cell(node, unit, sources=sources)

    def interval(
        self, name: str, *key: str | int, value: str, low: str = "low", high: str = "high", unit: str = "number"
    ) -> Cell:
        """A value and its interval from three keys of one mapping."""
        centre = self.cell(name, *key, value, unit=unit)
        if not centre:
            return centre
        ends = [self.cell(name, *key, end, unit=unit) for end in (low, high)]
        sources = (*centre.sources, *(source for end in ends for source in end.sources))
        below, above = (end.amount if end else None for end in ends)
        return Cell(centre.value, unit, below, above, sources)
