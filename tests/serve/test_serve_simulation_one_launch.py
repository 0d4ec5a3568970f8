"""The kernel that replaces what leaves 16-bit windows in one launch, in Triton's interpreter (kv/one_launch_facts.py).

Cannot prove: that a GPU computes what the interpreter does, nor any time. An engine on a GPU tries the kernel against
the reference before it serves, and takes the compiled readers where they differ; ``benchmarks/simulation_proof.py``
compares every step's cache there.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SERVE = ROOT / ".envs/serve/bin/python"
pytestmark = pytest.mark.skipif(not SERVE.exists(), reason="the serving environment is not set up")


def run(script: str, *arguments: str) -> dict:
    """JSON that a script beside this test prints last, run in the serving interpreter."""
    env = {**os.environ, "PYTHONPATH": str(ROOT / "pythonpath"), "OMP_NUM_THREADS": "1"}
    command = [str(SERVE), str(Path(__file__).parent / "kv" / script), *arguments]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def facts():
    return run("one_launch_facts.py")


def test_it_gives_what_the_reference_gives_bit_for_bit(facts):
    assert len(facts["trials"]) == 15
    assert {case: said for case, said in facts["trials"].items() if said} == {}
    assert facts["empty"], "a step without requests changed something"


def test_schemes_with_other_arithmetic_are_left_to_the_compiled_readers(facts):
    assert facts["takes"] == ["first256_int4", "int4_g32", "kivi4", "kivi2"]


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("another number of steps", "keys differ"),
        ("a window of keys less", "keys differ"),
        ("values one token early", "values differ"),
        ("no first tokens", "keys differ"),
        ("another group", "values differ"),
        ("no kernel", "Error"),
    ],
)
def test_an_engine_s_trial_notices_a_wrong_kernel(facts, fault, said):
    assert said in facts["faults"][fault]


def test_an_engine_whose_trial_fails_takes_the_compiled_readers_and_says_so(facts):
    assert facts["fallback"]["one_launch"] is None
    assert "keys differ" in facts["fallback"]["fact"]


def test_it_can_be_turned_off(facts):
    assert facts["switched"] == [True, True, False]


def test_caches_that_it_does_not_find_its_way_in_are_left_to_the_readers(facts):
    assert [case for case, fits in facts["fits"].items() if fits] == ["plain"]


def test_a_step_is_one_launch_a_layer_and_the_arithmetic_of_lengths_once(facts):
    first, second, launches = facts["operators"]["one launch"]
    assert (second, launches) == (0, 2)
    assert 0 < first <= 24
    assert facts["operators"]["ranges"][0] > 150, "ranges and plain readers: what is counted are the operators"


def test_it_compiles_for_gpus_without_one():
    asked = ("sm_90:kivi4:128", "sm_90:first256_int4:128", "gfx942:kivi4:128")
    found = run("one_launch_compile.py", *asked)
    assert found == {case: {"spilled": 0, "wide": True} for case in asked}
