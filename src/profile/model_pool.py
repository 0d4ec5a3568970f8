"""vLLM's KV pool for a model that mixes softmax and linear attention, as its source computes it.

All layers share one pool of equal pages. A page holds ``block_size`` tokens of one attention layer,
or the whole recurrent state of one linear layer, so the block size is raised until a page fits that
state (``vllm/model_executor/models/config.py``, ``HybridAttentionMambaModelConfig``):

    block_size = 16 * ceil(state_bytes_of_one_layer / (16 * kv_bytes_of_one_token_of_one_layer))

Layers are put into groups of equal size (``vllm/v1/core/kv_cache_utils.py``); a pool block is one page
for each layer of a group, and a request takes ``ceil(tokens / block_size)`` blocks per attention group
and one per linear group.

Formulas were read in vLLM 0.18.1 and reproduce a published log of that version (see the claims).
Tensor parallelism divides both page sizes alike and leaves the block size as it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from adrbench.profile.model_bytes import KvFormat, kv_bytes_per_token, pool_blocks, state_bytes_per_sequence
from adrbench.profile.model_shape import ModelConfigError, Shape

#: Attention kernels want blocks of a multiple of this many tokens (models without MLA).
ALIGNMENT_TOKENS = 16


@dataclass(frozen=True)
class Pool:
    """One model's pool: sizes in tokens, bytes and blocks."""

    block_size: int
    page_bytes: int
    state_bytes: int
    layers_per_group: int
    attention_groups: int
    linear_groups: int

    @property
    def block_bytes(self) -> int:
        """Bytes of one pool block: one page for each layer of a group."""
        return self.page_bytes * self.layers_per_group

    @property
    def padding(self) -> float:
        """Share by which a linear layer's state is padded to fill a page."""
        return (self.page_bytes - self.state_bytes) / self.state_bytes

    def blocks(self, tokens: int) -> int:
        """Pool blocks of one request of ``tokens`` tokens."""
        return self.attention_groups * pool_blocks(tokens, self.block_size) + self.linear_groups

    def bytes(self, tokens: int) -> int:
        """Pool bytes of one request, rounding and recurrent state included."""
        return self.blocks(tokens) * self.block_bytes

    def pool_tokens(self, blocks: int) -> int:
        """What vLLM logs as ``GPU KV cache size`` for a pool of ``blocks`` blocks."""
        return blocks // (self.attention_groups + self.linear_groups) * self.block_size

    def largest_pool(self, pool_tokens: int) -> int | None:
        """The largest multiple of the groups that logs ``pool_tokens``; None if no pool logs it."""
        rows, rest = divmod(pool_tokens, self.block_size)
        return None if rest else rows * (self.attention_groups + self.linear_groups)


def group_size(attention_layers: int, linear_layers: int) -> int:
    """Layers per group: the smaller kind's count, or the larger one's when they are nearly equal."""
    smaller, larger = sorted((attention_layers, linear_layers))
    return larger if larger < 1.25 * smaller else smaller


def pool(shape: Shape, kv: KvFormat, *, state_bytes_per_value: int | None = None, asked_block_size: int = 16) -> Pool:
    """The pool vLLM builds for a hybrid model.

    ``asked_block_size`` is ``--block-size``, which counts only where it exceeds what the state needs;
    ``state_bytes_per_value`` overrides the config's ``mamba_ssm_dtype`` (4 or 2).

    Raises:
        ModelConfigError: the model has no linear-attention layers.
    """
    if shape.linear_attention is None:
        raise ModelConfigError(f"{shape.source}: has no linear-attention layers, so its block size is not raised")
    if state_bytes_per_value is not None:
        shape = replace(
            shape, linear_attention=replace(shape.linear_attention, state_bytes_per_value=state_bytes_per_value)
        )
    assert shape.linear_attention is not None
    attention, linear = shape.attention.layers, shape.linear_attention.layers
    per_token = int(kv_bytes_per_token(shape, kv)) // attention
    state = state_bytes_per_sequence(shape) // linear
    needed = ALIGNMENT_TOKENS * math.ceil(state / (ALIGNMENT_TOKENS * per_token))
    block_size = max(asked_block_size, needed)
    size = group_size(attention, linear)
    return Pool(block_size, block_size * per_token, state, size, math.ceil(attention / size), math.ceil(linear / size))
