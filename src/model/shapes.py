"""Model folders without weights: a configuration and a tokenizer, to be served with ``--load-format dummy``.

    PYTHONPATH=pythonpath python -m adrbench.model.shapes qwen3-8b FOLDER

vLLM then fills the shape with random weights: its time and its memory are the real model's, its answers mean nothing.
The configurations are those that the models publish, without what only loading or training reads.
"""

from __future__ import annotations

import itertools
import json
import string
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# What evidence and reports say of a server whose weights are random.
RANDOM_WEIGHTS = "random weights (--load-format dummy): speed and memory are the shape's, answers mean nothing"

SMOLLM2_135M: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16", "hidden_size": 576,
    "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3,
    "head_dim": 64, "vocab_size": 49152, "max_position_embeddings": 8192, "rope_theta": 100000.0,
    "rms_norm_eps": 1e-5, "hidden_act": "silu", "attention_bias": False, "mlp_bias": False,
    "tie_word_embeddings": True, "dtype": "bfloat16",
    "rope_parameters": {"rope_type": "default", "rope_theta": 100000.0},
    "bos_token_id": 1, "eos_token_id": 2, "initializer_range": 0.02, "use_cache": True,
}  # fmt: skip

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

SHAPES = {"smollm2-135m": SMOLLM2_135M, "qwen3-8b": QWEN3_8B, "qwen3.5-27b": QWEN35_27B}

# Special tokens at the places where the models have them; the others are words.
TEXT_SPECIAL = {"smollm2-135m": {1: "<|im_start|>", 2: "<|im_end|>"}}
QWEN_SPECIAL = {151643: "<|endoftext|>", 151645: "<|im_end|>"}
VISION_SPECIAL = {
    248053: "<|vision_start|>",
    248054: "<|vision_end|>",
    248056: "<|image_pad|>",
    248057: "<|video_pad|>",
}

# What the processor of a multimodal shape is built from; no image is ever sent.
IMAGES = {
    "size": {"longest_edge": 16777216, "shortest_edge": 65536}, "patch_size": 16, "temporal_patch_size": 2,
    "merge_size": 2, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5],
    "processor_class": "Qwen3VLProcessor", "image_processor_type": "Qwen2VLImageProcessorFast",
}  # fmt: skip

CONSONANTS, VOWELS = "bcdfghjklmnpqrstvwxz", "aeiou"
LONGEST_SYLLABLES = 3


def vocabulary(shape: dict[str, Any]) -> int:
    """Tokens of a shape's vocabulary."""
    return int(shape.get("text_config", shape)["vocab_size"])


def words() -> Iterator[str]:
    """Texts of tokens, all different: printable characters, then words of one, two and three syllables.

    Any text of printable characters is made of them, and text such as the load's falls into many different ones.
    """
    yield from (character for character in string.printable if not character.isspace())
    syllables = ["".join(pair) for pair in itertools.product(CONSONANTS, VOWELS)]
    for count in range(1, LONGEST_SYLLABLES + 1):
        yield from ("".join(parts) for parts in itertools.product(syllables, repeat=count))


def tokenizer(size: int, special: dict[int, str]) -> dict[str, Any]:
    """A fast tokenizer of ``size`` tokens as ``tokenizer.json`` holds it: the longest known piece first.

    Every id has a text of its own, so that each generated token is seen by a client that counts texts.
    """
    plain = words()
    table = {special.get(number) or next(plain): number for number in range(size)}
    added = [
        {"id": number, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
         "special": True}
        for number, text in special.items()
    ]  # fmt: skip
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None, "decoder": None,
        "model": {"type": "WordPiece", "vocab": table, "unk_token": "0", "continuing_subword_prefix": "",
                  "max_input_chars_per_word": 1000},
    }  # fmt: skip


def _special(name: str, vision: bool) -> dict[int, str]:
    return TEXT_SPECIAL.get(name, QWEN_SPECIAL) | (VISION_SPECIAL if vision else {})


def write(name: str, folder: Path, layers: int | None = None) -> Path:
    """Write a shape's model folder. ``layers``: fewer than the model has; the caller must say so.

    Raises:
        KeyError: unknown shape.
    """
    shape: dict[str, Any] = json.loads(json.dumps(SHAPES[name]))
    text, vision = shape.get("text_config", shape), "vision_config" in shape
    if layers:
        text["num_hidden_layers"] = layers
    files: dict[str, Any] = {
        "config.json": shape,
        "tokenizer.json": tokenizer(vocabulary(shape), _special(name, vision)),
    }
    files["tokenizer_config.json"] = {
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "unk_token": "0",
        "model_max_length": text["max_position_embeddings"],
    }  # fmt: skip
    if vision:
        files["tokenizer_config.json"] |= {
            "image_token": "<|image_pad|>", "video_token": "<|video_pad|>",
            "vision_bos_token": "<|vision_start|>", "vision_eos_token": "<|vision_end|>",
        }  # fmt: skip
        files["preprocessor_config.json"] = IMAGES
        files["video_preprocessor_config.json"] = IMAGES | {"video_processor_type": "Qwen3VLVideoProcessor"}
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in files.items():
        (folder / file).write_text(json.dumps(content, indent=1 if file == "config.json" else None), encoding="utf-8")
    return folder


if __name__ == "__main__":
    print(write(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else None))
