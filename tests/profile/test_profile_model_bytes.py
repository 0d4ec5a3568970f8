"""Bytes model against published arithmetic of Qwen3.5-27B and against a folder of real safetensors.

Cannot prove: what a kernel really reads. The model counts the least traffic a step can have.
"""

import json
import struct
from pathlib import Path

import pytest
from adrbench.profile.model_bytes import (
    check_weights,
    decode_step_bytes,
    experts_touched,
    kv_bytes_per_token,
    kv_format,
    kv_saving,
    parameters,
    pool_blocks,
    safetensors_bytes,
    state_bytes_per_sequence,
    weight_bytes,
)
from adrbench.profile.model_shape import FeedForward, ModelConfigError, load_shape, parse_config

QWEN35_27B = {
    "model_type": "qwen3_5",
    "tie_word_embeddings": False,
    "text_config": {
        "model_type": "qwen3_5_text",
        "dtype": "bfloat16",
        "hidden_size": 5120,
        "intermediate_size": 17408,
        "num_hidden_layers": 64,
        "full_attention_interval": 4,
        "num_attention_heads": 24,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "attn_output_gate": True,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 48,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
        "mamba_ssm_dtype": "float32",
        "vocab_size": 248320,
    },
}
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
def qwen():
    return parse_config(QWEN35_27B, Path("config.json"))


@pytest.fixture
def tiny():
    return parse_config(TINY, Path("config.json"))


def tiny_tensors():
    """Names and shapes of TINY as transformers stores it (tied: no lm_head)."""
    layer = {
        "self_attn.q_proj": (16, 16),
        "self_attn.k_proj": (8, 16),
        "self_attn.v_proj": (8, 16),
        "self_attn.o_proj": (16, 16),
        "mlp.gate_proj": (24, 16),
        "mlp.up_proj": (24, 16),
        "mlp.down_proj": (16, 24),
        "input_layernorm": (16,),
        "post_attention_layernorm": (16,),
    }
    tensors = {f"model.layers.{i}.{name}.weight": shape for i in range(2) for name, shape in layer.items()}
    return {**tensors, "model.embed_tokens.weight": (40, 16), "model.norm.weight": (16,)}


def write_safetensors(file, tensors):
    header, offset = {}, 0
    for name, shape in tensors.items():
        size = 2
        for n in shape:
            size *= n
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + bytes(offset))


def test_qwen35_27b_reproduces_published_sizes(qwen):
    assert weight_bytes(qwen) / 1e9 == pytest.approx(53.8, abs=0.05)
    assert sum(parameters(qwen).values()) / 1e9 == pytest.approx(26.896, abs=0.001)
    assert kv_bytes_per_token(qwen, kv_format("auto", 2)) == 65_536
    assert kv_bytes_per_token(qwen, kv_format("fp8_e4m3", 2)) == 32_768
    assert state_bytes_per_sequence(qwen) == 48 * 3_207_168
    assert (qwen.attention.layers, qwen.linear_attention.layers) == (16, 48)


@pytest.mark.parametrize(
    ("batch", "context", "share_percent", "saving_percent"),
    [(1, 4096, 0.5, 0.25), (1, 32768, 3.8, 1.9), (4, 32768, 13.5, 6.8), (10, 32768, 27.4, 13.7)],
)
def test_qwen35_27b_kv_share_of_a_decode_step(qwen, batch, context, share_percent, saving_percent):
    step = decode_step_bytes(qwen, [context] * batch, kv_format("auto", 2))
    assert 100 * step.kv_share == pytest.approx(share_percent, abs=0.05)
    assert 100 * kv_saving(step, 0.5) == pytest.approx(saving_percent, abs=0.05)


def test_qwen35_27b_pool_blocks_of_a_32k_request():
    # 48 of 64 layers keep state: three state blocks; block sizes are those vLLM sets for this model.
    assert pool_blocks(32768, 784, state_blocks=3) == 45
    assert pool_blocks(32768, 1568, state_blocks=3) == 24


def test_layer_types_say_the_same_as_the_interval(qwen):
    kinds = ["full_attention" if i % 4 == 3 else "linear_attention" for i in range(64)]
    text = {**QWEN35_27B["text_config"], "layer_types": kinds}
    del text["full_attention_interval"]
    assert parse_config({**QWEN35_27B, "text_config": text}, Path("config.json")) == qwen


def test_step_does_not_read_an_untied_input_table(qwen, tiny):
    step = decode_step_bytes(qwen, [100.0], kv_format("auto", 2))
    table = 248_320 * 5120 * 2
    assert step.embedding_table == table
    assert step.weights == weight_bytes(qwen) - table
    assert decode_step_bytes(tiny, [100.0], kv_format("auto", 2)).weights == weight_bytes(tiny)


def test_total_adds_up_by_hand(tiny):
    step = decode_step_bytes(tiny, [10, 20], kv_format("auto", 2))
    per_token = 2 * 2 * 2 * 4 * 2  # layers, K and V, KV heads, head size, bytes
    assert (step.kv_read, step.kv_write, step.state) == (30 * per_token, 2 * per_token, 0)
    assert step.total == weight_bytes(tiny) + 32 * per_token


def test_scales_per_token_and_head_are_counted(tiny):
    plain, scaled = (kv_bytes_per_token(tiny, kv_format(d, 2)) for d in ("fp8", "int8_per_token_head"))
    assert scaled - plain == 2 * 2 * 2 * 4


def test_unknown_kv_dtype_is_refused():
    with pytest.raises(ModelConfigError, match=r"'int3'.*known: auto"):
        kv_format("int3", 2)


def test_experts_touched_between_one_token_and_all():
    part = FeedForward(1, 8, experts=8, active=2)
    assert experts_touched(part, 1) == pytest.approx(2)
    assert 2 < experts_touched(part, 4) < 8
    assert experts_touched(part, 1000) == pytest.approx(8)


def test_mixture_reads_only_the_experts_it_touches():
    config = {
        **TINY,
        "model_type": "qwen3_moe",
        "head_dim": 4,
        "moe_intermediate_size": 8,
        "num_experts": 4,
        "num_experts_per_tok": 1,
    }
    shape = parse_config(config, Path("config.json"))
    one = decode_step_bytes(shape, [0], kv_format("auto", 2)).weights
    assert weight_bytes(shape) - one == pytest.approx(2 * 3 * (3 * 16 * 8) * 2)  # 2 layers, 3 idle experts, bf16


def test_weights_equal_safetensors_headers(tiny, tmp_path):
    write_safetensors(tmp_path / "model.safetensors", {**tiny_tensors(), "model.visual.patch.weight": (5, 5)})
    check = check_weights(tiny, tmp_path)
    assert check["ratio"] == 1.0
    assert check["other_on_disk_bytes"] == 50


def test_missing_tensor_shows_in_the_ratio(tiny, tmp_path):
    tensors = tiny_tensors()
    del tensors["model.layers.1.mlp.up_proj.weight"]
    write_safetensors(tmp_path / "model.safetensors", tensors)
    assert check_weights(tiny, tmp_path)["ratio"] > 1.03


@pytest.mark.parametrize("cut", [4, 40, -1], ids=["length", "header", "data"])
def test_truncated_safetensors_is_refused(tiny, tmp_path, cut):
    file = tmp_path / "model.safetensors"
    write_safetensors(file, tiny_tensors())
    file.write_bytes(file.read_bytes()[:cut])
    with pytest.raises(ModelConfigError, match=r"model\.safetensors"):
        safetensors_bytes(tmp_path)


def test_folder_without_weights_is_refused(tmp_path):
    with pytest.raises(ModelConfigError, match=r"no \*\.safetensors"):
        safetensors_bytes(tmp_path)


@pytest.mark.parametrize(
    "key", ["hidden_size", "intermediate_size", "num_attention_heads", "vocab_size", "torch_dtype"]
)
def test_missing_key_names_file_and_key(key, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({k: v for k, v in TINY.items() if k != key}))
    with pytest.raises(ModelConfigError, match=rf"config\.json: .*{key.removeprefix('torch_')}"):
        load_shape(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"model_type": "gptbigcode"}', "model_type is 'gptbigcode'"),
        ("{}", "model_type is None"),
        ("[1]", "list, expected an object"),
        ('{"model_type": "lla', "not valid JSON"),
    ],
)
def test_unfit_config_is_refused(text, message, tmp_path):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ModelConfigError, match=message):
        load_shape(tmp_path)


def test_missing_config_is_refused(tmp_path):
    with pytest.raises(ModelConfigError, match="No such file"):
        load_shape(tmp_path)


def test_unknown_layer_kind_is_refused():
    text = {**QWEN35_27B["text_config"], "layer_types": ["sliding_attention"] * 64}
    with pytest.raises(ModelConfigError, match=r"text_config\.layer_types has unknown kinds"):
        parse_config({**QWEN35_27B, "text_config": text}, Path("config.json"))
