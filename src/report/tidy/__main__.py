"""Write the tidy tables: ``python -m adrbench.report.tidy --spec JSON --output reports/<platform>/data``."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd
from adrbench.evidence import write_json, write_text
from adrbench.report.command import run
from adrbench.report.site import Site, load
from adrbench.report.tidy.names import columns
from adrbench.report.tidy.rows import TABLES, Row

DTYPES = {"string": "string", "integer": "Int64", "number": "Float64", "boolean": "boolean"}


def frame(name: str, rows: Iterable[Row]) -> pd.DataFrame:
    """Rows as a table with the documented columns in their order and types.

    Raises:
        ValueError: a row has other columns than ``columns.yaml`` documents.
    """
    documented = columns()[name]["columns"]
    found = list(rows)
    for row in found:
        if odd := set(row) ^ set(documented):
            raise ValueError(f"{name}: column {sorted(odd)[0]!r} differs from columns.yaml")
    dtypes = {column: DTYPES[entry["type"]] for column, entry in documented.items()}
    return pd.DataFrame(found, columns=list(documented)).astype(dtypes)


def write_parquet(path: Path, table: pd.DataFrame) -> None:
    """Atomic: a reader sees the old file or the new one."""
    temporary = path.with_name(f".{path.name}.part")
    table.to_parquet(temporary, index=False)
    os.replace(temporary, path)


def readme(sizes: dict[str, int]) -> str:
    """Documentation of every table and column."""
    lines = [
        "# Data",
        "",
        "One row an observation. Each table is there as CSV (UTF-8, comma, header) and as Parquet with types; an",
        "empty field means that nobody measured it. Made from evidence by `python -m adrbench.report.tidy`;",
        "`schema.json` says the same for programs.",
        "",
    ]
    for name, table in columns().items():
        lines += [
            f"## {name}",
            "",
            f"{table['about']} {sizes[name]:,} rows.",
            "",
            "| column | type | unit | |",
            "|---|---|---|---|",
        ]
        for column, entry in table["columns"].items():
            lines.append(f"| `{column}` | {entry['type']} | {entry.get('unit', '')} | {entry['about']} |")
        lines.append("")
    return "\n".join(lines)


def schema() -> dict[str, Any]:
    """Tables and columns in the form of a frictionless Table Schema."""
    return {
        name: {
            "description": table["about"],
            "fields": [
                {"name": column, "type": entry["type"], "unit": entry.get("unit"), "description": entry["about"]}
                for column, entry in table["columns"].items()
            ],
            "missingValues": [""],
        }
        for name, table in columns().items()
    }


def write(site: Site, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    sizes = {}
    for name, rows in TABLES.items():
        table = frame(name, rows(site))
        sizes[name] = len(table)
        write_text(folder / f"{name}.csv", table.to_csv(index=False, lineterminator="\n"))
        write_parquet(folder / f"{name}.parquet", table)
    write_text(folder / "README.md", readme(sizes))
    write_json(folder / "schema.json", schema())


if __name__ == "__main__":
    run("report tidy", lambda spec, output: write(load(spec), output))
