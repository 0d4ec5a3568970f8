"""Checks of the bytes model and of the trace against what was measured otherwise."""

from pathlib import Path
from typing import Any

import pytest
from adrbench.model import shapes
from adrbench.paths import ROOT
from adrbench.profile.checks import flags, model_checks, pool_section
from adrbench.profile.model_bytes import computed_weights, kv_format
from adrbench.profile.model_shape import Shape, load_shape, parse_config

TINY = {
    "model_type": "llama",
    "torch_dtype": "bfloat16",
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 40,
}


@pytest.fixture
def qwen() -> Shape:
    return load_shape(ROOT / "config/claims/data/qwen3.5-27b")


def test_pool_of_a_plain_model_is_tokens_times_bytes() -> None:
    tiny = parse_config(TINY, Path("config.json"))
    section = pool_section(tiny, kv_format("auto", 2), 1000, 2 * 2 * 2 * 4 * 2 * 1000.0)
    assert section["ratio"] == 1.0
    assert section["computed_block_size"] is None


def test_pool_of_a_hybrid_model_holds_recurrent_states_too(qwen: Shape) -> None:
    """The published log of two ranks: 265,776 tokens are 1356 blocks of 16 layers x 784 tokens x 4096 B, halved."""
    blocks_bytes = 1356 * 16 * 784 * 4096 / 2
    section = pool_section(qwen, kv_format("auto", 2), 265_776, blocks_bytes, ranks=2)
    assert section["ratio"] == pytest.approx(1.0)
    assert section["computed_block_size"] == 784
    by_tokens_alone = 265_776 * 65_536 / 2
    assert by_tokens_alone == pytest.approx(blocks_bytes / 4), "what a model without the states would say"


def test_tokens_that_no_pool_gives_are_unknown(qwen: Shape) -> None:
    assert pool_section(qwen, kv_format("auto", 2), 265_777, 1e9)["computed_bytes"] is None


def sections(**changes: Any) -> dict[str, Any]:
    measured: dict[str, Any] = {
        "weights": {"computed_bytes": 100, "on_disk_bytes": 100},
        "pool": {"computed_bytes": 100.0, "given_bytes": 100.0, "computed_block_size": None},
        "counters": {"prefill": {"trace_s": 1.0, "counter_s": 1.0}, "decode": {"trace_s": 1.0, "counter_s": 1.0}},
    }
    return measured | changes


def verdicts(**changes: Any) -> dict[str, str]:
    return {row["check"]: row["verdict"] for row in model_checks(sections(**changes), 784)}


@pytest.mark.parametrize(("gib", "verdict"), [(15.27, "within"), (7.6, "flagged"), (None, "unknown")])
def test_random_weights_are_held_against_what_vllm_loaded(gib: float | None, verdict: str, tmp_path: Path) -> None:
    """15.27 GiB is what vLLM 0.20.2 said of this shape on an H200."""
    weights = computed_weights(load_shape(shapes.write("qwen3-8b", tmp_path)))
    loaded = {} if gib is None else {"loaded_bytes": gib * 2**30}
    assert verdicts(weights=weights | loaded)["weights"] == verdict


def test_everything_within_its_limit_passes() -> None:
    assert set(verdicts().values()) == {"within"}
    assert flags(model_checks(sections(), None)) == []


@pytest.mark.parametrize(
    ("changes", "out"),
    [
        ({"weights": {"computed_bytes": 104, "on_disk_bytes": 100}}, "weights"),
        ({"pool": {"computed_bytes": 96.0, "given_bytes": 100.0, "computed_block_size": None}}, "pool"),
        ({"pool": {"computed_bytes": 100.0, "given_bytes": 100.0, "computed_block_size": 800}}, "block_size"),
        ({"counters": {"decode": {"trace_s": 1.2, "counter_s": 1.0}}}, "decode"),
    ],
)
def test_what_is_out_is_flagged_with_its_numbers(changes: dict[str, Any], out: str) -> None:
    rows = model_checks(sections(**changes), 784)
    assert [row["check"] for row in rows if row["verdict"] == "flagged"] == [out]
    assert [line.partition(":")[0] for line in flags(rows)] == [out]


@pytest.mark.parametrize("ratio", [0.971, 1.029])
def test_three_percent_is_the_limit_of_the_bytes_model(ratio: float) -> None:
    assert verdicts(weights={"computed_bytes": 1000 * ratio, "on_disk_bytes": 1000})["weights"] == "within"


def test_a_check_without_a_measured_value_is_unknown_and_not_passed() -> None:
    pool = {"computed_bytes": None, "given_bytes": None, "computed_block_size": None}
    assert verdicts(pool=pool)["pool"] == "unknown"


def test_a_counter_that_did_not_move_is_unknown_and_an_absent_phase_is_no_check() -> None:
    counters = {"prefill": {"trace_s": 1.0, "counter_s": 0.0}, "decode": {"trace_s": 0.0, "counter_s": 0.0}}
    found = verdicts(counters=counters)
    assert found["prefill"] == "unknown"
    assert "decode" not in found


def test_request_seconds_that_the_trace_does_not_tell_are_unknown() -> None:
    counters = {"prefill": {"trace_s": None, "counter_s": 9.1}, "decode": {"trace_s": 1.0, "counter_s": 1.0}}
    assert verdicts(counters=counters) == verdicts() | {"prefill": "unknown"}
