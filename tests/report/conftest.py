"""The example evidence, as a module and as ready specifications."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from adrbench.paths import ROOT
from adrbench.report.figures.__main__ import write as write_figures
from adrbench.report.imported.__main__ import import_file, safe_name
from adrbench.report.page.__main__ import write as write_page
from adrbench.report.site import SiteSpec, load
from adrbench.report.spec import Spec
from adrbench.report.tidy.__main__ import write as write_tidy

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def example() -> ModuleType:
    """The builder of the example evidence, which is no test module."""
    import report_example

    return report_example


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


@pytest.fixture(scope="session")
def site_spec(example: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The page's specification over example evidence of two decisions, with imports and kernel benchmarks."""
    folder = tmp_path_factory.mktemp("site")
    samples = Path(__file__).with_name("imported_samples")
    imported = folder / "results/cpu/imported"
    files = [import_file(path, imported, "cpu", safe_name(path.stem)) for path in sorted(samples.glob("*.json"))]
    return example.site(folder) | {
        "imported": [str(path) for path in files],
        "kernels": [str(ROOT / "docs/evidence/h200/decode_main.json")],
    }


@pytest.fixture(scope="session")
def page(site_spec: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page with its figures and data, as the workflow lays them out."""
    spec, folder = SiteSpec.model_validate(site_spec), tmp_path_factory.mktemp("page") / "reports/cpu"
    site = load(spec)
    write_tidy(site, folder / "data")
    write_figures(site, folder / "figures")
    write_page(spec, folder / "index.html")
    return folder / "index.html"
