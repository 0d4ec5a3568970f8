"""The planned order of server starts."""

import subprocess
import sys
from datetime import datetime, timedelta, timezone
from random import Random

import pytest
from adrbench.decide.interleave import Order, block, count, plan
from adrbench.decide.schedule import late, parted
from adrbench.paths import PYTHONPATH

# One rule per run, with a priority of its own: the order is kept and no run is an input of another.
WORKFLOW = f"""
import sys
sys.path.insert(0, {str(PYTHONPATH)!r})
from adrbench.decide import interleave
ROUNDS = int(config["rounds"])
ORDER = interleave.plan({{"base": 2 * ROUNDS, "a": ROUNDS, "b": ROUNDS}}, 1)
rule all:
    input: [f"out/{{arm}}/r{{number}}.txt" for arm, number in ORDER]
for position, (arm, number) in enumerate(ORDER):
    rule:
        name: f"serve_{{arm}}_r{{number}}"
        output: f"out/{{arm}}/r{{number}}.txt"
        params: spec=config["setting"] if arm == "a" else "same"
        priority: len(ORDER) - position
        resources: device=1
        shell: "echo {{rule}} >> order.log; echo {{params.spec}} > {{output}}"
"""


def test_blocks_hold_one_round_of_every_arm_and_follow_each_other():
    order = plan({"a": 3, "b": 3, "c": 3}, seed=1)
    assert [r for _, r in order] == [1] * 3 + [2] * 3 + [3] * 3
    assert all({arm for arm, _ in order[i : i + 3]} == {"a", "b", "c"} for i in (0, 3, 6))


def test_the_control_runs_in_every_block():
    order = plan({"base": 6, "b": 3, "c": 3}, seed=1)
    for number in range(3):
        runs = order[4 * number : 4 * number + 4]
        assert sorted(runs) == sorted(
            [("base", 2 * number + 1), ("base", 2 * number + 2), ("b", number + 1), ("c", number + 1)]
        )


def test_the_order_inside_a_block_is_shuffled_by_the_seed():
    arms = dict.fromkeys("abcdefgh", 4)
    first = plan(arms, seed=1)
    assert first == plan(arms, seed=1)
    assert first != plan(arms, seed=2)
    heads = [tuple(arm for arm, _ in first[8 * i : 8 * i + 8]) for i in range(4)]
    assert len(set(heads)) == 4


def test_adding_rounds_keeps_the_order_of_the_rounds_that_exist():
    few, many = (plan({"base": 2 * n, "b": n, "c": n}, seed=7) for n in (2, 5))
    assert many[: len(few)] == few


def test_default_run_puts_the_control_beside_the_others():
    order = plan({"auto": 2, "fp8-e4m3": 1, "fp8-e5m2": 1}, seed=3)
    assert sorted(order) == [("auto", 1), ("auto", 2), ("fp8-e4m3", 1), ("fp8-e5m2", 1)]
    assert (block(1, 2, 1), block(2, 2, 1)) == (1, 1)


def test_uneven_rounds_lose_none():
    for rounds in ({"a": 4, "b": 3}, {"a": 1}, {"a": 7, "b": 3, "c": 2}, {}):
        assert sorted(plan(rounds, 0)) == sorted((arm, r) for arm, n in rounds.items() for r in range(1, n + 1))
    assert count({}) == 0


@pytest.fixture
def workflow(tmp_path):
    (tmp_path / "Snakefile").write_text(WORKFLOW)

    def run(**settings):
        (tmp_path / "order.log").write_text("")
        given = [f"{key}={value}" for key, value in settings.items()]
        command = [sys.executable, "-m", "snakemake", "--cores", "3", "--resources", "device=1"]
        done = subprocess.run([*command, "--config", *given], cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return (tmp_path / "order.log").read_text().split()

    return run


def rules(order):
    return [f"serve_{arm}_r{number}" for arm, number in order]


def test_snakemake_keeps_the_planned_order_and_reruns_only_what_changed(workflow):
    first = plan({"base": 4, "a": 2, "b": 2}, 1)
    assert workflow(rounds=2, setting="x") == rules(first)
    # Now arm a is edited and a round is added: its runs and the new block, and nothing else, in order.
    longer = plan({"base": 6, "a": 3, "b": 3}, 1)
    expected = [(arm, number) for arm, number in longer if arm == "a" or (arm, number) not in first]
    assert workflow(rounds=3, setting="edited") == rules(expected)


def test_the_order_of_shared_runs_is_the_same_in_plans_of_other_arms():
    """An adaptive run drops arms, and a platform has arms that a decision does not compare."""
    many = plan({"base": 8, "a": 4, "b": 4, "c": 4}, seed=3)
    few = plan({"base": 8, "a": 4, "b": 4, "c": 2}, seed=3)
    assert [run for run in many if run in set(few)] == few


def test_priorities_follow_the_plan_and_go_on_beyond_it():
    rounds = {"base": 4, "a": 2, "b": 2}
    order, longer = Order(rounds, 1), plan({arm: 3 * n for arm, n in rounds.items()}, 1)
    assert sorted(longer, key=lambda run: -order.priority(*run)) == longer
    assert order.control == 2
    assert order.priority("a", 10**6) > 0
    with pytest.raises(KeyError):
        order.place("nobody", 1)


def at(*minutes_of_runs):
    """(arm, round) -> time, from (arm, round, minute)."""
    begin = datetime(2026, 1, 1, tzinfo=timezone.utc)
    return {(arm, number): begin + timedelta(minutes=minute) for arm, number, minute in minutes_of_runs}


BLOCK = {(arm, number): number for arm in "abc" for number in (1, 2, 3)}


def test_a_rerun_of_the_last_round_is_late_too_when_the_others_were_rerun_with_it():
    begun = at(("b", 1, 0), ("c", 1, 1), ("b", 2, 2), ("c", 2, 3), ("a", 1, 10), ("a", 2, 11))
    assert late(begun, BLOCK) == [("a", 1), ("a", 2)]


def test_a_round_that_follows_a_late_run_as_a_whole_is_in_turn():
    begun = at(("b", 1, 0), ("b", 2, 1), ("a", 2, 2), ("a", 1, 3), ("a", 3, 4), ("b", 3, 5))
    assert late(begun, BLOCK) == [("a", 1)]


def test_late_agrees_with_its_definition_on_random_orders():
    """Against the plain double loop, for the part that no block is parted by: every other arm, every later block."""
    random = Random(1)
    for _ in range(200):
        runs = [(arm, number) for arm in "abc" for number in (1, 2, 3)]
        random.shuffle(runs)
        begun = at(*((arm, number, minute) for minute, (arm, number) in enumerate(runs)))
        plain = {
            run
            for run, when in begun.items()
            if any(o[0] != run[0] and BLOCK[o] > BLOCK[run] and began < when for o, began in begun.items())
        }
        assert plain <= set(late(begun, BLOCK))


def test_a_rerun_days_later_is_parted_from_its_block():
    begun = at(("b", 1, 0), ("c", 1, 5), ("a", 1, 600))
    ended = {run: when + timedelta(minutes=4) for run, when in begun.items()}
    assert parted(begun, ended, BLOCK) == [("a", 1)]
    slow = {run: when + timedelta(minutes=300) for run, when in begun.items()}
    assert parted(begun, slow, BLOCK) == []
