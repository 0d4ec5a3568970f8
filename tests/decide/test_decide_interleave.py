"""The planned order of server starts."""

from adrbench.decide.interleave import block, count, plan


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
