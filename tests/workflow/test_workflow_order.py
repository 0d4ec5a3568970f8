"""The order of server starts as Snakemake really runs them, on the real rules with stand-ins for the jobs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from adrbench.decide.interleave import plan

sys.path.insert(0, str(Path(__file__).parent))
from miniature import Miniature

ARMS = {"base": {}, "a": {}, "b": {}}
SEED = 20260609


def names(order):
    return [f"serve {arm} {number}" for arm, number in order]


@pytest.fixture(params=["greedy", "ilp"])
def workflow(request, tmp_path):
    made = Miniature(tmp_path, dict(ARMS), rounds=2, baseline_rounds=4)
    made.decision("adr0010")
    return lambda *arguments: (made(*arguments, "--scheduler", request.param), made)


def test_rounds_interleave_in_the_planned_order_and_serving_goes_first(workflow):
    done, made = workflow("results/cpu/decide/adr0010.json")
    assert done.returncode == 0, done.stderr[-3000:]
    jobs = made.started()
    expected = names(plan({"base": 4, "a": 2, "b": 2}, SEED))
    assert [job for job in jobs if job.startswith("serve")] == expected
    # Nothing that waits for the device came between two starts of a round.
    first = jobs.index(expected[0])
    assert jobs[first : first + len(expected)] == expected
    ordering = made.json("results/cpu/decide/adr0010.json")["ordering"]
    assert (ordering["seed"], ordering["starts"], ordering["out_of_turn"], ordering["unpaired"]) == (SEED, 8, 0, 0)


def test_a_round_is_added_an_arm_rerun_and_nothing_else(tmp_path):
    made = Miniature(tmp_path, dict(ARMS), rounds=2)
    made.decision("adr0010")
    target = "results/cpu/decide/adr0010.json"
    assert made(target).returncode == 0
    made.started()
    made.platform["serve"]["rounds"] = 3
    assert made(target).returncode == 0
    added = [run for run in plan(dict.fromkeys(ARMS, 3), SEED) if run[1] == 3]
    assert [job for job in made.started() if job != "eval"] == names(added)
    # One arm edited: its rounds only, and they are late: not compared side by side with the others.
    made.platform["arms"][1]["args"] = ["--max-logprobs", "5"]
    assert made(target).returncode == 0
    rerun = [run for run in plan(dict.fromkeys(ARMS, 3), SEED) if run[0] == "a"]
    assert [job for job in made.started() if job.startswith("serve")] == names(rerun)
    document = made.json(target)
    late = {(run["arm"], run["round"]) for run in document["order"] if run["late"]}
    assert late == {("a", 1), ("a", 2), ("a", 3)}
    assert document["ordering"]["unpaired"] == len(late)


def test_another_seed_measures_nothing_again(tmp_path):
    made = Miniature(tmp_path, dict(ARMS), rounds=2)
    made.decision("adr0010")
    assert made("results/cpu/decide/adr0010.json").returncode == 0
    made.started()
    made.platform["serve"]["order_seed"] = 5
    done = made("results/cpu/decide/adr0010.json")
    assert done.returncode == 0, done.stderr[-2000:]
    assert made.started() == []
