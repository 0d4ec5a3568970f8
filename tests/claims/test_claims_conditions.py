"""Comparing a found value with what a claim says: pure functions."""

from __future__ import annotations

from typing import Any

import pytest
from adrbench.claims.conditions import ConditionError, compare_lines, judge, parse, worst


@pytest.mark.parametrize(
    ("found", "wanted", "verdict"),
    [
        ([210, 262], [210, 262], "holds"),
        ([210, 262], [210, 258], "imprecise"),
        ([210, 262], [300, 310], "moved"),
        ([781, 783], 782, "holds"),
        ([781, 783], 784, "moved"),
        ([5, 5], [5, 5], "holds"),
        (None, 5, "false"),
    ],
)
def test_places(found: list[int] | None, wanted: int | list[int], verdict: str) -> None:
    assert compare_lines(found, wanted) == verdict


@pytest.mark.parametrize(
    ("raw", "found", "verdict"),
    [
        (24, 24, "holds"),
        (24, 25, "false"),
        (True, False, "false"),
        (None, None, "holds"),
        (None, "x", "false"),
        ({"not": None}, None, "false"),
        ({"is": 128, "otherwise": "imprecise"}, 64, "imprecise"),
        ({"about": [3.8, 0.02]}, 3.82, "holds"),
        ({"about": [3.8, 0.02]}, 3.9, "false"),
        ({"about": [-1.0, 0.1]}, -1.05, "holds"),
        ({"between": [14, 22]}, 14, "holds"),
        ({"between": [14, 22]}, 22.1, "false"),
        ({"has": ["a", "b"]}, ["b", "a", "c"], "holds"),
        ({"has": "a"}, ["b"], "false"),
        ({"lacks": ["int4"]}, ["fp8"], "holds"),
        ({"lacks": ["int4", "fp8"]}, ["fp8"], "false"),
        ({"same_members": ["b", "a"]}, ["a", "b"], "holds"),
        ({"same_members": ["a"]}, ["a", "b"], "false"),
        ({"matches": "^Value"}, "ValueError: x", "holds"),
        ({"at_least": 50}, 50, "holds"),
        ({"above": 50}, 50, "false"),
        ({"below": 1}, 0.42, "holds"),
        ({"at_most": 1}, 3, "false"),
        ({"at_least": 1}, None, "false"),
    ],
)
def test_operators(raw: Any, found: Any, verdict: str) -> None:
    assert judge(found, parse("field", raw)) == verdict


def test_a_path_that_differs_is_moved_not_false() -> None:
    assert judge("vllm/v1/x.py", parse("path", "vllm/x.py")) == "moved"


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ({"near": 3}, "must be one operator"),
        ({"is": 1, "not": 2}, "must be one operator"),
        ({}, "must be one operator"),
        ({"about": 3}, "takes two numbers"),
        ({"is": 1, "otherwise": "wrong"}, "is not one of"),
        ({"is": 1, "otherwise": "holds"}, "is not one of"),
    ],
)
def test_a_condition_that_cannot_be_read_names_the_field(raw: Any, text: str) -> None:
    with pytest.raises(ConditionError, match=text) as error:
        parse("count", raw)
    assert str(error.value).startswith("count: ")


def test_the_worst_verdict_wins() -> None:
    assert worst([]) == "holds"
    assert worst(["holds", "imprecise", "moved"]) == "moved"
    assert worst(["unverified", "moved"]) == "unverified"
    assert worst(["unverified", "false"]) == "false"
