"""Memory arithmetic against hand-computed figures, and what the job takes from evidence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from adrbench import evidence
from adrbench.audit.stages import Options, measured
from adrbench.evidence import Evidence
from adrbench.job import JobError
from adrbench.kernels.formats import scheme
from adrbench.memory import __main__ as job
from adrbench.memory import arithmetic
from adrbench.memory.spec import parse_spec
from adrbench.paths import ROOT
from adrbench.profile.model_shape import load_shape

QWEN = ROOT / "config/claims/data/qwen3.5-27b"
# SmolLM2-135M: 30 layers, 3 KV heads of 64.
SMALL = {
    "model_type": "llama", "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
    "num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 49152, "tie_word_embeddings": True,
    "dtype": "bfloat16", "architectures": ["LlamaForCausalLM"],
}  # fmt: skip


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "model").mkdir()
    (tmp_path / "model/config.json").write_text(json.dumps(SMALL))
    return tmp_path / "model"


def test_a_token_of_the_embedded_model_takes_23040_bytes(model: Path) -> None:
    shape = load_shape(model)
    assert arithmetic.wide_bytes_per_token(shape) == 23040
    assert arithmetic.bytes_per_token(scheme("bf16"), shape) == 23040


@pytest.mark.parametrize(
    ("name", "ratio"),
    [
        ("bf16", 1.0),
        ("fp8_per_tensor", 0.5),
        ("int8_per_head", 0.5),
        ("int8_per_token_head", (64 + 4) / 128),
        ("kivi4", 5 / 16),
        ("kivi2", 3 / 16),
        ("qserve_kv4_plain", (32 + 4) / 128),
    ],
)
def test_layout_ratios_are_those_of_the_definitions(model: Path, name: str, ratio: float) -> None:
    assert arithmetic.layout_ratio(scheme(name), load_shape(model)) == pytest.approx(ratio)


def test_a_window_raises_the_ratio_of_short_requests(model: Path) -> None:
    shape, kivi = load_shape(model), scheme("kivi2")
    short, long = (arithmetic.request_ratio(kivi, shape, length) for length in (256, 32768))
    # 256 tokens: no key is new, 128 values are: (256 * 3/16 + (128 * 3/16 + 128)) / 512
    assert short == pytest.approx((256 * 3 / 16 + 128 * 3 / 16 + 128) / 512)
    assert 3 / 16 < long < short


def test_the_hybrid_request_is_the_published_one() -> None:
    """Qwen3.5-27B at 32k: 45 blocks of 784 tokens in 16 bit, 24 of 1568 in 8 bit, 0.533."""
    shape = load_shape(QWEN)
    wide, narrow = (arithmetic.hybrid_request(scheme(n), shape, 32768) for n in ("bf16", "fp8_per_tensor"))
    assert (wide[1], narrow[1]) == (784, 1568)
    assert narrow[0] / wide[0] == pytest.approx(24 / 45)


def test_a_computed_pool_holds_whole_blocks_of_the_bytes(model: Path) -> None:
    shape = load_shape(model)
    pool_bytes = 364 * 128 * 23040
    same = arithmetic.computed_pool(scheme("bf16"), shape, pool_bytes, 128, 32768)
    assert (same.tokens, same.blocks) == (364 * 128, 364)
    assert same.requests == pytest.approx(364 / 256)
    half = arithmetic.computed_pool(scheme("int8_per_head"), shape, pool_bytes, 128, 32768)
    assert half.tokens == 2 * same.tokens
    kivi = arithmetic.computed_pool(scheme("kivi4"), shape, pool_bytes, 128, 32768)
    assert kivi.requests < kivi.blocks / 256
    assert kivi.requests == pytest.approx(pool_bytes / (32768 * 5 / 16 * 23040 + 128 * (11 / 16) * 11520), rel=2e-3)


def _spec(model: Path, folder: Path, **changes: Any) -> dict[str, Any]:
    def arm(name: str, scheme_name: str, simulated: bool, pools: list[str]) -> dict[str, Any]:
        return {"name": name, "scheme": scheme_name, "simulated": simulated, "pools": pools}

    raw = {
        "platform": "cpu", "baseline": "auto", "model": str(model), "cited": {"Qwen3.5-27B": str(QWEN)},
        "arms": [
            arm("auto", "bf16", False, [str(folder / "auto.json")]),
            arm("fp8", "fp8_per_tensor", False, [str(folder / "absent.json"), str(folder / "fp8.json")]),
            arm("kivi", "kivi4", True, []),
        ],
    }  # fmt: skip
    return raw | changes


def _pool(path: Path, tokens: int | None) -> None:
    resolved = {"kv_pool_tokens": tokens, "block_size": 128}
    evidence.write(
        path, Evidence(stage="agreement", platform="cpu", resolved=resolved, started_at="a", finished_at="b")
    )


def test_the_job_measures_where_it_can_and_says_what_it_computed(model: Path, tmp_path: Path) -> None:
    _pool(tmp_path / "auto.json", 46592)
    _pool(tmp_path / "fp8.json", 93184)
    output = tmp_path / "memory.json"
    job.work(_spec(model, tmp_path), output)
    arms = evidence.read(output).measured["arms"]
    assert arms["auto"]["pool"]["kind"] == arms["fp8"]["pool"]["kind"] == "measured"
    assert arms["fp8"]["pool"]["evidence"].endswith("fp8.json")
    assert arms["fp8"]["pool"]["ratio"] == pytest.approx(0.5)
    assert arms["kivi"]["pool"]["kind"] == "computed"
    assert 0.3125 <= arms["kivi"]["pool"]["ratio"] < 0.32
    assert arms["auto"]["pool"]["requests"] == pytest.approx(364 / 256)
    assert arms["fp8"]["cited"]["Qwen3.5-27B"]["pool_request_ratio"] == pytest.approx(24 / 45)


def test_without_the_baselines_pool_nothing_is_computed(model: Path, tmp_path: Path) -> None:
    _pool(tmp_path / "auto.json", None)
    found = job.measured(parse_spec(_spec(model, tmp_path)))
    assert [found["arms"][name]["pool"] for name in ("auto", "kivi")] == [None, None]


def test_an_unknown_scheme_is_named(model: Path, tmp_path: Path) -> None:
    raw = _spec(model, tmp_path)
    raw["arms"][2]["scheme"] = "kivi5"
    with pytest.raises(JobError, match=r"arms\[kivi\].scheme.*kivi5"):
        job.measured(parse_spec(raw))


def test_a_missing_baseline_is_refused(model: Path, tmp_path: Path) -> None:
    with pytest.raises(JobError, match="baseline 'bf16' is missing"):
        parse_spec(_spec(model, tmp_path, baseline="bf16"))


def test_an_audit_computes_memory_again(model: Path, tmp_path: Path) -> None:
    _pool(tmp_path / "auto.json", 46592)
    output = tmp_path / "memory.json"
    job.work(_spec(model, tmp_path), output)
    assert measured(output, Options()).findings == []
    document = json.loads(output.read_text())
    document["measured"]["arms"]["kivi"]["layout"]["ratio"] = 0.25
    output.write_text(json.dumps(document))
    assert "kivi.layout.ratio" in str(measured(output, Options()).findings[0])
