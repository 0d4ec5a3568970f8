"""The figure command: files, both languages, and a reason in the place of what cannot be drawn."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from adrbench.evidence import Evidence, write
from adrbench.paths import PYTHONPATH
from adrbench.profile.draw import by_label
from adrbench.profile.figures import LABEL_PITCH, LABELS, _free_baseline


def spread(value: float) -> dict[str, float]:
    return {"median": value, "low": value, "high": value}


CEILING = {
    "read_bytes_per_s": spread(1e10),
    "matmul_flop_per_s": {"bfloat16": spread(1e12)},
    "by_size": [
        {"bytes": 65536 * 4**i, "read": spread(9e10 / (i + 1)), "copy": spread(7e10), "write": spread(5e10)}
        for i in range(4)
    ],
    "last_level_cache_bytes": 2 << 20,
}
PROFILE = {
    "bounds": {"decode": {"flops": 1e9, "seconds": spread(0.05), "flops_per_byte": 4.0, "matrix_dtype": "bfloat16"}},
    "phases": {"decode": {"share": 0.8, "classes": {"gemm": 3.0, "host": 1.0}}},
}


@pytest.fixture
def run(tmp_path: Path) -> Any:
    """Runs the command on evidence files; gives the folder of its figures."""

    def call(
        measured: dict[str, Any], language: str = "en", **changes: Any
    ) -> tuple[subprocess.CompletedProcess, Path]:
        stamp = {"started_at": "2026-01-01T00:00:00+00:00", "finished_at": "2026-01-01T00:00:00+00:00"}
        write(tmp_path / "ceiling.json", Evidence(stage="profile", platform="x", measured=measured, **stamp))
        write(tmp_path / "auto.json", Evidence(stage="profile", platform="x", measured=PROFILE, **stamp))
        spec = {
            "platform": "x & y",
            "language": language,
            "ceiling": str(tmp_path / "ceiling.json"),
            "profiles": {"auto": str(tmp_path / "auto.json"), "auto/long": str(tmp_path / "auto.json")},
        }
        names = [str(tmp_path / "figures" / f"{name}.zh.svg") for name in ("roofline", "shares", "bandwidth")]
        command = [
            sys.executable,
            "-m",
            "adrbench.profile.draw",
            "--spec",
            json.dumps(spec | changes),
            "--output",
            *names,
        ]
        done = subprocess.run(command, capture_output=True, text=True, env={"PYTHONPATH": str(PYTHONPATH)}, check=False)
        return done, tmp_path / "figures"

    return call


@pytest.mark.parametrize("language", sorted(LABELS))
def test_three_files_with_titles_and_ink(run: Any, language: str) -> None:
    done, folder = run(CEILING, language)
    assert done.returncode == 0, done.stderr
    for name in ("roofline", "shares", "bandwidth"):
        root = ElementTree.parse(folder / f"{name}.zh.svg").getroot()
        texts = {child.tag.rpartition("}")[2]: child.text for child in root}
        assert texts["title"] == f"{LABELS[language]['title.' + name]} (x & y)"
        assert "prefers-color-scheme" in str(texts["style"])
    assert "auto, long" in (folder / "roofline.zh.svg").read_text()


def test_a_roofline_without_a_matrix_rate_says_so(run: Any) -> None:
    done, folder = run(CEILING | {"matmul_flop_per_s": {"bfloat16": {"unsupported": "no"}}})
    assert done.returncode == 0, done.stderr
    assert "no roofline without" in (folder / "roofline.zh.svg").read_text()
    assert "<polyline" in (folder / "bandwidth.zh.svg").read_text()


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"ceiling": "/nowhere.json"}, "/nowhere.json"), ({"language": "fr"}, "specification"), ({"profiles": 3}, "spec")],
)
def test_a_specification_that_cannot_be_drawn_is_explained(run: Any, changes: dict[str, Any], message: str) -> None:
    done, folder = run(CEILING, **changes)
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not folder.exists()


def test_tiers_are_told_apart_from_arms() -> None:
    assert list(by_label({"auto/long": PROFILE}, "phases")) == ["auto, long"]


def test_labels_of_points_that_coincide_do_not() -> None:
    taken: list[float] = []
    for _ in range(5):
        taken.append(_free_baseline(100.0, taken))
    ordered = sorted(taken)
    assert taken[0] == 100.0
    assert all(b - a >= LABEL_PITCH for a, b in itertools.pairwise(ordered))
