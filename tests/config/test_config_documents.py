"""The generated documents are those of the models, and the schemas accept what is shipped."""

from __future__ import annotations

import json

import jsonschema
import pytest
import yaml
from adrbench.config.documents import documents
from adrbench.paths import ROOT


@pytest.mark.parametrize("path", sorted(documents()))
def test_document_is_in_step_with_the_models(path):
    assert (ROOT / path).read_text(encoding="utf-8") == documents()[path], f"{path} is stale: run `make documents`"


@pytest.mark.parametrize("name", sorted(p.name for p in (ROOT / "config/platforms").glob("*.yaml")))
def test_schema_accepts_shipped_platform(name):
    schema = json.loads((ROOT / "config/schema/platform.json").read_text())
    jsonschema.validate(yaml.safe_load((ROOT / "config/platforms" / name).read_text()), schema)


def test_schema_refuses_an_unknown_key():
    schema = json.loads((ROOT / "config/schema/platform.json").read_text())
    platform = yaml.safe_load((ROOT / "config/platforms/cpu.yaml").read_text())
    with pytest.raises(jsonschema.ValidationError, match="rouns"):
        jsonschema.validate({**platform, "rouns": 1}, schema)
