"""The simulation's bookkeeping, on a paged backend of few lines under random schedules (kv/paged_facts.py).

Cannot prove: that vLLM calls it as that backend does (test_serve_simulation_live.py does, on CPU), nor anything
about graphs captured on a GPU, beyond that the fixed-size form that they capture equals the exact one.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from adrbench.job import JobError
from adrbench.kernels.formats import schemes
from adrbench.serve.resolved import check_kv_simulation, check_quantised, read_kv_simulation

ROOT = Path(__file__).parents[2]
SERVE = ROOT / ".envs/serve/bin/python"
needs_torch = pytest.mark.skipif(not SERVE.exists(), reason="the serving environment is not set up")


def run(script: str, *arguments: str) -> dict:
    """JSON that a script beside this test prints last, run in the serving interpreter."""
    env = {**os.environ, "PYTHONPATH": str(ROOT / "pythonpath"), "OMP_NUM_THREADS": "1"}
    command = [str(SERVE), str(Path(__file__).parent / "kv" / script), *arguments]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def facts():
    return run("paged_facts.py")


@needs_torch
@pytest.mark.parametrize("name", sorted(schemes()))
@pytest.mark.parametrize("form", ["blocks", "fixed", "packed", "writes-in-forward"])
def test_every_token_is_read_as_the_definition_says_after_every_step(facts, name, form):
    found = facts["runs"][f"{name}-{form}"]
    assert found["steps"] > 15
    assert found["preempted"] > 0
    assert found["wrong"] == 0
    assert found["counted"]
    assert 0 < found["quantised"] <= found["seen"]


@needs_torch
@pytest.mark.parametrize("name", ["kivi4-one-launch", "kivi2-one-launch", "first256_int4-one-launch",
                                  "kivi4-one-launch-blocks", "kivi2-one-launch-blocks",
                                  "first256_int4-one-launch-blocks"])  # fmt: skip
def test_one_launch_is_the_definition_after_every_step(facts, name):
    found, form = facts["runs"][name], facts["runs"][f"{name.partition('-')[0]}-fixed"]
    assert found["preempted"] > 0
    assert found["wrong"] == 0
    assert found["counted"]
    assert 0 < found["quantised"] <= found["seen"]
    assert form["wrong"] == 0


@needs_torch
def test_the_cache_that_vllm_profiles_with_is_not_kept(tmp_path):
    assert run("release_facts.py", str(tmp_path)) == {"answer": 7, "gone": True, "emptied": 1}


@needs_torch
@pytest.mark.parametrize("form", ["kivi4-group64", "kivi4-group64-one-launch"])
def test_changed_windows_are_kept_too(facts, form):
    assert facts["runs"][form]["wrong"] == 0


@needs_torch
def test_recorded_rows_are_those_that_the_model_computed(facts):
    assert facts["recorded"]["equal"]


@needs_torch
def test_the_report_says_what_was_simulated_where(facts):
    report = facts["recorded"]["report"]
    assert report["scheme"] == "int4_g32"
    assert report["backend"].endswith("Backend")
    assert report["layers"] == 2
    assert report["tokens_seen"] == report["tokens_quantised"] == 28
    assert report["engine"] is False, "this is no child of an API server"


@needs_torch
@pytest.mark.parametrize("case", ["wrong-window", "no-requantisation", "one-launch"])
def test_a_broken_simulation_is_noticed(facts, case):
    assert facts["broken"][case] > 0


@needs_torch
@pytest.mark.parametrize(
    ("case", "text"),
    [
        ("mla", "latent vectors"),
        ("argument-reader", "ROCM_ATTN reads a prompt's own tokens past the cache"),
        ("unknown-layout", "layout of PLAIN_ATTN's cache is unknown"),
        ("prefix-caching", "--no-enable-prefix-caching"),
        ("speculative", "speculative decoding"),
        ("twice", "quantise twice"),
        ("context-parallel", "context parallelism"),
        ("head-dim", "80 is not a multiple of the group of 32"),
        ("no-scales", "kv_simulation.scales: int8_per_head, key"),
        ("missing-file", "/nonexistent.json cannot be read"),
        ("unknown-parameter", "'grup' is unknown for kivi4"),
        ("other-heads", "3 heads of layer 0 are calibrated, this process has 2"),
        ("other-scheme", "holds no measured.schemes.int8_per_tensor"),
    ],
)
def test_what_cannot_be_simulated_is_refused_with_the_reason(facts, case, text):
    assert text in facts["refusals"][case]


@needs_torch
@pytest.mark.parametrize("case", ["plain", "argument-reader-without-window", "prefix-caching-by-position"])
def test_what_can_be_simulated_is_accepted(facts, case):
    assert facts["refusals"][case] == "accepted"


@pytest.fixture(scope="module")
def held():
    return run("held_facts.py")


@needs_torch
def test_the_check_of_a_paged_cache_accepts_its_definition_and_nothing_else(held):
    accepted = {case: one["accepted"] for case, one in held.items()}
    assert accepted.pop("nothing")
    assert accepted.pop("a-code-here-and-there"), "two correct programs round a value beside a boundary differently"
    assert not any(accepted.values()), accepted
    assert {case for case, one in held.items() if one["first_wrong"]} == set(accepted)


@needs_torch
def test_the_check_says_where_the_cache_is_wrong_and_how(held):
    found = held["not-rounded"]["first_wrong"]
    where = {"plane": "value", "layer": 2, "token": 40, "last_wrong_token": 59, "wrong_tokens": 20}
    # Block 21 is the third of the request's table, token 40 its ninth.
    where |= {"request": "a", "old": 299, "new": 300, "block": 21, "offset": 8}
    assert {key: found[key] for key in where} == where
    assert found["by_layer"][:2] == [0, 0]
    assert min(found["by_layer"][2:]) > 0.9
    assert found["as_written"] > 0.6, "four of six layers hold what the model computed"
    assert found["other"] < 0.01
    assert found["row"]["held"] == found["row"]["written"] != found["row"]["wanted"]


@needs_torch
@pytest.mark.kv
def test_compiled_readers_agree_and_compile_nothing_after_their_warm_up():
    planes = ("int8_per_token_head.key", "int4_hadamard.key", "kivi4.key", "fp8_per_head.value")
    found = run("compiled_facts.py", *planes, "bf16.key", "atom_int4.key", "qserve_kv4.key", "kvquant4.value")
    assert all(one["differing"] < 1e-4 for one in found.values()), found
    assert not any(one["compiled_later"] for one in found.values()), found


GOOD = {"scheme": "kivi4", "engine": True, "tokens_seen": 9, "tokens_quantised": 0, "pid": 7}


def test_an_active_simulation_passes(tmp_path):
    (tmp_path / "kv_simulation.json").write_text(json.dumps(GOOD))
    check_kv_simulation("kivi4", read_kv_simulation(tmp_path))
    check_kv_simulation(None, read_kv_simulation(tmp_path / "none"))


@pytest.mark.parametrize(
    "found",
    [None, GOOD | {"scheme": "kivi2"}, GOOD | {"engine": False}, GOOD | {"tokens_seen": 0}],
    ids=["no-report", "other-scheme", "other-process", "no-token"],
)
def test_an_inactive_simulation_fails_the_arm(found):
    with pytest.raises(JobError, match=r"kv_simulation\.scheme: kivi4 was not simulated in the engine") as error:
        check_kv_simulation("kivi4", found)
    assert error.value.reason == "plugin-inactive"


def test_a_load_within_the_window_measured_nothing():
    with pytest.raises(JobError, match="quantised none of 9 tokens"):
        check_quantised("kivi4", GOOD)
    check_quantised("kivi4", GOOD | {"tokens_quantised": 1})
    check_quantised(None, None)
