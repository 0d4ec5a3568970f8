"""Schemes with a 16-bit window (KIVI) in vLLM: the newest tokens of a request lie in pages of its own.

vLLM knows pages, and frees them with their request, but keeps nothing else per request. So the window takes pages too:
the manager gives a request ``PageLayout.window_pages`` more, first in its block table, for as long as it lives.
Preemption, the end of a request, and reuse by another are then vLLM's own, and no row has to be found or freed here.
A block table has that many more columns; the slots that vLLM computes from it would be shifted, and are not used.
"""

from __future__ import annotations

import functools
from typing import Any

from adrbench.kernels.backend.refusals import refuse
from vllm.v1.core.single_type_kv_cache_manager import FullAttentionManager

WINDOW_PAGES_AT_MOST = 32
"""Columns that every block table gets: the table is made before the model's shape is known."""


class WindowedManager(FullAttentionManager):  # type: ignore[misc]
    """Full attention, and the pages of the window before a request's first token."""

    def __init__(self, kv_cache_spec: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(kv_cache_spec, *args, **kwargs)
        if self.enable_caching:
            raise ValueError(f"backend CUSTOM: {PREFIX_CACHING.format(scheme=kv_cache_spec.scheme)}")
        self.window_tokens = kv_cache_spec.window_pages * self.block_size

    def get_num_blocks_to_allocate(self, request_id: str, num_tokens: int, *args: Any, **kwargs: Any) -> int:
        return int(super().get_num_blocks_to_allocate(request_id, num_tokens + self.window_tokens, *args, **kwargs))

    def allocate_new_blocks(self, request_id: str, num_tokens: int, *args: Any, **kwargs: Any) -> list[Any]:
        return list(super().allocate_new_blocks(request_id, num_tokens + self.window_tokens, *args, **kwargs))


PREFIX_CACHING = (
    "{scheme} keeps the newest tokens in 16 bit, so a cached prefix would be recent for one request and old for "
    "another; add --no-enable-prefix-caching"
)


def refuse_settings(scheme: str, vllm_config: Any) -> None:
    """Refuse what a window cannot have, before the pool is made.

    Raises:
        ValueError: prefix caching.
        NotImplementedError: naming another feature that is in use.
    """
    if vllm_config.cache_config.enable_prefix_caching:
        raise ValueError(f"backend CUSTOM: {PREFIX_CACHING.format(scheme=scheme)}")
    from vllm import envs

    refuse(
        speculative_decoding_with_a_window=vllm_config.speculative_config is not None,
        transfer_of_a_cache_with_a_window=vllm_config.kv_transfer_config is not None,
        the_second_model_runner_with_a_window=getattr(envs, "VLLM_USE_V2_MODEL_RUNNER", False),
    )


def widen_block_tables() -> None:
    """Room in every block table for the pages of the window."""
    from vllm.v1.worker.block_table import BlockTable

    original = BlockTable.__init__
    if getattr(original, "_adrbench", False):
        return

    @functools.wraps(original)
    def wider(
        self: Any, block_size: int, max_num_reqs: int, max_num_blocks_per_req: int, *args: Any, **kwargs: Any
    ) -> None:
        original(self, block_size, max_num_reqs, max_num_blocks_per_req + WINDOW_PAGES_AT_MOST, *args, **kwargs)

    wider._adrbench = True  # type: ignore[attr-defined]
    BlockTable.__init__ = wider
