"""What the next visit to a GPU will compare: every variant is a launch that exists, and computes what it should.

Cannot prove: speed, inline assembly, limits of registers (the interpreter has none of them).
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def facts(facts_of):
    return facts_of("variant_facts.py")


def test_every_variant_of_the_list_is_a_launch(facts):
    for variants in facts["launches"].values():
        assert len(variants) == len(set(variants)) > 20
        # What a target has been missed for, and what could meet it.
        for part in ("int4_g32/64/unpacked+chain", "kivi4/64/unpacked", "16/codes+pieces", "784/codes+pieces"):
            assert any(part in variant for variant in variants)


def test_a_worker_tells_right_from_wrong_and_from_refused(facts):
    *good, refused, wrong = facts["numerics"]
    assert [row["kernel_error"] < 1e-3 for row in good] == [True] * 3
    assert not any("failed" in row for row in good)
    assert "not whole tiles" in refused["failed"]
    assert wrong["kernel_error"] == pytest.approx(0.1, rel=0.01)
    assert "is above" in wrong["failed"]


def test_stores_of_several_heads_a_program_write_the_same_bytes(facts):
    cuts = dict(facts["cuts"])
    assert cuts.pop("heads of 3") == 2  # what divides four heads
    assert set(cuts.values()) == {0}
    assert len(cuts) == 4


def test_the_cuts_of_the_session_are_cuts(facts):
    script = (ROOT / "benchmarks/device_session.sh").read_text()
    cuts = re.search(r"store_kv.py .*--cuts ([0-9x ]+)", script)[1].split()
    assert len(cuts) > 8
    assert all(re.fullmatch(r"[24]x\d+x[01]x[0-4]", cut) for cut in cuts)
