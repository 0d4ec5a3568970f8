"""The example evidence, as a module and as ready specifications."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from adrbench.paths import ROOT
from adrbench.report.spec import Spec


@pytest.fixture(scope="session")
def example() -> ModuleType:
    """The builder of the example evidence, which is no test module."""
    path = Path(__file__).with_name("example_evidence.py")
    found = importlib.util.spec_from_file_location("report_example_evidence", path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


# Every shipped decision: a comparison with tables of its own, one with the common sections, records of facts.
# A strategy has evidence of its own kinds and tests of its own (test_report_strategy.py).
ADRS = sorted(
    path.stem
    for path in (ROOT / "config/decisions").glob("adr*.yaml")
    if yaml.safe_load(path.read_text(encoding="utf-8")).get("kind") != "strategy"
)


@pytest.fixture(params=ADRS)
def adr(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["en", "zh"])
def language(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def built(example: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Specifications by ADR over example evidence that all tests share: a test that changes files builds its own."""
    return {adr: example.build(tmp_path_factory.mktemp(adr), adr) for adr in ADRS}


@pytest.fixture
def spec(built: dict[str, dict[str, Any]], adr: str, language: str) -> Spec:
    return Spec.model_validate(built[adr] | {"language": language})
