"""Names of the tidy tables and their columns; light, because the workflow's plan imports it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml


@cache
def columns() -> dict[str, dict[str, Any]]:
    """Documentation by table: ``about`` and ``columns``."""
    return dict(yaml.safe_load(Path(__file__).with_name("columns.yaml").read_text(encoding="utf-8")))


def files() -> list[str]:
    """Every file that the tidy job writes."""
    return [*(f"{name}.{suffix}" for name in columns() for suffix in ("csv", "parquet")), "README.md", "schema.json"]
