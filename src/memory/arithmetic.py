"""Bytes of one model's cache under a scheme, and what a pool of given bytes then holds. Pure.

Layout arithmetic is that of ``kernels.formats``: codes, scales, zero points, outliers, and the tokens that a scheme
keeps in 16 bit. A pool is made of blocks. Where a backend stores a scheme, its pool is vLLM's own and is read from its
log; where a scheme is only simulated, the pool is computed: as many blocks of the scheme's page layout as fit into
the bytes of the baseline's pool, with the baseline's block size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from adrbench.kernels.formats.layout import PAGE_MULTIPLE, PageLayout
from adrbench.kernels.formats.scheme import Scheme
from adrbench.profile import model_pool as hybrid
from adrbench.profile.model_bytes import KvFormat
from adrbench.profile.model_shape import Shape

BYTES_16_BIT = 2


@dataclass(frozen=True)
class Pool:
    """A KV pool: ``tokens`` in ``blocks`` of ``block_size`` tokens, ``bytes`` in all; ``requests`` of one length."""

    tokens: int
    blocks: int
    block_size: int
    bytes: float
    requests: float


def wide_bytes_per_token(shape: Shape) -> int:
    """Bytes of one token in 16 bit over all layers that hold KV."""
    part = shape.attention
    return part.layers * 2 * part.kv_heads * part.head_dim * BYTES_16_BIT


def bytes_per_token(scheme: Scheme, shape: Shape) -> float:
    """Bytes of one quantised token over all layers that hold KV."""
    part = shape.attention
    return part.layers * scheme.bytes_per_token(part.kv_heads, part.head_dim)


def bytes_of_request(scheme: Scheme, shape: Shape, length: int) -> float:
    """Bytes of one request of ``length`` tokens, its 16-bit windows counted, block rounding not."""
    part = shape.attention
    return part.layers * scheme.bytes_of_request(length, part.kv_heads, part.head_dim)


def layout_ratio(scheme: Scheme, shape: Shape) -> float:
    """Bytes of one quantised token relative to 16 bit."""
    return bytes_per_token(scheme, shape) / wide_bytes_per_token(shape)


def request_ratio(scheme: Scheme, shape: Shape, length: int) -> float:
    """Bytes of a whole request relative to 16 bit."""
    return bytes_of_request(scheme, shape, length) / (length * wide_bytes_per_token(shape))


def scale_bytes_per_token(scheme: Scheme, shape: Shape) -> float:
    """Bytes that one quantised token takes beside its codes (scales, zero points, outliers), over all layers."""
    part = shape.attention
    codes = sum(plane.code_bytes(part.head_dim) for plane in (scheme.key, scheme.value))
    return bytes_per_token(scheme, shape) - part.layers * part.kv_heads * codes


def wide_share(scheme: Scheme, length: int) -> float:
    """Share of a request's rows that stay in 16 bit, keys and values together."""
    if scheme.key.scope == scheme.value.scope == "none":
        return 1.0
    planes = (scheme.key, scheme.value)
    return sum(length - max(0, p.quantised_end(length) - p.sink) for p in planes) / (2 * length)


def page_block_size(block_size: int) -> int:
    """The block size of a page layout: vLLM's, rounded up to the layout's multiple."""
    return math.ceil(block_size / PAGE_MULTIPLE) * PAGE_MULTIPLE


def computed_pool(scheme: Scheme, shape: Shape, pool_bytes: float, block_size: int, length: int) -> Pool:
    """The pool that a backend with this scheme's pages would have in ``pool_bytes``.

    ``requests`` counts requests of ``length`` tokens: whole blocks of each, and its 16-bit windows beside them.
    """
    part, size = shape.attention, page_block_size(block_size)
    block_bytes = part.layers * PageLayout(scheme, part.kv_heads, part.head_dim, size).page_bytes
    blocks = int(pool_bytes // block_bytes)
    wide = bytes_of_request(scheme, shape, length) - length * bytes_per_token(scheme, shape)
    request = math.ceil(length / size) * block_bytes + max(0.0, wide)
    return Pool(blocks * size, blocks, size, blocks * block_bytes, pool_bytes / request)


def served_pool(tokens: int, block_size: int, token_bytes: float, length: int) -> Pool:
    """The pool that a running vLLM reported."""
    blocks = tokens // block_size
    return Pool(tokens, blocks, block_size, tokens * token_bytes, blocks / math.ceil(length / block_size))


def hybrid_request(scheme: Scheme, shape: Shape, length: int, asked_block_size: int = 16) -> tuple[int, int]:
    """(bytes of one request in vLLM's pool, block size) for a model that mixes softmax and linear attention.

    The recurrent state and the rounding to vLLM's raised block size are in it, 16-bit windows are not.
    """
    bits = scheme.bits_per_value(shape.attention.head_dim)
    found = hybrid.pool(shape, KvFormat(scheme.name, bits), asked_block_size=asked_block_size)
    return found.bytes(length), found.block_size
