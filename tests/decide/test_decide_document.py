"""docs/decide.md prints what the committed simulation tables hold."""

import json
import re

from adrbench.paths import ROOT

TEXT = (ROOT / "docs/decide.md").read_text(encoding="utf-8").split("## What simulation says")[1]
TABLES = [
    json.loads((ROOT / f"benchmarks/{name}.json").read_text())
    for name in ("decide_simulation", "decide_simulation_recorded")
]


def rates(value):
    """Every rate of a table as the document prints it."""
    if isinstance(value, dict):
        if {"rate", "low", "high"} <= value.keys():
            yield f"{value['rate']:.3f} [{value['low']:.3f}, {value['high']:.3f}]"
        for inner in value.values():
            yield from rates(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from rates(inner)


def test_every_rate_with_its_interval_is_in_a_table():
    printed = re.findall(r"\d\.\d{3} \[\d\.\d{3},\s\d\.\d{3}\]", TEXT)
    known = {rate for table in TABLES for rate in rates(table)}
    assert len(printed) > 20
    assert [rate for rate in printed if rate.replace("\n", " ") not in known] == []


def test_the_shares_of_the_grid_are_those_of_the_table():
    rows = {(row["scenario"], row["noise"]["sd"]): row["adaptive_share_of_grid"] for row in TABLES[0]["outcomes"]}
    for words, scenario in (
        ("one gains 10 %", "10 % gain, one of three, 10 rounds"),
        ("gains of 15 %, -5 %, -20 %", "15 % gain, 5 % and 20 % loss, 10 rounds"),
        ("losses of 10, 20, 30 %", "20 %, 10 % and 30 % loss, 10 rounds"),
        ("nothing differs", "A/A, three options, 10 rounds"),
    ):
        line = next(line for line in TEXT.splitlines() if line.startswith(f"| {words} |"))
        shown = [cell.strip() for cell in line.split("|")[2:5]]
        assert shown == [f"{rows[scenario, sd]:.2f}" if (scenario, sd) in rows else "" for sd in (0.02, 0.04, 0.1)]
    assert f"is {TABLES[0]['adaptive_mean_share']:.2f}" in TEXT


def test_what_is_promised_holds_in_the_tables():
    """False switches at most 5 %, where options scatter as the baseline does; the rest is told in the document."""
    for table in TABLES:
        for row in table["outcomes"]:
            if row["design"]["scatter"] == 1.0:
                for kind in ("false_switch", "false_switch_adaptive"):
                    assert row.get(kind, {"rate": 0.0})["rate"] <= 0.05, row["scenario"]
    assert TABLES[0]["adaptive_mean_share"] <= 0.6
    assert all(0.93 <= found["rate"] <= 0.97 for found in TABLES[0]["coverage"].values())
    assert all(table["experiments"] >= 2000 for table in TABLES)
