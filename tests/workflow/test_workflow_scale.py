"""benchmarks/scale.py in small: this workflow's plan costs no more than 1.5 times a bare one of the same jobs.

Processor seconds of both are compared on the same machine. What a thousand arms cost is measured by the benchmark.
"""

from __future__ import annotations

import sys
from pathlib import Path

from adrbench.paths import ROOT

# On the path, so that the processes that the benchmark starts find it by name.
sys.path.append(str(ROOT / "benchmarks"))
import scale


def test_a_plan_costs_little_more_than_a_bare_one(tmp_path: Path) -> None:
    found = scale.measure(tmp_path, arms=40, rounds=3, repeats=2)
    assert found["jobs"] >= 40 * 3 + 40
    assert found["files"]["outputs"] >= 40 * 3 * 3 + 40
    assert found["ratio"]["least"] <= 1.5
    assert found["mib"]["ours"]["most"] <= 500


def test_plans_of_another_shape_are_not_compared() -> None:
    one = scale.Job("serve", "logs/a.log", frozenset({"device.json"}), ("a.json",))
    other = scale.Job("serve", "logs/a.log", frozenset({"model.json"}), ("a.json",))
    assert scale.shape([one]) == scale.shape([one])
    assert scale.shape([one]) != scale.shape([other])
