"""The backend and its implementation for schemes with a 16-bit window (KIVI); ``window_pages`` says where that lies."""

from __future__ import annotations

from typing import Any

import torch
from adrbench.kernels.backend.attention import CustomBackend, CustomImpl
from adrbench.kernels.backend.metadata import Context, CustomMetadata
from adrbench.kernels.decode.launch import decode_windowed
from adrbench.kernels.formats.layout import PagedCache, RingPages
from adrbench.kernels.store.window_launch import store_windowed
from adrbench.kernels.store.window_load import load_windowed
from vllm.v1.attention.backend import MultipleOf

PAGE_MULTIPLE = 32
"""Pages are whole groups of keys."""


class CustomWindowedBackend(CustomBackend):
    """CUSTOM for windowed schemes: storing needs the step's lengths, which only ``forward`` is given."""

    forward_includes_kv_cache_update: bool = True

    @staticmethod
    def get_impl_cls() -> type:
        return CustomWindowedImpl

    @staticmethod
    def get_supported_kernel_block_sizes() -> list[Any]:
        return [MultipleOf(PAGE_MULTIPLE)]


class CustomWindowedImpl(CustomImpl):
    """One layer's attention with a 16-bit window."""

    _ring: RingPages | None = None

    def release(self) -> None:
        super().release()
        self._ring = None

    def do_kv_cache_update(self, *_args: Any) -> None:
        raise NotImplementedError("backend CUSTOM stores windowed schemes in forward")

    def _ring_of(self, cache: PagedCache, dtype: torch.dtype) -> RingPages:
        if self._ring is None or self._ring.cache is not cache:
            self._ring = RingPages(cache, dtype)
        return self._ring

    def _append(
        self, key: torch.Tensor, value: torch.Tensor, cache: PagedCache, step: CustomMetadata
    ) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Read what prompts continue, as it was before this step, then store the step's rows.

        Slots of a dummy step are -1, while its block table may still be that of live requests: it stores nothing.
        """
        ring, decodes, prompts = self._ring_of(cache, key.dtype), step.decodes, step.prompts
        assert step.window is not None
        table, rows, lengths, past = step.block_table, step.window, step.seq_lens, None
        if prompts is not None and prompts.context is not None:
            past = self._read(prompts.context, cache, ring, rows[decodes:], table[decodes:])
        if decodes:
            starts = step.query_starts[: decodes + 1]
            own = (rows[:decodes], key[:decodes], value[:decodes], table[:decodes], starts, lengths[:decodes])
            store_windowed(cache, ring, *own, 1, step.slot_mapping)
        if prompts is not None:
            new, end = slice(prompts.first, prompts.end), decodes + prompts.starts.shape[0] - 1
            own = (rows[decodes:end], key[new], value[new], table[decodes:end], prompts.starts, lengths[decodes:end])
            store_windowed(cache, ring, *own, prompts.longest, step.slot_mapping[new])
        return past

    def _read(
        self, context: Context, cache: PagedCache, ring: RingPages, rows: torch.Tensor, table: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values ``[tokens, kv_heads, dim]`` of all that the prompts attend to; this step's rows are unset."""
        shape = (context.slots.shape[0], self.num_kv_heads, self.head_size)
        key, value = (torch.empty(shape, dtype=ring.dtype, device=table.device) for _ in range(2))
        prompts = context.before.shape[0]
        known = (context.before, context.starts, key, value, context.longest_before)
        load_windowed(cache, ring, rows[:prompts], table[:prompts], *known)
        return key, value

    def _decode(self, query: torch.Tensor, cache: PagedCache, step: CustomMetadata, output: torch.Tensor) -> None:
        decodes = step.decodes
        assert step.window is not None
        decode_windowed(
            query[:decodes], cache, self._ring_of(cache, query.dtype), step.window[:decodes],
            step.block_table[:decodes], step.seq_lens[:decodes], self.scale, out=output[:decodes], longest=step.reach,
        )  # fmt: skip
