"""`snakemake decide_<adr>`: rounds are added until the decision stands, on the real rules with stand-ins for jobs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from miniature import Miniature

PLAN = {"first": 2, "most": 8}


def served(made):
    """arm -> rounds in the order in which they ran."""
    found: dict[str, list[int]] = {}
    for job in made.started():
        if job.startswith("serve"):
            _, arm, number = job.split()
            found.setdefault(arm, []).append(int(number))
    return found


@pytest.fixture
def clear(tmp_path):
    """One arm that is clearly better, one clearly worse, one with a broken gate."""
    arms = {"base": {}, "fast": {"rate": 62.0}, "slow": {"rate": 40.0}, "late": {"rate": 60.0, "slow": 3.0}}
    made = Miniature(tmp_path, arms, rounds=1, baseline_rounds=2)
    made.decision("adr0010", adaptive=PLAN)
    return made


def test_a_clear_decision_stops_early_and_later_commands_start_nothing(clear):
    made = clear
    done = made("decide_adr0010")
    assert done.returncode == 0, done.stderr[-4000:]
    ran = served(made)
    document = made.json("results/cpu/adaptive/adr0010.json")
    status, run = document["status"], document["adaptive"]
    assert (status["word"], status["option"], run["stop"]) == ("Accepted", "fast", "decided")
    assert run["rounds"] == {arm: len(rounds) for arm, rounds in ran.items()}
    assert run["starts"] == sum(map(len, ran.values())) < run["grid_starts"] == 8 * 5
    assert run["saved"] == pytest.approx(1 - run["minutes"] / run["grid_minutes"])
    assert run["saved"] > 0.4
    dropped = {d["option"]: look["rounds"] for look in run["looks"] for d in look["dropped"]}
    assert set(dropped) == {"slow", "late"}
    # What is out gets no further round, and stays as the look saw it.
    for option in document["options"]:
        if option["name"] in dropped and dropped[option["name"]] < run["looks"][-1]["rounds"]:
            assert option["decided_at"] == dropped[option["name"]]
            assert len(ran[option["arm"]]) == dropped[option["name"]]
    # Nothing more to do; the same verdict is the one of the report.
    assert "Nothing to be done" in made("decide_adr0010").stderr
    assert made("results/cpu/decide/adr0010.json").returncode == 0
    assert served(made) == {}
    assert made.json("results/cpu/decide/adr0010.json") == document
    # The noise floor of the platform knows the rounds that were added.
    assert made("results/cpu/noise_floor.json").returncode == 0
    assert len(made.json("results/cpu/noise_floor.json")["blocks"]) == run["rounds"]["base"]


def test_an_interrupted_run_goes_on_where_it_was(clear):
    made = clear
    assert made("results/cpu/serve/fast/r1/short.json").returncode == 0
    first = served(made)
    assert made("decide_adr0010").returncode == 0
    assert 1 not in served(made)["fast"]
    assert first == {"fast": [1]}


def test_the_budget_ends_it_and_says_so(tmp_path):
    made = Miniature(tmp_path, {"base": {"noise": 0.2}, "a": {"noise": 0.2, "rate": 53.0}}, rounds=1, baseline_rounds=2)
    # 15 minutes a round (three starts of 5), 3 of accuracy and other jobs do not count as serving.
    made.decision("adr0010", adaptive=PLAN | {"budget_minutes": 50.0})
    done = made("decide_adr0010")
    assert done.returncode == 0, done.stderr[-4000:]
    run = made.json("results/cpu/adaptive/adr0010.json")["adaptive"]
    assert (run["stop"], run["rounds"], run["next"]) == ("budget", {"base": 6, "a": 3}, [])
    assert run["spent_minutes"] == pytest.approx(47.0)
    assert "budget" in run["reason"]["en"]
    made.started()
    # A greater budget goes on from there.
    assert made("decide_adr0010", "--config", "budget_minutes=70").returncode == 0
    assert {arm: sorted(rounds) for arm, rounds in served(made).items()} == {"base": [7, 8], "a": [4]}
    assert made.json("results/cpu/adaptive/adr0010.json")["adaptive"]["rounds"] == {"base": 8, "a": 4}


def test_rounds_are_not_added_for_what_rounds_cannot_decide(tmp_path):
    made = Miniature(tmp_path, {"base": {}, "fast": {"rate": 75.0, "lost": 15}}, rounds=1, baseline_rounds=2)
    made.decision("adr0010", adaptive=PLAN)
    assert made("decide_adr0010").returncode == 0
    document = made.json("results/cpu/adaptive/adr0010.json")
    gate = next(g for g in document["options"][1]["gates"] if g["metric"] == "accuracy_delta")
    assert gate["verdict"] == "undecided"
    assert document["adaptive"]["stop"] == "needs other evidence"
    assert document["adaptive"]["looks"][-1]["rounds"] < 8


def test_a_blocked_decision_starts_no_server(tmp_path):
    made = Miniature(tmp_path, {"base": {}}, rounds=1)
    made.decision("adr0010", adaptive=PLAN, options=[
        {"name": "base", "title": "base", "arms": ["base"]},
        {"name": "other", "title": "other", "arms": ["nobody"]},
    ])  # fmt: skip
    assert made("decide_adr0010").returncode == 0
    assert served(made) == {}
    document = made.json("results/cpu/adaptive/adr0010.json")
    assert (document["status"]["word"], document["adaptive"]["stop"]) == ("Blocked", "decided")
    assert document["adaptive"]["saved"] == 0.0


def test_accuracy_is_measured_only_for_a_gate_on_it(tmp_path):
    made = Miniature(tmp_path, {"base": {}, "fast": {"rate": 75.0}}, rounds=1)
    made.decision("adr0010", adaptive=PLAN, gates=[], delta=None)
    assert made("decide_adr0010").returncode == 0
    assert not any(job.startswith("eval") for job in made.started())
    assert made.json("results/cpu/adaptive/adr0010.json")["status"]["option"] == "fast"


def test_a_look_that_is_not_planned_or_a_decision_that_is_none_is_named(tmp_path):
    made = Miniature(tmp_path, {"base": {}, "fast": {}}, rounds=1)
    made.decision("adr0010", adaptive=PLAN)
    for target, said in (
        ("results/cpu/adaptive/adr0010/look9.json", "no look is planned at 9 rounds"),
        (
            "results/cpu/adaptive/adr0099.json",
            "'adr0099' is no decision of this run that compares arms; there are adr0010",
        ),
    ):
        done = made("-n", target)
        assert done.returncode
        assert said in done.stdout + done.stderr
