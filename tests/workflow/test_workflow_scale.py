"""benchmarks/scale.py in small: this workflow's plan has the jobs of the bare one it is held against, in little memory.

What a thousand arms cost in time is measured by the benchmark.
"""

from __future__ import annotations

import sys
from pathlib import Path

from adrbench.paths import ROOT

# On the path, so that the processes that the benchmark starts find it by name.
sys.path.append(str(ROOT / "benchmarks"))
import scale


def test_the_memory_is_that_of_the_process_alone(tmp_path: Path) -> None:
    """A peak is carried over exec: a child of a large process looked as large as that."""
    ballast = bytearray(400 << 20)
    found = scale.timed([sys.executable, "-S", "-c", "pass"], tmp_path / "log")
    assert found.mib < 100, len(ballast)


def test_a_plan_is_that_of_a_bare_one_and_stays_small(tmp_path: Path) -> None:
    found = scale.measure(tmp_path, arms=40, rounds=3, repeats=2)
    assert found["jobs"] >= 40 * 3 + 40
    assert found["files"]["outputs"] >= 40 * 3 * 3 + 40
    assert found["ratio"]["least"] > 0  # how large it is, is the benchmark's business: a test is not timed
    assert 20 < found["mib"]["ours"]["most"] <= 500


def test_plans_of_another_shape_are_not_compared() -> None:
    one = scale.Job("serve", "logs/a.log", frozenset({"device.json"}), ("a.json",))
    other = scale.Job("serve", "logs/a.log", frozenset({"model.json"}), ("a.json",))
    assert scale.shape([one]) == scale.shape([one])
    assert scale.shape([one]) != scale.shape([other])
