"""Model folders without weights, for timing: a configuration and a tokenizer whose every id has a text.

    python benchmarks/served_shapes.py qwen3-8b FOLDER

Served with ``--load-format dummy``: random weights, the shape's time and memory.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

QWEN3_8B: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "torch_dtype": "bfloat16", "hidden_size": 4096,
    "intermediate_size": 12288, "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8,
    "head_dim": 128, "vocab_size": 151936, "max_position_embeddings": 40960, "rope_theta": 1000000.0,
    "rms_norm_eps": 1e-6, "hidden_act": "silu", "attention_bias": False, "tie_word_embeddings": False,
    "dtype": "bfloat16", "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
    "bos_token_id": 151643, "eos_token_id": 151645, "initializer_range": 0.02, "use_cache": True,
}  # fmt: skip

QWEN35_27B: dict[str, Any] = {
    "architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5", "torch_dtype": "bfloat16",
    "tie_word_embeddings": False, "image_token_id": 248056, "video_token_id": 248057,
    "vision_start_token_id": 248053, "vision_end_token_id": 248054,
    "text_config": {
        "model_type": "qwen3_5_text", "dtype": "bfloat16", "hidden_size": 5120, "intermediate_size": 17408,
        "num_hidden_layers": 64, "num_attention_heads": 24, "num_key_value_heads": 4, "head_dim": 256,
        "vocab_size": 248320, "max_position_embeddings": 262144, "rms_norm_eps": 1e-6, "hidden_act": "silu",
        "attention_bias": False, "full_attention_interval": 4, "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_num_key_heads": 16,
        "linear_num_value_heads": 48, "partial_rotary_factor": 0.25, "mamba_ssm_dtype": "float32",
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000000, "partial_rotary_factor": 0.25,
                            "mrope_section": [11, 11, 10], "mrope_interleaved": True},
    },
    "vision_config": {
        "model_type": "qwen3_5", "depth": 27, "hidden_size": 1152, "intermediate_size": 4304, "num_heads": 16,
        "patch_size": 16, "spatial_merge_size": 2, "temporal_patch_size": 2, "out_hidden_size": 5120,
        "num_position_embeddings": 2304,
    },
}  # fmt: skip

SHAPES = {"qwen3-8b": QWEN3_8B, "qwen3.5-27b": QWEN35_27B}

IMAGES = {
    "size": {"longest_edge": 16777216, "shortest_edge": 65536}, "patch_size": 16, "temporal_patch_size": 2,
    "merge_size": 2, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5],
    "processor_class": "Qwen3VLProcessor", "image_processor_type": "Qwen2VLImageProcessorFast",
}  # fmt: skip


def vocabulary(shape: dict[str, Any]) -> int:
    return int(shape.get("text_config", shape)["vocab_size"])


def write(name: str, folder: Path, layers: int | None = None) -> Path:
    """Write the shape's folder. ``layers``: fewer layers than the model has; the caller must say so.

    Raises:
        KeyError: unknown shape.
    """
    shape: dict[str, Any] = json.loads(json.dumps(SHAPES[name]))
    if layers:
        shape.get("text_config", shape)["num_hidden_layers"] = layers
    size = vocabulary(shape)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(shape, indent=1))
    names = {151643: "<|endoftext|>", 151645: "<|im_end|>"}
    if "text_config" in shape:
        names |= {
            248053: "<|vision_start|>",
            248054: "<|vision_end|>",
            248056: "<|image_pad|>",
            248057: "<|video_pad|>",
        }
        (folder / "preprocessor_config.json").write_text(json.dumps(IMAGES))
        video = IMAGES | {"video_processor_type": "Qwen3VLVideoProcessor"}
        (folder / "video_preprocessor_config.json").write_text(json.dumps(video))
    words = {names.get(i, f"t{i}"): i for i in range(size)}
    special = [
        {"id": i, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
         "special": True}
        for i, text in names.items()
    ]  # fmt: skip
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None, "decoder": None,
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "t0"},
    }  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "unk_token": "t0",
    }
    settings["model_max_length"] = 262144
    if "text_config" in shape:
        settings |= {"image_token": "<|image_pad|>", "video_token": "<|video_pad|>",
                     "vision_bos_token": "<|vision_start|>", "vision_eos_token": "<|vision_end|>"}  # fmt: skip
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


if __name__ == "__main__":
    print(write(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else None))
