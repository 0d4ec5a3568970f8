"""The planned order of server starts."""

import subprocess
import sys

import pytest
from adrbench.decide.interleave import block, count, plan
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
