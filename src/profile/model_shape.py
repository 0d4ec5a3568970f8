"""What a Hugging Face ``config.json`` says about a decoder's size, for the bytes and FLOP models.

One parser per family of architectures turns a config into a :class:`Shape`; an unknown
``model_type`` or a missing key is an error that names the file and the key, never a guess. The
parameter count that a shape implies is checked against the weights on disk by
:func:`adrbench.profile.model_bytes.check_weights`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DTYPE_BYTES = {"float64": 8, "float32": 4, "float": 4, "bfloat16": 2, "float16": 2, "half": 2}


class ModelConfigError(ValueError):
    """A model's config is missing, of an unknown architecture, or lacks a key; names file and key."""


@dataclass(frozen=True)
class Attention:
    """Softmax attention of one layer. ``gate``: the query projection also makes an output gate."""

    layers: int
    query_heads: int
    kv_heads: int
    head_dim: int
    bias: bool = False
    output_bias: bool = False
    qk_norm: bool = False
    gate: bool = False


@dataclass(frozen=True)
class LinearAttention:
    """Gated DeltaNet layers: a fixed-size recurrent state per sequence in place of a KV cache."""

    layers: int
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv_kernel: int
    state_bytes_per_value: int = 4

    @property
    def conv_channels(self) -> int:
        """Channels of the short convolution: queries, keys and values."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim


@dataclass(frozen=True)
class FeedForward:
    """Gated feed-forward layers; ``experts`` 0 is dense, else each token uses ``active`` experts."""

    layers: int
    intermediate: int
    experts: int = 0
    active: int = 0
    shared_intermediate: int = 0
    bias: bool = False


@dataclass(frozen=True)
class Shape:
    """A decoder-only language model (the text part of a multimodal one)."""

    model_type: str
    hidden: int
    vocabulary: int
    tied_embeddings: bool
    weight_bytes_per_value: int
    attention: Attention
    feed_forward: tuple[FeedForward, ...]
    linear_attention: LinearAttention | None = None
    source: str = field(default="", compare=False)

    @property
    def layers(self) -> int:
        """Decoder layers, of any attention kind."""
        return self.attention.layers + (self.linear_attention.layers if self.linear_attention else 0)


class _Keys:
    """Reads a config's keys; every failure names the file and the key."""

    def __init__(self, file: Path, data: dict[str, Any], prefix: str = ""):
        self.file, self.data, self.prefix = file, data, prefix

    def integer(self, key: str, default: int | None = None) -> int:
        value = self.data.get(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise ModelConfigError(
                f"{self.file}: {self.prefix}{key} is {value!r}, expected a count; "
                "the bytes model cannot be built without it"
            )
        return value

    def positive(self, key: str, default: int | None = None) -> int:
        value = self.integer(key, default)
        if value == 0:
            raise ModelConfigError(f"{self.file}: {self.prefix}{key} is 0, expected at least 1")
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self.data.get(key)
        return default if value is None else bool(value)

    def dtype_bytes(self, *keys: str, default: str | None = None) -> int:
        """Bytes of the first named dtype that is present."""
        named = next(((k, self.data[k]) for k in keys if self.data.get(k) is not None), (keys[0], default))
        key, value = named
        size = DTYPE_BYTES.get(str(value).removeprefix("torch."))
        if size is None:
            raise ModelConfigError(
                f"{self.file}: {self.prefix}{key} is {value!r}, expected one of {', '.join(sorted(DTYPE_BYTES))}"
            )
        return size


def _attention(keys: _Keys, layers: int, **options: bool) -> Attention:
    query_heads = keys.positive("num_attention_heads")
    head_dim = keys.integer("head_dim", 0) or keys.positive("hidden_size") // query_heads
    return Attention(layers, query_heads, keys.positive("num_key_value_heads", query_heads), head_dim, **options)


def _shape(keys: _Keys, attention: Attention, feed_forward: tuple[FeedForward, ...], **more: Any) -> Shape:
    return Shape(
        model_type=str(keys.data["model_type"]),
        hidden=keys.positive("hidden_size"),
        vocabulary=keys.positive("vocab_size"),
        tied_embeddings=keys.flag("tie_word_embeddings", False),
        weight_bytes_per_value=keys.dtype_bytes("dtype", "torch_dtype"),
        attention=attention,
        feed_forward=feed_forward,
        source=str(keys.file),
        **more,
    )


def _dense(keys: _Keys, *, qk_norm: bool, bias: bool | None = None) -> Shape:
    layers = keys.positive("num_hidden_layers")
    declared = keys.flag("attention_bias", False)
    attention = _attention(
        keys, layers, bias=declared if bias is None else bias, output_bias=declared and bias is None, qk_norm=qk_norm
    )
    return _shape(
        keys,
        attention,
        (FeedForward(layers, keys.positive("intermediate_size"), bias=keys.flag("mlp_bias", False)),),
    )


def _llama(keys: _Keys) -> Shape:
    return _dense(keys, qk_norm=False)


def _qwen2(keys: _Keys) -> Shape:
    return _dense(keys, qk_norm=False, bias=True)


def _qwen3(keys: _Keys) -> Shape:
    return _dense(keys, qk_norm=True)


def _mixtral(keys: _Keys) -> Shape:
    layers = keys.positive("num_hidden_layers")
    experts = FeedForward(
        layers,
        keys.positive("intermediate_size"),
        experts=keys.positive("num_local_experts"),
        active=keys.positive("num_experts_per_tok"),
    )
    return _shape(keys, _attention(keys, layers), (experts,))


def _experts(keys: _Keys, layers: int) -> tuple[FeedForward, ...]:
    """Qwen's mixture of experts: every ``decoder_sparse_step``-th layer, except ``mlp_only_layers``."""
    step, skip = keys.positive("decoder_sparse_step", 1), set(keys.data.get("mlp_only_layers") or [])
    sparse = sum(1 for i in range(layers) if i not in skip and (i + 1) % step == 0)
    parts = [
        FeedForward(
            sparse,
            keys.positive("moe_intermediate_size"),
            experts=keys.positive("num_experts"),
            active=keys.positive("num_experts_per_tok"),
            shared_intermediate=keys.integer("shared_expert_intermediate_size", 0),
        )
    ]
    if layers > sparse:
        parts.append(FeedForward(layers - sparse, keys.positive("intermediate_size")))
    return tuple(parts)


def _qwen3_moe(keys: _Keys) -> Shape:
    layers = keys.positive("num_hidden_layers")
    attention = _attention(keys, layers, bias=keys.flag("attention_bias", False), qk_norm=True)
    return _shape(keys, attention, _experts(keys, layers))


def _full_attention_layers(keys: _Keys) -> int:
    """How many layers hold a KV cache, from ``layer_types`` or ``full_attention_interval``."""
    layers, types = keys.positive("num_hidden_layers"), keys.data.get("layer_types")
    if types is None:
        return layers // keys.positive("full_attention_interval")
    unknown = set(types) - {"full_attention", "linear_attention"}
    if unknown or len(types) != layers:
        what = f"unknown kinds {sorted(unknown)}" if unknown else f"{len(types)} entries for {layers} layers"
        raise ModelConfigError(f"{keys.file}: {keys.prefix}layer_types has {what}")
    return int(types.count("full_attention"))


def _qwen_hybrid(keys: _Keys) -> Shape:
    """Qwen3-Next and Qwen3.5: Gated DeltaNet layers with a full attention layer at each interval."""
    layers, full = keys.positive("num_hidden_layers"), _full_attention_layers(keys)
    linear = LinearAttention(
        layers - full,
        keys.positive("linear_num_key_heads"),
        keys.positive("linear_num_value_heads"),
        keys.positive("linear_key_head_dim"),
        keys.positive("linear_value_head_dim"),
        keys.positive("linear_conv_kernel_dim"),
        keys.dtype_bytes("mamba_ssm_dtype", default="float32"),
    )
    gate = keys.flag("attn_output_gate", True)
    dense = FeedForward(layers, keys.positive("intermediate_size")) if not keys.data.get("num_experts") else None
    return _shape(
        keys,
        _attention(keys, full, bias=keys.flag("attention_bias", False), qk_norm=True, gate=gate),
        (dense,) if dense else _experts(keys, layers),
        linear_attention=linear,
    )


FAMILIES: dict[str, Callable[[_Keys], Shape]] = {
    "llama": _llama,
    "mistral": _llama,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "mixtral": _mixtral,
    "qwen3_moe": _qwen3_moe,
    "qwen3_next": _qwen_hybrid,
    "qwen3_5": _qwen_hybrid,
    "qwen3_5_text": _qwen_hybrid,
    "qwen3_5_moe": _qwen_hybrid,
    "qwen3_5_moe_text": _qwen_hybrid,
}


def parse_config(data: dict[str, Any], file: Path) -> Shape:
    """Shape of a config that is already loaded; ``file`` is for messages only.

    A multimodal config's ``text_config`` is the model measured here (vLLM's
    ``--language-model-only``); keys that only the outer level has are taken from there.

    Raises:
        ModelConfigError: unknown ``model_type`` or a missing or unfit key.
    """
    text, prefix = data.get("text_config"), ""
    if isinstance(text, dict):
        inherited: dict[str, Any] = {k: data[k] for k in ("tie_word_embeddings", "dtype", "torch_dtype") if k in data}
        data, prefix = {**inherited, "model_type": data.get("model_type"), **text}, "text_config."
    model_type = data.get("model_type")
    parser = FAMILIES.get(str(model_type))
    if parser is None:
        raise ModelConfigError(
            f"{file}: {prefix}model_type is {model_type!r}, the bytes model knows {', '.join(sorted(FAMILIES))}; "
            "add its parser to FAMILIES in src/profile/model_shape.py"
        )
    return parser(_Keys(file, data, prefix))


def load_shape(model: Path) -> Shape:
    """Shape of the model in folder ``model``.

    Raises:
        ModelConfigError: as :func:`parse_config`, and when config.json is absent or not a JSON object.
    """
    file = Path(model) / "config.json"
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelConfigError(f"{file}: {error.strerror}; name a Hugging Face model folder") from None
    except ValueError as error:
        raise ModelConfigError(f"{file}: not valid JSON ({error})") from None
    if not isinstance(data, dict):
        raise ModelConfigError(f"{file}: holds {type(data).__name__}, expected an object")
    return parse_config(data, file)
