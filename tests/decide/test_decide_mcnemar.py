"""McNemar's test, and the weight of task classes with several lengths."""

from __future__ import annotations

import pytest
from adrbench.decide.accuracy import by_class
from adrbench.decide.mcnemar import mcnemar


def test_six_losses_and_no_gain_are_significant() -> None:
    found = mcnemar([100.0] * 6 + [0.0] * 4, [0.0] * 10)
    assert found is not None
    assert (found.baseline_only, found.arm_only, found.binary) == (6, 0, True)
    assert found.p_value == pytest.approx(2 * 0.5**6)


def test_equal_losses_and_gains_are_not() -> None:
    found = mcnemar([100.0, 0.0, 100.0], [0.0, 100.0, 100.0])
    assert found is not None
    assert found.p_value == 1.0


def test_equal_answers_say_nothing() -> None:
    found = mcnemar([100.0, 0.0], [100.0, 0.0])
    assert found is not None
    assert (found.baseline_only, found.arm_only, found.p_value) == (0, 0, 1.0)


def test_partial_credit_is_tested_on_full_marks() -> None:
    found = mcnemar([100.0, 75.0, 100.0], [75.0, 50.0, 100.0])
    assert found is not None
    assert (found.baseline_only, found.arm_only, found.binary) == (1, 0, False)


def test_a_task_without_full_marks_is_not_tested() -> None:
    assert mcnemar([31.5, 20.0], [30.0, 99.9]) is None


def test_two_lengths_of_a_class_share_its_weight() -> None:
    tasks = {"a-1k": {"task": "a"}, "a-2k": {"task": "a"}, "b": {}}
    assert by_class({"a-1k": [1.0], "a-2k": [3.0], "b": [5.0]}, tasks) == [[1.0, 3.0], [5.0]]
