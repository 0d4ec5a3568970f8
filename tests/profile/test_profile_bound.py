"""FLOP model by hand, and verdicts per phase on shares whose answer is plain."""

from pathlib import Path

import pytest
from adrbench.profile.bound import (
    host_share_cpu,
    idle_shares,
    interval,
    levers,
    shares_without_mirrors,
    time_share,
    verdict,
)
from adrbench.profile.model_bytes import parameters
from adrbench.profile.model_flops import (
    attention_flops,
    decode_flops,
    matrix_parameters_per_token,
    prefill_flops,
    token_flops,
)
from adrbench.profile.model_shape import parse_config

TINY = {
    "model_type": "llama",
    "torch_dtype": "bfloat16",
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 40,
    "tie_word_embeddings": True,
}


@pytest.fixture
def tiny():
    return parse_config(TINY, Path("config.json"))


def test_matrices_are_all_parameters_but_norms_and_tables(tiny):
    count = parameters(tiny)
    assert matrix_parameters_per_token(tiny) == count["attention"] + count["feed_forward"]


def test_decode_step_by_hand(tiny):
    matrices = 2 * (16 * 16 + 2 * 16 * 8 + 16 * 16 + 3 * 16 * 24)
    attention = 4 * 2 * 4 * 4 * (10 + 20)
    assert decode_flops(tiny, [10, 20]) == 2 * 2 * matrices + attention + 2 * 2 * 40 * 16


def test_prefill_is_decode_token_by_token_but_for_the_output_matrix(tiny):
    one_by_one = sum(decode_flops(tiny, [i + 1]) for i in range(7))
    assert prefill_flops(tiny, [7]) == pytest.approx(one_by_one - 6 * 2 * 40 * 16)


def test_attention_grows_with_the_square_of_the_prompt(tiny):
    assert attention_flops(tiny, 100 * 101 / 2) / attention_flops(tiny, 10 * 11 / 2) == pytest.approx(5050 / 55)


def test_experts_count_as_far_as_they_are_active():
    config = {**TINY, "model_type": "qwen3_moe", "head_dim": 4, "moe_intermediate_size": 24, "num_experts": 8}
    flops = [token_flops(parse_config({**config, "num_experts_per_tok": active}, Path("c"))) for active in (1, 2)]
    assert flops[1] - flops[0] == 2 * 2 * 3 * 16 * 24


def certain(value):
    return interval(value, value, value)


@pytest.mark.parametrize(
    ("shares", "bound"),
    [
        ({"compute": certain(0.7), "bandwidth": certain(0.2)}, "compute"),
        ({"compute": certain(0.1), "bandwidth": interval(0.61, 0.7, 0.8)}, "bandwidth"),
        ({"bandwidth": interval(0.59, 0.7, 0.8)}, "undecided"),
        ({"compute": certain(0.1), "bandwidth": certain(0.4), "host": certain(0.3)}, "none"),
        ({"launch": certain(0.8), "bandwidth": certain(0.1)}, "launch"),
        ({"compute": certain(0.65), "bandwidth": certain(0.9)}, "bandwidth"),
    ],
)
def test_verdict_needs_a_whole_interval(shares, bound):
    result = verdict(shares)
    assert result["bound"] == bound
    assert all(name in result["rule"] for name in shares)


def test_time_share_is_the_roofline():
    share = time_share(100, interval(50, 100, 200), interval(2, 4, 8))
    assert share == {"low": 100 / 200 / 8, "median": 0.25, "high": 1.0}


def test_host_share_of_a_cpu_step_lies_between_two_readings():
    share = host_share_cpu(30.0, 70.0, certain(80.0))
    assert (share["low"], share["high"]) == (pytest.approx(1 - 70 / 80), pytest.approx(0.3))


def test_operators_longer_than_the_step_leave_no_host_share_for_sure():
    assert host_share_cpu(30.0, 70.0, certain(50.0))["low"] == 0.0


def cycle(busy, gap, between):
    return {"busy_s": busy, "gap_s": gap, "between_idle_s": between}


def middles(shares):
    return {name: share["median"] for name, share in shares.items()}


def test_idle_time_within_steps_is_launching_and_between_them_the_hosts():
    """Ten steps, traced as 60 s busy, 30 idle within and 10 between; as long without the profiler."""
    shares = idle_shares(cycle(60.0, 30.0, 10.0), 10, certain(10.0))
    assert middles(shares) == pytest.approx({"launch": 0.3, "host": 0.1})
    assert shares["launch"]["low"] == pytest.approx(shares["launch"]["high"])


def test_idle_shares_enclose_the_profiled_and_the_unprofiled_reading():
    """Without the profiler a step takes 7.5 to 8 s, of which its kernels take 6: the host was quicker."""
    shares = idle_shares(cycle(60.0, 30.0, 10.0), 10, interval(7.5, 7.8, 8.0))
    assert (shares["launch"]["low"], shares["launch"]["high"]) == (pytest.approx(0.75 * 0.2), pytest.approx(0.3))
    assert shares["host"]["low"] == pytest.approx(0.25 * 0.2)


def test_a_busy_device_waits_for_nobody_however_many_kernels_it_ran():
    shares = idle_shares(cycle(97.0, 3.0, 0.0), 10, certain(10.0))
    assert middles(shares) == pytest.approx({"launch": 0.03, "host": 0.0})


def test_time_that_only_the_clock_without_profiler_shows_idle_is_the_hosts():
    assert idle_shares(cycle(10.0, 0.0, 0.0), 1, certain(20.0))["host"] == pytest.approx(interval(0.0, 0.25, 0.5))


def test_without_mirrors_launching_explains_idle_time_first_and_no_more_than_that():
    assert middles(shares_without_mirrors(0.3, certain(0.5))) == pytest.approx({"launch": 0.5, "host": 0.2})
    assert middles(shares_without_mirrors(0.3, certain(0.9))) == pytest.approx({"launch": 0.7, "host": 0.0})


DECODE = {
    "bytes_by_part": {"weights": 800.0, "kv_read": 180.0, "kv_write": 10.0, "state": 10.0},
    "bytes_per_step": 1000.0,
    "context_tokens": 100,
    "step_seconds": {"median": 10.0, "low": 9.0, "high": 11.0},
    "utilisation": {"median": 0.5, "low": 0.4, "high": 1.2},
}


def test_levers_state_the_most_they_can_save():
    found = {row["lever"]: row for row in levers(DECODE, {"launch": certain(0.1), "host": interval(0, 0.1, 0.2)}, 64)}
    assert found["kv_8bit"]["saves_at_most"] == pytest.approx(0.09)
    assert found["weights_8bit"]["saves_at_most"] == pytest.approx(0.40)
    assert [name for name, row in found.items() if row["forbidden_by"]] == ["weights_8bit"]
    assert found["weights_8bit"]["forbidden_by"] == "C03"
    assert found["compile_or_graphs"]["saves_at_most"] == pytest.approx(0.3)
    assert found["double_batch"]["saves_at_most"] == pytest.approx(0.4)
    assert "21.9%" in found["block_size"]["because"]
    assert found["block_size"]["pool_waste"] == pytest.approx(1 - 100 / 128)


def test_a_lever_on_bytes_is_expected_to_save_only_the_traffics_part_of_the_time():
    found = {row["lever"]: row for row in levers(DECODE, {}, None)}
    assert found["kv_8bit"]["saves"] == pytest.approx({"low": 0.4 * 0.09, "median": 0.5 * 0.09, "high": 0.09})
    assert found["compile_or_graphs"]["saves"] == {"low": 0, "median": 0, "high": 0}, "no phase row: nothing known"


CLASSES = [{"class": "attention", "share": 0.4}, {"class": "gemm", "share": 0.5}]


def test_where_a_device_was_traced_a_lever_saves_at_most_the_time_of_its_kernels():
    found = {row["lever"]: row for row in levers(DECODE | {"utilisation": certain(0.5)}, {}, None, CLASSES)}
    assert found["kv_8bit"]["saves_at_most"] == pytest.approx(0.2), (
        "attention far from its ceiling: more than its bytes"
    )
    assert found["weights_8bit"]["saves_at_most"] == found["double_batch"]["saves_at_most"] == pytest.approx(0.25)
    assert all(row["saves"]["high"] <= row["saves_at_most"] for row in found.values())


@pytest.mark.parametrize("graphs", [True, False])
def test_graphs_that_replay_already_are_told(graphs):
    found = {row["lever"]: row for row in levers(DECODE, {"launch": certain(0.03)}, None, CLASSES, graphs)}
    assert ("already" in found["compile_or_graphs"]["because"]) == graphs


@pytest.mark.parametrize(
    ("low", "high", "rule", "leading"),
    [
        (0.7, 0.9, "alone", ["compute"]),
        (0.5, 0.9, "straddles", ["compute"]),
        (0.1, 0.2, "nothing", ["compute", "host"]),
    ],
)
def test_a_verdict_names_its_rule_and_what_it_rests_on(low, high, rule, leading):
    found = verdict({"compute": interval(low, (low + high) / 2, high), "host": certain(0.05)})
    assert (found["decided_by"], found["leading"]) == (rule, leading)
