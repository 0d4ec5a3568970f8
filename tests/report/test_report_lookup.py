"""Looking values up: present, missing, derived, refused."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest
from adrbench.evidence import EvidenceError
from adrbench.report.lookup import MISSING, Cell, Source, Store, derive, median, ratio


@pytest.fixture
def store() -> Store:
    made = Store()
    made.add("d", {"a": {"median": 2.0, "low": 1.5, "high": None}, "rows": [{"x": 7}], "none": None, "word": "text"})
    return made


def test_a_value_knows_where_it_stands(store: Store) -> None:
    assert store.cell("d", "rows", 0, "x", unit="count") == Cell(7, "count", sources=(Source("d", "rows.0.x"),))


def test_an_interval_names_the_keys_of_its_ends(store: Store) -> None:
    cell = store.cell("d", "a")
    assert (cell.value, cell.low, cell.high) == (2.0, 1.5, None)
    assert [source.key for source in cell.sources] == ["a.median", "a.low"]


@pytest.mark.parametrize("key", [("none",), ("absent",), ("rows", 3, "x"), ("word", "deeper"), ("rows",)])
def test_what_is_not_there_is_missing(store: Store, key: tuple[str | int, ...]) -> None:
    assert store.cell("d", *key) == MISSING
    assert not store.cell("other", *key)


def test_a_derived_value_carries_all_sources_and_is_missing_with_any_of_them() -> None:
    a, b = Cell(6.0, "ms", sources=(Source("a", "k"),)), Cell(3.0, "ms", sources=(Source("b", "k"),))
    assert ratio(a, b) == Cell(2.0, "ratio", sources=(Source("a", "k"), Source("b", "k")))
    assert ratio(a, MISSING) == MISSING
    assert ratio(a, Cell(0.0)) == MISSING
    assert derive(lambda x: x, unit="ms") == MISSING


def test_median_over_rounds_shows_their_range() -> None:
    cells = [Cell(v, "ms", sources=(Source(str(v), "k"),)) for v in (3.0, 9.0, 4.0)]
    found = median([*cells, MISSING])
    assert (found.value, found.low, found.high, len(found.sources)) == (4.0, 3.0, 9.0, 3)
    assert median([MISSING]) == MISSING
    assert median(cells[:1]) == cells[0]


def test_text_is_no_number() -> None:
    with pytest.raises(ValueError, match="not a number"):
        _ = Cell("text").amount


def test_a_file_that_was_asked_for_must_be_readable(example: ModuleType, tmp_path: Path) -> None:
    good = example.build(tmp_path)["evidence"]
    assert Store.open({"device": Path(good["device"]), "claims": None}).has("device")
    with pytest.raises(EvidenceError, match=r"gone\.json: no such evidence file"):
        Store.open({"device": tmp_path / "gone.json"})
    decide = Path(good["decide"])
    data = json.loads(decide.read_text())
    for change, message in (
        ({"schema_version": 2}, "schema_version is 2"),
        ({"status": {"word": "Maybe"}}, "status.word"),
    ):
        decide.write_text(json.dumps(data | change))
        with pytest.raises(EvidenceError, match=message):
            Store.open({"decide": decide})
