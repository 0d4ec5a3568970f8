"""The options' own columns: over rounds, but where a later round is no repeat of the first."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from adrbench.config.files import read_yaml
from adrbench.paths import ROOT
from adrbench.report.lookup import Cell
from adrbench.report.lookup import median as median_of
from adrbench.report.team import Column
from adrbench.report.verdicts import _columns


def shown(**column: Any) -> Any:
    """The column of an arm whose first start took 90 s, as it compiled, and the later ones 40 s."""
    starts = {"one": 90.0, "two": 40.0, "three": 40.0}

    def cell(name: str, *_key: str, unit: str) -> Cell:
        return Cell(starts[name], unit=unit)

    context = SimpleNamespace(
        tiers=["short"],
        documents=lambda _arm, _tier: list(starts),
        store=SimpleNamespace(cell=cell),
        over_rounds=lambda _arm, _tier, *key, unit: median_of([cell(name, *key, unit=unit) for name in starts]),
    )
    told = Column.model_validate({"title": "x", "key": "measured.start_s", "unit": "s"} | column)
    return _columns(context, "auto", [told])[0].value  # type: ignore[arg-type]


def test_a_start_that_compiled_is_not_mixed_with_starts_that_loaded() -> None:
    assert shown() == 40.0
    assert shown(first_round=True) == 90.0


def test_every_table_with_a_servers_start_shows_that_of_the_first_round() -> None:
    found = [
        column
        for file in (ROOT / "src/report/tables").glob("*.yaml")
        for column in read_yaml(file).get("columns", [])
        if column["key"] == "measured.start_s"
    ]
    assert found
    assert all(column.get("first_round") for column in found)
