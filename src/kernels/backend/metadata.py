"""What one step's attention needs to know, built once per step and shared by all layers.

vLLM puts requests with one query token first (``reorder_batch_threshold``): those are decoded, the
rest are prompts or chunks of prompts. Nothing here waits for the device, but for drafts of asynchronous steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from vllm.v1.attention.backend import AttentionCGSupport, AttentionMetadataBuilder
from vllm.v1.attention.backends.utils import split_decodes_and_prefills


@dataclass(frozen=True)
class Context:
    """Everything that the step's prompts attend to, tokens of earlier steps included.

    ``slots``: int64 ``[tokens]``, sequence after sequence. ``fresh``: int64, the places among them of
    this step's own tokens. ``starts``: int32 ``[prompts + 1]``. ``longest``: tokens of the longest. ``before``: int32
    ``[prompts]``, tokens of earlier steps, ``longest_before`` the greatest of them.
    """

    slots: torch.Tensor
    fresh: torch.Tensor
    starts: torch.Tensor
    longest: int
    before: torch.Tensor
    longest_before: int


@dataclass(frozen=True)
class Prompts:
    """The step's prompts. ``first`` and ``end``: their rows among the step's tokens; ``starts``: int32
    ``[prompts + 1]``, counted from ``first``; ``context``: None where every prompt begins in this step."""

    first: int
    end: int
    starts: torch.Tensor
    longest: int
    context: Context | None


@dataclass
class CustomMetadata:
    """One step. ``decodes`` requests of one token each come first; ``reach``: the longest sequence that the
    launch is cut for (the model's maximum, so that a captured graph serves every length). ``query_starts``: int32
    ``[requests + 1]``. ``window``: int32 ``[requests, window_pages]``, pages of the 16-bit windows, which come before
    those of ``block_table``; None without windows."""

    num_actual_tokens: int
    decodes: int
    reach: int
    seq_lens: torch.Tensor
    block_table: torch.Tensor
    slot_mapping: torch.Tensor
    prompts: Prompts | None
    query_starts: torch.Tensor
    window: torch.Tensor | None = None
    causal: bool = True


def context_of(
    table: torch.Tensor, lengths: torch.Tensor, query_starts: torch.Tensor, page: int, total: int, new: int,
    longest: int, longest_before: int,
) -> Context:  # fmt: skip
    """Slots of all tokens of the prompts, on the device.

    Args:
        table: int32 ``[prompts, pages]``.
        lengths: int32 ``[prompts]``, tokens of each prompt so far, this step's included.
        query_starts: int32 ``[prompts + 1]``, this step's tokens, counted from 0.
        page: tokens of a page.
        total: sum of ``lengths``, known on the host: no copy back is needed.
        new: this step's tokens of them, known on the host.
        longest: greatest of ``lengths``.
        longest_before: the same of the tokens of earlier steps.
    """
    prompts = torch.arange(lengths.shape[0], device=lengths.device)
    starts = torch.zeros(lengths.shape[0] + 1, dtype=torch.int32, device=lengths.device)
    starts[1:] = lengths.cumsum(0)
    owner = torch.repeat_interleave(prompts, lengths, output_size=total)
    position = torch.arange(total, device=lengths.device) - starts[owner]
    slots = table[owner, position // page].long() * page + position % page
    before = lengths - (query_starts[1:] - query_starts[:-1])
    # This step's tokens are the last of each prompt; a selection by mask would not know its size on the host.
    owner = torch.repeat_interleave(prompts, lengths - before, output_size=new)
    row = torch.arange(new, device=lengths.device)
    fresh = (starts[owner] + before[owner] - query_starts[owner]).long() + row
    return Context(slots, fresh, starts, longest, before, longest_before)


class CustomMetadataBuilder(AttentionMetadataBuilder):  # type: ignore[misc]
    """Builds ``CustomMetadata``. Graphs: whole decode steps; prompts run between pieces of graphs."""

    _cudagraph_support: ClassVar[Any] = AttentionCGSupport.UNIFORM_SINGLE_TOKEN_DECODE

    def __init__(self, kv_cache_spec: Any, layer_names: list[str], vllm_config: Any, device: torch.device) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        self.page = int(kv_cache_spec.block_size)
        self.window_pages = int(kv_cache_spec.window_pages)
        self.reach = int(vllm_config.model_config.max_model_len)
        scheduler = getattr(vllm_config, "scheduler_config", None)
        # A step is then prepared before it is known how many drafts of the one before were accepted.
        self.guessed = vllm_config.speculative_config is not None and getattr(scheduler, "async_scheduling", False)
        self._init_reorder_batch_threshold(1, supports_spec_as_decode=False)

    def build(
        self,
        common_prefix_len: int,  # noqa: ARG002
        common_attn_metadata: Any,
        fast_build: bool = False,  # noqa: ARG002
    ) -> CustomMetadata:
        """vLLM's entry; ``common_prefix_len`` above 0 never comes (cascade attention is refused)."""
        common = common_attn_metadata
        decodes, prefills, _, _ = split_decodes_and_prefills(common, decode_threshold=1)
        # Views of vLLM's own buffers: a captured graph reads what the next step puts there.
        window, table = None, common.block_table_tensor
        if self.window_pages:
            window, table = table[:, : self.window_pages], table[:, self.window_pages :]
        return CustomMetadata(
            num_actual_tokens=common.num_actual_tokens,
            decodes=decodes,
            reach=self.reach,
            seq_lens=common.seq_lens,
            block_table=table,
            slot_mapping=common.slot_mapping,
            prompts=self._prompts(common, decodes, table) if prefills else None,
            query_starts=common.query_start_loc,
            window=window,
            causal=common.causal,
        )

    def _prompts(self, common: Any, decodes: int, table: torch.Tensor) -> Prompts:
        starts_cpu = common.query_start_loc_cpu[decodes : common.num_reqs + 1]
        first, end = int(starts_cpu[0]), int(starts_cpu[-1])
        queries = starts_cpu[1:] - starts_cpu[:-1]
        starts = common.query_start_loc[decodes : common.num_reqs + 1]
        if first:
            starts = starts - first
        longest = int(queries.max())
        # 0.20.2 keeps an upper bound on the host, exact unless it is guessed; 0.18.1 the lengths themselves. Where
        # they are not on the host, vLLM's property waits for the device.
        known = None if self.guessed else getattr(common, "seq_lens_cpu_upper_bound", None)
        lengths_cpu = (common.seq_lens_cpu if known is None else known)[decodes : common.num_reqs]
        if bool((lengths_cpu == queries).all()):
            return Prompts(first, end, starts, longest, None)
        context = context_of(
            table[decodes : common.num_reqs],
            common.seq_lens[decodes : common.num_reqs],
            starts,
            self.page,
            int(lengths_cpu.sum()),
            end - first,
            int(lengths_cpu.max()),
            int((lengths_cpu - queries).max()),
        )
        return Prompts(first, end, starts, longest, context)
