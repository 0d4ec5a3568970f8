"""When independent profiles of one arm agree."""

from typing import Any

import pytest
from adrbench.profile.repeat import compare


def measured(prefill: float, decode: float, mixed: float | None = None, window: float = 0.4) -> dict[str, Any]:
    phases = {"prefill": {"share": prefill, "steps": 2}, "decode": {"share": decode, "steps": 47}}
    if mixed is not None:
        phases["mixed"] = {"share": mixed, "steps": 1}
    return {
        "phases": phases,
        "window_shares": {"prefill": {"median": window}, "decode": {"median": 1 - window}},
        "decode": {"step_seconds": {"median": 0.05}},
        "overhead": {"ratio": 1.1},
    }


def test_five_points_are_the_limit() -> None:
    assert compare([measured(0.40, 0.60), measured(0.4499, 0.5501)])["agree"]
    found = compare([measured(0.40, 0.60), measured(0.451, 0.549)])
    assert not found["agree"]
    assert found["apart_points"] == pytest.approx(5.1)


def test_a_phase_that_only_one_profile_has_counts_as_nothing_in_the_other() -> None:
    """The first request of one window was prefilled alone, so the rest of it ran as mixed steps."""
    found = compare([measured(0.40, 0.60), measured(0.10, 0.60, 0.30)])
    assert found["trace"]["mixed"] == {"points": [0.0, 30.0], "apart": 30.0}
    assert found["steps"]["mixed"] == [0, 1]
    assert not found["agree"]


def test_the_windows_shares_are_told_but_do_not_decide() -> None:
    found = compare([measured(0.4, 0.6, window=0.3), measured(0.4, 0.6, window=0.5)])
    assert found["window"]["prefill"]["apart"] == pytest.approx(20)
    assert found["agree"]


def test_processor_time_is_judged_apart_from_the_trace() -> None:
    """A busy host stretched one trace; the work was the same."""
    profiles = [measured(0.62, 0.38), measured(0.47, 0.53)]
    for number, one in enumerate(profiles):
        one["cpu_time_shares"] = {"prefill": {"median": 0.60 + 0.01 * number}, "decode": {"median": 0.40}}
    found = compare(profiles)
    assert not found["agree"]
    assert found["agree_by_cpu_time"]
    assert found["cpu_time"]["prefill"]["apart"] == pytest.approx(1.0)


def test_without_processor_time_nothing_is_said_of_it() -> None:
    assert compare([measured(0.4, 0.6), measured(0.4, 0.6)])["agree_by_cpu_time"] is None


def test_one_profile_agrees_with_nothing() -> None:
    with pytest.raises(ValueError, match="two are needed"):
        compare([measured(0.4, 0.6)])
