"""The command: what it writes, and what it says when it cannot."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from adrbench.paths import PYTHONPATH


def run(spec: dict[str, Any], output: Path, module: str = "adrbench.report") -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", module, "--spec", json.dumps(spec), "--output", str(output)]
    return subprocess.run(argv, env=os.environ | {"PYTHONPATH": str(PYTHONPATH)}, capture_output=True, text=True)


def test_report_is_written_or_left_as_it_was(example: ModuleType, tmp_path: Path) -> None:
    spec, output = example.build(tmp_path, "adr0011", "zh"), tmp_path / "reports/cpu/adr0011.zh.md"
    done = run(spec, output)
    assert done.returncode == 0, done.stderr
    first = output.read_text(encoding="utf-8")
    assert first.startswith("# ADR 0011")
    Path(spec["evidence"]["device"]).write_text("{", encoding="utf-8")
    failed = run(spec, output)
    assert failed.returncode == 1
    assert "device.json: not valid JSON" in failed.stderr
    assert "Traceback" not in failed.stderr
    assert output.read_text(encoding="utf-8") == first


def test_unknown_key_is_named(example: ModuleType, tmp_path: Path) -> None:
    failed = run(example.build(tmp_path) | {"colour": "red"}, tmp_path / "x.md")
    assert failed.returncode == 1
    assert "colour" in failed.stderr
    assert "Traceback" not in failed.stderr


def test_published_reports_keep_their_links(example: ModuleType, tmp_path: Path) -> None:
    outputs = []
    for language, name in (("en", "adr0011.md"), ("zh", "adr0011.zh.md")):
        outputs.append(tmp_path / "reports/cpu" / name)
        assert run(example.build(tmp_path, "adr0011", language), outputs[-1]).returncode == 0
    argv = [sys.executable, "-m", "adrbench.report.publish", *map(str, outputs), "--to", str(tmp_path / "reports")]
    subprocess.run(argv, env=os.environ | {"PYTHONPATH": str(PYTHONPATH)}, check=True)
    text = (tmp_path / "reports/adr0011.md").read_text(encoding="utf-8")
    assert "](adr0011.zh.md)" in text
    targets = [target for target in re.findall(r"\]\(([^)#]+)\)", text) if target.endswith(".json")]
    assert len(targets) > 20
    assert all((tmp_path / "reports" / target).is_file() for target in targets)
