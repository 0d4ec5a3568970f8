"""Tidy tables over the example evidence."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pytest
from adrbench.evidence import EvidenceError, digest_file
from adrbench.report.site import Site, SiteSpec, load
from adrbench.report.tidy.__main__ import frame, write
from adrbench.report.tidy.names import columns, files
from adrbench.report.tidy.rows import TABLES, requests


@pytest.fixture(scope="module")
def site(example: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Site:
    return load(SiteSpec.model_validate(example.site(tmp_path_factory.mktemp("tidy"))))


def test_every_file_is_written_and_csv_and_parquet_agree(site: Site, tmp_path: Path) -> None:
    write(site, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(files())
    for name in columns():
        parquet, text = pd.read_parquet(tmp_path / f"{name}.parquet"), pd.read_csv(tmp_path / f"{name}.csv")
        assert list(parquet.columns) == list(text.columns) == list(columns()[name]["columns"])
        assert len(parquet) == len(text)


@pytest.mark.parametrize("name", sorted(TABLES))
def test_every_column_is_documented_and_in_the_schema(site: Site, tmp_path: Path, name: str) -> None:
    write(site, tmp_path)
    readme = (tmp_path / "README.md").read_text(encoding="utf-8")
    schema = json.loads((tmp_path / "schema.json").read_text(encoding="utf-8"))
    assert [field["name"] for field in schema[name]["fields"]] == list(columns()[name]["columns"])
    section = readme.partition(f"## {name}\n")[2].partition("\n## ")[0]
    for column in columns()[name]["columns"]:
        assert f"| `{column}` |" in section


def test_tables_have_a_row_an_observation(site: Site) -> None:
    sizes = {name: len(list(rows(site))) for name, rows in TABLES.items()}
    # 3 arms, the baseline twice: 4 rounds of 3 tiers with 16 requests; 2 tasks of 14 samples; 40 claims.
    assert sizes["rounds"] == 12
    assert sizes["requests"] == 12 * 16
    assert sizes["accuracy"] == 3 * 2 * 14
    assert sizes["claims"] == 40
    assert sizes["gates"] > 0
    assert sizes["imported"] == 0


def test_values_are_those_of_the_evidence(site: Site) -> None:
    table = frame("rounds", TABLES["rounds"](site))
    row = table[(table["arm"] == "fp8-e4m3") & (table["tier"] == "long")].iloc[0]
    document = json.loads(Path(row["evidence"]).read_text(encoding="utf-8"))
    assert row["ttft_p99_ms"] == document["measured"]["ttft_ms"]["p99"]
    assert row["kv_pool_tokens"] == document["resolved"]["kv_pool_tokens"]
    assert pd.isna(row["goodput_requests_per_s"])


def test_an_undocumented_column_is_refused() -> None:
    with pytest.raises(ValueError, match="rounds: column 'colour'"):
        frame("rounds", [dict.fromkeys(columns()["rounds"]["columns"]) | {"colour": "red"}])


def test_token_counts_come_from_the_raw_file_while_it_is_what_was_measured(example: ModuleType, tmp_path: Path) -> None:
    spec: dict[str, Any] = example.site(tmp_path)
    path = tmp_path / "results/cpu/serve/auto/r1/short.json"
    raw = path.with_suffix("") / "bench.json"
    raw.parent.mkdir()
    raw.write_text(json.dumps({"input_lens": [130 + n for n in range(16)], "output_lens": [32] * 16}))
    document = json.loads(path.read_text(encoding="utf-8"))
    document["files"]["bench.json"] = digest_file(raw)
    path.write_text(json.dumps(document))

    def rows() -> list[dict[str, Any]]:
        found = requests(load(SiteSpec.model_validate(spec)))
        return [row for row in found if (row["arm"], row["round"], row["tier"]) == ("auto", 1, "short")]

    assert [row["input_tokens"] for row in rows()] == [130 + n for n in range(16)]
    raw.write_text("{}")
    with pytest.raises(EvidenceError, match=r"bench\.json: changed since it was measured"):
        rows()
    raw.unlink()
    assert {row["input_tokens"] for row in rows()} == {None}
