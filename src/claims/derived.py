"""Derived checks: sizes and shares computed from a model's config.json, never typed.

Models are folders below ``config/claims/data``; the arithmetic is ``adrbench.profile.model_bytes``
and ``model_pool`` beside it. GB are 10^9 bytes, GiB 2^30.
"""

from __future__ import annotations

import json
from typing import Any

from adrbench.claims import cited, extra_parts
from adrbench.claims.registry import Context, Finding, Unverifiable, check
from adrbench.kernels.formats import scheme as named_scheme
from adrbench.profile import model_bytes, model_pool
from adrbench.profile.model_shape import ModelConfigError, Shape, load_shape

GB, GIB = 1e9, float(1 << 30)


def _folder(context: Context, model: str) -> Any:
    folder = context.data / model
    if not folder.is_dir():
        known = ", ".join(sorted(p.parent.name for p in context.data.glob("*/config.json"))) or "none"
        raise ModelConfigError(f"{context.data}: no model folder {model!r}; known: {known}")
    return folder


def _shape(context: Context, model: str) -> Shape:
    return load_shape(_folder(context, model))


def _where(model: str) -> str:
    return f"config.json of {model}"


MODEL = (
    "architecture multimodal dense layers full_layers linear_layers full_attention_at head_dim query_heads kv_heads "
    "all_kv_heads hidden intermediate vocabulary context mtp_layers tied linear_key_heads linear_value_heads "
    "vision_layers"
)


@check("model", kind="derived", gives=MODEL)
def model(context: Context, model: str) -> Finding:
    """A model's shape: layers by kind, heads, and whether it sees images or has experts."""
    shape = _shape(context, model)
    raw = json.loads((_folder(context, model) / "config.json").read_text(encoding="utf-8"))
    text = raw.get("text_config", raw)
    linear = shape.linear_attention
    interval = text.get("full_attention_interval")
    values: dict[str, Any] = {
        "architecture": (raw.get("architectures") or [None])[0],
        "multimodal": "vision_config" in raw,
        "dense": all(part.experts == 0 for part in shape.feed_forward),
        "layers": shape.layers,
        "full_layers": shape.attention.layers,
        "linear_layers": linear.layers if linear else 0,
        "full_attention_at": list(range(interval - 1, shape.layers, interval)) if interval else None,
        "head_dim": shape.attention.head_dim,
        "query_heads": shape.attention.query_heads,
        "kv_heads": shape.attention.kv_heads,
        "all_kv_heads": shape.attention.kv_heads * shape.attention.layers,
        "hidden": shape.hidden,
        "intermediate": shape.feed_forward[0].intermediate,
        "vocabulary": shape.vocabulary,
        "context": text.get("max_position_embeddings"),
        "mtp_layers": text.get("mtp_num_hidden_layers", 0),
        "tied": shape.tied_embeddings,
        "linear_key_heads": linear.key_heads if linear else 0,
        "linear_value_heads": linear.value_heads if linear else 0,
        "vision_layers": raw.get("vision_config", {}).get("depth", 0),
    }
    line = (
        f"{values['architecture']}: {values['layers']} layers = {values['linear_layers']} linear + "
        f"{values['full_layers']} full attention; "
        f"{values['query_heads']} query and {values['kv_heads']} KV heads of {values['head_dim']}; "
        f"{'dense' if values['dense'] else 'mixture of experts'}{', multimodal' if values['multimodal'] else ''}"
    )
    return Finding(values, line, _where(model))


@check("weights", kind="derived", gives="parameters_billion gb gib gb_8bit fits left_gib device_gib")
def weights(context: Context, model: str, card: str = "", utilisation: float = 0.95) -> Finding:
    """Weight bytes of the text model, and whether they fit a card's memory at a utilisation.

    ``left_gib`` is what remains for the KV pool and everything else.
    """
    shape = _shape(context, model)
    total = model_bytes.weight_bytes(shape)
    count = sum(model_bytes.parameters(shape).values())
    values: dict[str, Any] = {
        "parameters_billion": count / 1e9,
        "gb": total / GB,
        "gib": total / GIB,
        "gb_8bit": count / GB,
    }
    values |= {"fits": None, "left_gib": None, "device_gib": None}
    line = f"{count / 1e9:.3f} billion parameters, {total / GB:.1f} GB = {total / GIB:.1f} GiB in the config's dtype"
    if card:
        record = cited.need_trust(cited.hardware(context, card, "memory_gib"), f"{card} memory_gib")
        left = record.value * utilisation - total / GIB
        values |= {"fits": left > 0, "left_gib": left, "device_gib": record.value}
        line += f"; {card} has {record.value} GiB: {'fits' if left > 0 else 'does not fit'}, "
        line += f"{left:.1f} GiB left at {utilisation:.0%}"
    return Finding(values, line, _where(model))


@check("weight-parts", kind="derived", gives="text_gb vision_billion prediction_billion gb_with_vision gb_with_all")
def weight_parts(context: Context, model: str) -> Finding:
    """Weights with the parts beside the text model: vision encoder, and multi-token-prediction head."""
    shape = _shape(context, model)
    raw = json.loads((_folder(context, model) / "config.json").read_text(encoding="utf-8"))
    vision = extra_parts.vision_parameters(raw.get("vision_config", {}), _where(model))
    layers = raw.get("text_config", raw).get("mtp_num_hidden_layers", 0)
    head = extra_parts.prediction_parameters(shape, layers)
    size, text = shape.weight_bytes_per_value, model_bytes.weight_bytes(shape)
    values = {
        "text_gb": text / GB,
        "vision_billion": vision / 1e9,
        "prediction_billion": head / 1e9,
        "gb_with_vision": (text + size * vision) / GB,
        "gb_with_all": (text + size * (vision + head)) / GB,
    }
    line = f"text {text / GB:.1f} GB; with the vision encoder ({vision / 1e9:.2f} billion) "
    line += f"{values['gb_with_vision']:.1f} GB; "
    line += f"with the prediction head ({head / 1e9:.2f} billion) {values['gb_with_all']:.1f} GB"
    return Finding(values, line, _where(model))


@check("kv-cache", kind="derived", gives="bytes_per_token gb gib share_percent")
def kv_cache(context: Context, model: str, tokens: int, kv_dtype: str = "auto", memory_gb: float = 0) -> Finding:
    """KV cache of one sequence, without pool rounding and recurrent state; its share of a memory in percent."""
    shape = _shape(context, model)
    per_token = model_bytes.kv_bytes_per_token(shape, model_bytes.kv_format(kv_dtype, shape.weight_bytes_per_value))
    total = per_token * tokens
    share = 100 * total / GB / memory_gb if memory_gb else None
    values = {"bytes_per_token": per_token, "gb": total / GB, "gib": total / GIB, "share_percent": share}
    part = shape.attention
    line = f"{part.layers} layers x 2 x {part.kv_heads} x {part.head_dim}: {per_token:,.0f} B per token, "
    line += f"{total / GB:.3f} GB = {total / GIB:.2f} GiB for {tokens} tokens"
    return Finding(values, line + (f", {share:.1f} % of {memory_gb:g} GB" if share is not None else ""), _where(model))


@check("linear-state", kind="derived", gives="layer_bytes sequence_bytes sequence_mb")
def linear_state(context: Context, model: str, state_bytes_per_value: int = 4) -> Finding:
    """Recurrent state of one sequence, all linear-attention layers."""
    shape = _shape(context, model)
    if shape.linear_attention is None:
        raise Unverifiable(f"{model} has no linear-attention layers")
    kv = model_bytes.kv_format("auto", shape.weight_bytes_per_value)
    pool = model_pool.pool(shape, kv, state_bytes_per_value=state_bytes_per_value)
    layers = shape.linear_attention.layers
    total = pool.state_bytes * layers
    values = {"layer_bytes": pool.state_bytes, "sequence_bytes": total, "sequence_mb": total / 1e6}
    line = f"{pool.state_bytes:,} B per layer, {total / 1e6:.1f} MB per sequence over {layers} layers"
    return Finding(values, line, _where(model))


POOL = (
    "block_size padding_percent block_mb attention_blocks state_blocks blocks gb ratio capacity_factor "
    "mean_waste_tokens"
)


@check("hybrid-pool", kind="derived", gives=POOL)
def hybrid_pool(
    context: Context,
    model: str,
    tokens: int = 32768,
    kv_dtype: str = "auto",
    state_bytes_per_value: int = 4,
    asked_block_size: int = 16,
) -> Finding:
    """A request in vLLM's pool: block size, blocks, bytes; ``ratio`` and ``capacity_factor`` against 16-bit KV."""
    shape = _shape(context, model)
    per_value = shape.weight_bytes_per_value

    def build(dtype: str) -> model_pool.Pool:
        kv = model_bytes.kv_format(dtype, per_value)
        return model_pool.pool(
            shape, kv, state_bytes_per_value=state_bytes_per_value, asked_block_size=asked_block_size
        )

    pool, baseline = build(kv_dtype), build("auto")
    ratio = pool.bytes(tokens) / baseline.bytes(tokens)
    values = {
        "block_size": pool.block_size,
        "padding_percent": 100 * pool.padding,
        "block_mb": pool.block_bytes / 1e6,
        "attention_blocks": pool.blocks(tokens) - pool.linear_groups,
        "state_blocks": pool.linear_groups,
        "blocks": pool.blocks(tokens),
        "gb": pool.bytes(tokens) / GB,
        "ratio": ratio,
        "capacity_factor": 1 / ratio,
        "mean_waste_tokens": pool.block_size / 2,
    }
    line = (
        f"block size {pool.block_size} (asked {asked_block_size}); {tokens} tokens take {values['attention_blocks']} + "
        f"{pool.linear_groups} state = {pool.blocks(tokens)} blocks = {values['gb']:.3f} GB, {ratio:.3f} x 16-bit KV"
    )
    return Finding(values, line, _where(model))


@check("pool-log", kind="derived", gives="block_size divisible blocks blocks_per_request concurrency")
def pool_log(context: Context, model: str, pool_tokens: int, max_model_len: int, kv_dtype: str = "auto") -> Finding:
    """Does a logged pool size follow from the pool model, and which concurrency must the log then show?"""
    shape = _shape(context, model)
    pool = model_pool.pool(shape, model_bytes.kv_format(kv_dtype, shape.weight_bytes_per_value))
    blocks, request = pool.largest_pool(pool_tokens), pool.blocks(max_model_len)
    values: dict[str, Any] = {
        "block_size": pool.block_size,
        "divisible": blocks is not None,
        "blocks": blocks,
        "blocks_per_request": request,
    }
    values["concurrency"] = blocks / request if blocks is not None else None
    line = f"{pool_tokens:,} tokens are no multiple of {pool.block_size}"
    if blocks is not None:
        line = f"{pool_tokens:,} tokens are {pool_tokens // pool.block_size} x {pool.block_size}: "
        line += f"{blocks} blocks / {request} per request = {blocks / request:.2f}x"
    return Finding(values, line, _where(model))


@check("decode-share", kind="derived", gives="kv_percent saving_percent kv_gb step_gb")
def decode_share(context: Context, model: str, sequences: int, tokens: int, kv_ratio: float = 0.5) -> Finding:
    """KV share of the bytes of one decode step, and the most that a smaller KV cache could save of them."""
    shape = _shape(context, model)
    kv = model_bytes.kv_format("auto", shape.weight_bytes_per_value)
    step = model_bytes.decode_step_bytes(shape, [tokens] * sequences, kv)
    values = {
        "kv_percent": 100 * step.kv_share,
        "saving_percent": 100 * model_bytes.kv_saving(step, kv_ratio),
        "kv_gb": step.kv_read / GB,
        "step_gb": step.total / GB,
    }
    line = (
        f"{sequences} x {tokens} tokens: KV {step.kv_read / GB:.2f} GB is {values['kv_percent']:.1f} % of a step; "
        f"x {kv_ratio:g} saves at most {values['saving_percent']:.2f} %"
    )
    return Finding(values, line, _where(model))


@check("memory-ratio", kind="derived", gives="ratio bits_per_value")
def memory_ratio(
    _context: Context,
    bits: list[float] | None = None,
    scheme: str = "",
    head_dim: int = 256,
    overhead_bits: float = 0,
    group: int = 0,
    window_tokens: int = 0,
    tokens: int = 32768,
) -> Finding:
    """Memory of a KV scheme against 16 bit, metadata counted.

    Either a ``scheme`` of ``adrbench.kernels.formats``, or ``bits`` = [key bits, value bits] with
    ``overhead_bits`` of scales (and zeros or outliers) for every ``group`` values. ``window_tokens``
    of ``tokens`` stay in 16 bit.
    """
    if (bits is None) == (not scheme):
        raise ValueError("memory-ratio takes either bits or scheme")
    if scheme:
        per_value = named_scheme(scheme).bits_per_value(head_dim)
    else:
        assert bits is not None
        per_value = sum(bits) / 2 + (overhead_bits / group if group else 0.0)
    window = min(1.0, window_tokens / tokens)
    mean = per_value * (1 - window) + 16 * window
    line = f"{mean:.3f} bits per value (metadata counted) = {mean / 16:.3f} x 16 bit"
    return Finding({"ratio": mean / 16, "bits_per_value": mean}, line, scheme or "bits and metadata of the scheme")


@check("quotient", kind="derived", gives="percent value")
def quotient(_context: Context, part: float, whole: float) -> Finding:
    """``part / whole``, also in percent: for shares a document quotes with both numbers."""
    return Finding(
        {"percent": 100 * part / whole, "value": part / whole},
        f"{part:g} / {whole:g} = {part / whole:.4g}",
        "arithmetic",
    )
