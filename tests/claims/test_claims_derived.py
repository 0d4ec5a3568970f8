"""Sizes of the model: hand-computed values, the published log, and configs that cannot be used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from adrbench.claims.registry import CHECKS, Context
from adrbench.claims.schema import Claim, ClaimError
from adrbench.claims.verdict import judge_claim
from adrbench.profile import model_pool
from adrbench.profile.model_bytes import kv_format
from adrbench.profile.model_shape import ModelConfigError, load_shape

DATA = Path(__file__).resolve().parents[2] / "config" / "claims" / "data"
QWEN = DATA / "qwen3.5-27b"


def values(name: str, **arguments: Any) -> dict[str, Any]:
    return CHECKS[name].run(Context(data=DATA), {"model": "qwen3.5-27b", **arguments}).values


@pytest.mark.parametrize(
    ("kv", "state", "block_size", "blocks"),
    [("auto", 4, 784, 45), ("fp8", 4, 1568, 24), ("auto", 2, 400, 85), ("fp8", 2, 800, 44)],
)
def test_block_size_and_blocks_of_a_32k_request(kv: str, state: int, block_size: int, blocks: int) -> None:
    pool = model_pool.pool(load_shape(QWEN), kv_format(kv, 2), state_bytes_per_value=state)
    assert (pool.block_size, pool.blocks(32768), pool.linear_groups) == (block_size, blocks, 3)
    assert pool.page_bytes >= pool.state_bytes
    assert (pool.block_size - 16) * pool.page_bytes // pool.block_size < pool.state_bytes, "the smallest that fits"


@pytest.mark.parametrize(("asked", "taken"), [(16, 784), (64, 784), (784, 784), (1024, 1024)])
def test_an_asked_block_size_counts_only_upwards(asked: int, taken: int) -> None:
    assert model_pool.pool(load_shape(QWEN), kv_format("auto", 2), asked_block_size=asked).block_size == taken


@pytest.mark.parametrize(("tokens", "blocks"), [(1, 4), (784, 4), (785, 5), (32768, 45)])
def test_requests_are_rounded_up_to_blocks(tokens: int, blocks: int) -> None:
    assert model_pool.pool(load_shape(QWEN), kv_format("auto", 2)).blocks(tokens) == blocks


@pytest.mark.parametrize(("attention", "linear", "size"), [(16, 48, 16), (10, 12, 12), (10, 13, 10), (12, 12, 12)])
def test_layers_per_group(attention: int, linear: int, size: int) -> None:
    assert model_pool.group_size(attention, linear) == size


def test_the_published_log_follows_and_another_one_does_not() -> None:
    found = values("pool-log", pool_tokens=265776, max_model_len=32768)
    assert (found["blocks"], round(found["concurrency"], 2)) == (1356, 30.13)
    other = values("pool-log", pool_tokens=265777, max_model_len=32768)
    assert (other["divisible"], other["concurrency"]) == (False, None)


def test_kv_bytes_and_state_by_hand() -> None:
    assert values("kv-cache", tokens=32768)["bytes_per_token"] == 16 * 2 * 4 * 256 * 2
    assert values("kv-cache", tokens=32768, kv_dtype="fp8")["bytes_per_token"] == 16 * 2 * 4 * 256
    assert values("linear-state")["layer_bytes"] == 48 * 128 * 128 * 4 + 3 * 10240 * 2


def test_halving_kv_saves_half_of_its_share() -> None:
    found = values("decode-share", sequences=1, tokens=32768)
    assert found["saving_percent"] == pytest.approx(found["kv_percent"] / 2)
    assert found["kv_percent"] == pytest.approx(3.8, abs=0.05)


@pytest.mark.parametrize(
    ("arguments", "ratio"),
    [
        ({"bits": [8, 8]}, 0.5),
        ({"bits": [16, 4]}, 0.625),
        ({"bits": [2, 2], "overhead_bits": 32, "group": 32}, 0.1875),
        ({"bits": [8, 8], "window_tokens": 256, "tokens": 4096}, 0.53125),
        ({"bits": [8, 8], "window_tokens": 256, "tokens": 100}, 1.0),
        ({"scheme": "kivi4"}, 0.3125),
    ],
)
def test_memory_ratio(arguments: dict[str, Any], ratio: float) -> None:
    assert CHECKS["memory-ratio"].run(Context(data=DATA), arguments).values["ratio"] == pytest.approx(ratio)


def test_weights_fit_64_gib_and_not_a_smaller_utilisation() -> None:
    assert values("weights", card="BW1000")["fits"] is True
    assert values("weights", card="BW1000", utilisation=0.7)["fits"] is False


def claim(check: dict[str, Any], expect: dict[str, Any]) -> Claim:
    text = {"en": "x", "zh": "x"}
    return Claim.model_validate(
        {"id": "X-1", "file": "x.yaml", "place": {"document": "x", "section": "A"}, "statement": text}
        | {"kind": "derived", "check": check, "expect": expect}
    )


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"model_type": "no_such_model"}, "model_type is 'no_such_model'"),
        ({"num_hidden_layers": None}, "num_hidden_layers is None"),
        ({"head_dim": "wide"}, "head_dim is 'wide'"),
        ({"linear_num_value_heads": None}, "linear_num_value_heads is None"),
    ],
)
def test_a_config_that_cannot_be_used_names_entry_file_and_key(
    tmp_path: Path, change: dict[str, Any], text: str
) -> None:
    config = json.loads((QWEN / "config.json").read_text(encoding="utf-8"))
    config["text_config"] |= change
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text(json.dumps(config), encoding="utf-8")
    entry = claim({"name": "kv-cache", "model": "broken", "tokens": 1}, {"gb": 1})
    with pytest.raises(ClaimError, match=text) as error:
        judge_claim(entry, Context(data=tmp_path))
    assert str(error.value).startswith("x.yaml: X-1: ")
    assert "config.json" in str(error.value)


def test_an_unknown_model_lists_the_known_ones() -> None:
    entry = claim({"name": "kv-cache", "model": "qwen9", "tokens": 1}, {"gb": 1})
    with pytest.raises(ClaimError, match=r"X-1: .*no model folder 'qwen9'; known: qwen3\.5-27b"):
        judge_claim(entry, Context(data=DATA))


def test_a_model_without_linear_layers_has_no_hybrid_pool(tmp_path: Path) -> None:
    config = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    config |= {"intermediate_size": 128, "vocab_size": 100, "torch_dtype": "bfloat16"}  # type: ignore[dict-item]
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(ModelConfigError, match="has no linear-attention layers"):
        model_pool.pool(load_shape(tmp_path), kv_format("auto", 2))
