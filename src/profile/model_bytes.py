"""Bytes that a decoder keeps and moves: weights, KV cache, recurrent state, one decode step.

Bytes of one decode step for a batch of sequences with context lengths L_i:

    step = weights + sum_i L_i * kv_bytes_per_token + 2 * batch * state + batch * kv_bytes_per_token

(weights once, each sequence's cache read once, recurrent state read and written, new KV written).
Activations and logits are left out: they stay in cache or are small beside the weights. This is the
least traffic a step can have, so the bandwidth derived from it is a lower bound of what the memory did.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adrbench.profile.model_shape import Attention, FeedForward, LinearAttention, ModelConfigError, Shape

# A safetensors header beyond this is damage, not a model (the format's own limit).
LARGEST_HEADER_BYTES = 100 << 20

OTHER_PARTS = ("visual.", "model.visual.", "vision_tower.", "model.vision_tower.", "mtp.", "model.mtp.")


@dataclass(frozen=True)
class KvFormat:
    """How one K or V vector of one head is stored: bits per value, and scale bytes beside it."""

    name: str
    bits_per_value: float
    scale_bytes_per_token_head: float = 0.0


def kv_format(kv_dtype: str, weight_bytes_per_value: int) -> KvFormat:
    """Storage of vLLM's own ``--kv-cache-dtype`` values.

    FP8 caches of vLLM have one scale per layer (tensor), which is nothing per token;
    ``*_per_token_head`` keeps one fp32 scale per token and head, for K and for V.

    Raises:
        ModelConfigError: for a name that is not known; its memory would be a guess.
    """
    bits = {"bfloat16": 16, "float16": 16, "float32": 32, "auto": 8 * weight_bytes_per_value}
    if kv_dtype in bits:
        return KvFormat(kv_dtype, bits[kv_dtype])
    if kv_dtype in ("fp8", "fp8_e4m3", "fp8_e5m2"):
        return KvFormat(kv_dtype, 8)
    if kv_dtype in ("int8_per_token_head", "fp8_per_token_head"):
        return KvFormat(kv_dtype, 8, 4.0)
    raise ModelConfigError(
        f"kv_dtype: {kv_dtype!r} has no known storage layout; known: auto, bfloat16, float16, float32, fp8, "
        "fp8_e4m3, fp8_e5m2, int8_per_token_head, fp8_per_token_head"
    )


def attention_parameters(part: Attention, hidden: int) -> int:
    """Parameters of one softmax attention layer."""
    query, kv = part.query_heads * part.head_dim, part.kv_heads * part.head_dim
    projections = hidden * (query * (2 if part.gate else 1) + 2 * kv) + query * hidden
    biases = (query + 2 * kv if part.bias else 0) + (hidden if part.output_bias else 0)
    return projections + biases + (2 * part.head_dim if part.qk_norm else 0)


def linear_attention_parameters(part: LinearAttention, hidden: int) -> int:
    """Parameters of one Gated DeltaNet layer: q, k, v, gate z, decay a and beta b, convolution, norm, output."""
    value = part.value_heads * part.value_dim
    projections = hidden * (part.conv_channels + value + 2 * part.value_heads) + value * hidden
    return projections + part.conv_channels * part.conv_kernel + 2 * part.value_heads + part.value_dim


def feed_forward_parameters(part: FeedForward, hidden: int) -> int:
    """Parameters of one feed-forward layer, all experts and their router included."""
    dense = 3 * hidden * part.intermediate
    if not part.experts:
        return dense + (2 * part.intermediate + hidden if part.bias else 0)
    shared = 3 * hidden * part.shared_intermediate + (hidden if part.shared_intermediate else 0)
    return part.experts * dense + hidden * part.experts + shared


def parameters(shape: Shape) -> dict[str, int]:
    """Parameters by part of the model; a tied output matrix is counted once, as ``embedding``."""
    table = shape.vocabulary * shape.hidden
    linear = shape.linear_attention
    return {
        "embedding": table,
        "output": 0 if shape.tied_embeddings else table,
        "attention": shape.attention.layers * attention_parameters(shape.attention, shape.hidden),
        "linear_attention": linear.layers * linear_attention_parameters(linear, shape.hidden) if linear else 0,
        "feed_forward": sum(p.layers * feed_forward_parameters(p, shape.hidden) for p in shape.feed_forward),
        "norm": (2 * shape.layers + 1) * shape.hidden,
    }


def weight_bytes(shape: Shape) -> int:
    """Bytes of all weights of the text model in the config's dtype."""
    return sum(parameters(shape).values()) * shape.weight_bytes_per_value


def kv_bytes_per_token(shape: Shape, kv: KvFormat) -> float:
    """KV-cache bytes of one token over all layers that hold one, K and V, scales included."""
    part = shape.attention
    per_vector = part.head_dim * kv.bits_per_value / 8 + kv.scale_bytes_per_token_head
    return part.layers * 2 * part.kv_heads * per_vector


def state_bytes_per_sequence(shape: Shape) -> int:
    """Recurrent state of one sequence: the SSM matrix of each value head, and the convolution's window."""
    part = shape.linear_attention
    if part is None:
        return 0
    matrix = part.value_heads * part.key_dim * part.value_dim * part.state_bytes_per_value
    window = (part.conv_kernel - 1) * part.conv_channels * shape.weight_bytes_per_value
    return part.layers * (matrix + window)


def pool_blocks(tokens: int, block_size: int, *, state_blocks: int = 0) -> int:
    """Blocks of the KV pool that a sequence of ``tokens`` occupies, rounded up as vLLM allocates them."""
    return math.ceil(tokens / block_size) + state_blocks


def experts_touched(part: FeedForward, tokens: int) -> float:
    """Expected number of experts that ``tokens`` tokens activate, if routing is uniform."""
    if not part.experts:
        return 0.0
    return part.experts * (1 - (1 - part.active / part.experts) ** tokens)


@dataclass(frozen=True)
class StepBytes:
    """Least bytes one decode step moves, by part."""

    weights: float
    embedding_table: float
    kv_read: float
    kv_write: float
    state: float

    @property
    def total(self) -> float:
        """Bytes moved. The untied input table is not in it: a step gathers ``batch`` rows of it."""
        return self.weights + self.kv_read + self.kv_write + self.state

    @property
    def kv_share(self) -> float:
        """KV share of all bytes *held and used* (whole weights, KV read, state).

        The input table is counted here, as the usual memory arithmetic does; leaving it out raises
        the share of a model with an untied table by up to a twentieth of itself.
        """
        return self.kv_read / (self.weights + self.embedding_table + self.kv_read + self.state)


def decode_step_bytes(shape: Shape, contexts: Sequence[float], kv: KvFormat) -> StepBytes:
    """Bytes of one decode step of ``len(contexts)`` sequences with these context lengths in tokens.

    Experts of a mixture are counted as touched under uniform routing (an expectation, not a measurement).
    """
    batch, count = len(contexts), parameters(shape)
    table = 0 if shape.tied_embeddings else count["embedding"]
    idle = sum(
        part.layers * (part.experts - experts_touched(part, batch)) * 3 * shape.hidden * part.intermediate
        for part in shape.feed_forward
        if part.experts
    )
    per_token = kv_bytes_per_token(shape, kv)
    return StepBytes(
        weights=(sum(count.values()) - table - idle) * shape.weight_bytes_per_value,
        embedding_table=table * shape.weight_bytes_per_value,
        kv_read=sum(contexts) * per_token,
        kv_write=batch * per_token,
        state=2.0 * batch * state_bytes_per_sequence(shape),
    )


def kv_saving(step: StepBytes, kv_ratio: float) -> float:
    """Largest share of a step's bytes saved when the KV cache shrinks to ``kv_ratio`` of its size."""
    return step.kv_share * (1 - kv_ratio)


def safetensors_bytes(folder: Path) -> tuple[int, int]:
    """(text bytes, other bytes) of the weights in ``folder``, from the headers alone.

    Other: vision encoder and multi-token-prediction head, which a text server does not read per step.

    Raises:
        ModelConfigError: no safetensors file, or a header that is damaged, naming the file.
    """
    files = sorted(Path(folder).glob("*.safetensors"))
    if not files:
        raise ModelConfigError(f"{folder}: no *.safetensors file; the weight bytes cannot be checked")
    text = other = 0
    for file in files:
        for name, entry in _header(file).items():
            if name == "__metadata__":
                continue
            start, end = entry["data_offsets"]
            if name.startswith(OTHER_PARTS):
                other += end - start
            else:
                text += end - start
    return text, other


def _header(file: Path) -> dict[str, dict[str, list[int]]]:
    size = file.stat().st_size
    with open(file, "rb") as f:
        prefix = f.read(8)
        length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else 0
        if not 0 < length <= min(size - 8, LARGEST_HEADER_BYTES):
            raise ModelConfigError(f"{file}: damaged safetensors header (length {length} in a file of {size} bytes)")
        try:
            header = json.loads(f.read(length))
            end = max((e["data_offsets"][1] for n, e in header.items() if n != "__metadata__"), default=0)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ModelConfigError(f"{file}: damaged safetensors header ({error})") from None
    if 8 + length + end != size:
        raise ModelConfigError(f"{file}: header describes {8 + length + end} bytes, the file has {size}: truncated?")
    return dict(header)


def computed_weights(shape: Shape) -> dict[str, Any]:
    """The same of a folder without weights, which vLLM makes up: what vLLM says that it loaded is held against it.

    Sizes on disk and their ratio do not apply and are None.
    """
    absent = dict.fromkeys(("on_disk_bytes", "other_on_disk_bytes", "ratio"))
    return {"computed_bytes": weight_bytes(shape), **absent, "not_applicable": "random weights: no files"}


def check_weights(shape: Shape, folder: Path) -> dict[str, Any]:
    """The model's weight bytes against the files on disk: both, and their ratio (1.0 is exact)."""
    disk, other = safetensors_bytes(folder)
    computed = weight_bytes(shape)
    return {
        "computed_bytes": computed,
        "on_disk_bytes": disk,
        "other_on_disk_bytes": other,
        "ratio": computed / disk if disk else math.inf,
    }
