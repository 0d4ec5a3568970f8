"""Contradictions of the team's documents: each is resolved by a key of a decision file, or no decision has to."""

from __future__ import annotations

import pytest
import yaml
from adrbench.claims.open_items import load_items
from adrbench.config.decision import model_of
from adrbench.config.files import ConfigError
from adrbench.config.parse import parse
from adrbench.paths import ROOT

FILES = sorted((ROOT / "config/decisions").glob("adr*.yaml"))
ITEMS = {item.id: item for item in load_items(ROOT / "config/claims/open.yaml") if item.kind == "contradiction"}
RAW = {path.stem: yaml.safe_load(path.read_text()) for path in FILES}
DECISIONS = {name: parse(model_of(data), data, name) for name, data in RAW.items()}
RESOLVED = {item.id: name for name, decision in DECISIONS.items() for item in decision.resolutions}


def test_all_seventeen_are_listed() -> None:
    assert sorted(ITEMS, key=lambda name: int(name[3:])) == [f"F8-{n}" for n in range(1, 18)]


@pytest.mark.parametrize("name", ITEMS)
def test_a_contradiction_is_resolved_or_not_applicable(name: str) -> None:
    assert (name in RESOLVED) != (ITEMS[name].not_applicable is not None)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_decision_resolves_what_exists_by_a_key_that_exists(path) -> None:
    decision = DECISIONS[path.stem]
    assert decision.resolutions, "a decision file names the ambiguities of its question"
    for item in decision.resolutions:
        assert not item.id.startswith("F8-") or item.id in ITEMS, item.id
        assert decision.value_at(item.by) is not None, item.by
        assert item.text.en != item.text.zh


def test_a_resolution_by_no_key_is_refused() -> None:
    data = RAW["adr0010"] | {"resolutions": [{"id": "F8-6", "by": "gates.G99", "text": "x"}]}
    with pytest.raises(ConfigError, match=r"resolutions\[F8-6\].by: 'gates.G99' is no key of this file"):
        parse(model_of(data), data, "adr0010.yaml")


def test_facts_take_no_options_and_a_comparison_takes_no_checks() -> None:
    for name, extra, key in (("adr0001", {"options": []}, "options"), ("adr0010", {"checks": []}, "checks")):
        data = RAW[name] | extra
        with pytest.raises(ConfigError, match=key):
            parse(model_of(data), data, f"{name}.yaml")
