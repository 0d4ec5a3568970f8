"""How outcomes are judged: pure functions, no torch."""

import pytest
from adrbench.kernels.case import Case, Outcome, blocked, judge, summarise


def case(op="store", tolerance=0.5, needs=()):
    return Case(op, "int8", "a case", lambda device: 0.0, tolerance, needs)


@pytest.mark.parametrize(
    ("op", "error", "problem", "interpreted", "status"),
    [
        ("store", 0.5, "", True, "proved"),
        ("store", 0.6, "", True, "failed"),
        ("store", float("nan"), "", False, "failed"),
        ("store", None, "the process died of SIGABRT", False, "failed"),
        ("primitive", 0.6, "", True, "not-provable"),
        ("primitive", 0.6, "", False, "failed"),
        ("primitive", None, "unsupported", False, "not-provable"),
    ],
)
def test_judge(op, error, problem, interpreted, status):
    assert judge(case(op), error, problem, interpreted).status == status


def test_a_case_rests_on_its_primitives():
    needy = case(needs=("int8:load",))
    good = Outcome("primitive", "int8", "load", "proved", 0.0, 0.0)
    assert blocked(needy, {good.id: good}) is None
    bad = Outcome("primitive", "int8", "load", "not-provable", None, 0.0, "no such type")
    stopped = blocked(needy, {bad.id: bad})
    assert stopped is not None
    assert stopped.status == "not-provable"
    assert "no such type" in stopped.reason


def test_a_primitive_that_nobody_probed_is_an_error():
    with pytest.raises(KeyError, match="int8:load"):
        blocked(case(needs=("int8:load",)), {})


def test_one_unproved_case_keeps_its_format_from_being_proved():
    proved, not_proved = summarise(
        [
            Outcome("dot_scaled", "fp8", "scaled product, M 5", "proved", 0.0, 0.0),
            Outcome("store", "fp8", "store x", "not-provable", None, 0.0, "cast is wrong"),
            Outcome("store", "int8", "store x", "proved", 0.0, 0.0),
        ]
    )
    assert proved == ["int8"]
    assert not_proved == {"fp8": "store: cast is wrong; proved: scaled product"}
