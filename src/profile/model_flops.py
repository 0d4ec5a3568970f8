"""Floating-point operations of a decoder's phases, from its shape.

Per token: 2 operations per parameter of every matrix that it passes (active experts only); attention
4 * heads * head_dim per token of context and layer (scores and weighted values); Gated DeltaNet
7 * value_heads * key_dim * value_dim per layer (decay, read, delta, outer product, output) in its
recurrent form, which the chunked kernels exceed; the output matrix once per sampled row. Norms,
activations and sampling are left out: they are small beside the matrices.
"""

from __future__ import annotations

from collections.abc import Sequence

from adrbench.profile.model_shape import FeedForward, Shape


def _feed_forward_matrix(part: FeedForward, hidden: int) -> int:
    """Parameters of the matrices that one token passes in one layer."""
    if not part.experts:
        return 3 * hidden * part.intermediate
    routed = part.active * 3 * hidden * part.intermediate + hidden * part.experts
    return routed + 3 * hidden * part.shared_intermediate


def matrix_parameters_per_token(shape: Shape) -> int:
    """Parameters of all matrices that one token passes, without the output matrix."""
    part, linear, hidden = shape.attention, shape.linear_attention, shape.hidden
    query, kv = part.query_heads * part.head_dim, part.kv_heads * part.head_dim
    attention = part.layers * hidden * (query * (2 if part.gate else 1) + 2 * kv + query)
    feed_forward = sum(p.layers * _feed_forward_matrix(p, hidden) for p in shape.feed_forward)
    if linear is None:
        return attention + feed_forward
    value = linear.value_heads * linear.value_dim
    delta = linear.layers * hidden * (linear.conv_channels + 2 * value + 2 * linear.value_heads)
    return attention + feed_forward + delta


def token_flops(shape: Shape) -> float:
    """Operations of one token that do not depend on its context."""
    linear, flops = shape.linear_attention, 2.0 * matrix_parameters_per_token(shape)
    if linear is not None:
        state = 7.0 * linear.value_heads * linear.key_dim * linear.value_dim
        flops += linear.layers * (state + 2.0 * linear.conv_channels * linear.conv_kernel)
    return flops


def attention_flops(shape: Shape, context_tokens: float) -> float:
    """Operations of softmax attention for queries whose contexts add up to ``context_tokens``."""
    part = shape.attention
    return 4.0 * part.layers * part.query_heads * part.head_dim * context_tokens


def output_flops(shape: Shape, rows: int) -> float:
    """Operations of the output matrix for ``rows`` sampled positions."""
    return 2.0 * shape.vocabulary * shape.hidden * rows


def prefill_flops(shape: Shape, lengths: Sequence[int]) -> float:
    """Operations to prefill whole prompts of these lengths (causal: token i attends to i + 1 tokens)."""
    contexts = sum(length * (length + 1) / 2 for length in lengths)
    return sum(lengths) * token_flops(shape) + attention_flops(shape, contexts) + output_flops(shape, len(lengths))


def decode_flops(shape: Shape, contexts: Sequence[float]) -> float:
    """Operations of one decode step of ``len(contexts)`` sequences."""
    rows = len(contexts)
    return rows * token_flops(shape) + attention_flops(shape, sum(contexts)) + output_flops(shape, rows)
