"""The example evidence, as a module and as ready specifications."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
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


@pytest.fixture(params=["adr0010", "adr0011"])
def adr(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["en", "zh"])
def language(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def spec(example: ModuleType, tmp_path: Path, adr: str, language: str) -> Spec:
    """A specification over freshly written example evidence."""
    return Spec.model_validate(example.build(tmp_path, adr, language))
