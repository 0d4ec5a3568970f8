"""Names of the figures in the order of the page; light, because the workflow's plan imports it."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import yaml

FIGURES = (
    "pareto",
    "latency_ttft",
    "latency_tpot",
    "rounds",
    "kv_memory",
    "roofline",
    "shares",
    "bandwidth",
    "gates",
    "kernels",
)
SUFFIXES = {"en": ".svg", "zh": ".zh.svg"}


@cache
def texts() -> dict[str, dict[str, str]]:
    """All words of the figures by key, in both languages."""
    return dict(yaml.safe_load(Path(__file__).with_name("texts.yaml").read_text(encoding="utf-8")))


def files() -> list[str]:
    """Every file that the figures job writes."""
    drawn = [f"{name}{suffix}" for name in FIGURES for suffix in (*SUFFIXES.values(), ".csv")]
    return [*drawn, "figures.json"]
