"""The backend and its implementation: store, decode and prompts over pages of one cache scheme.

Layout: one layer's cache is ``[pages, page_bytes]`` bytes (``formats.layout``). Rows are quantised
when stored; decode reads them as they are; chunks that continue a prompt read them dequantised.

Not served, and refused with the reason: sliding windows, ALiBi, soft caps, sinks, encoders, layers that
share another layer's cache, static scales, context parallelism.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from adrbench.kernels.backend.metadata import CustomMetadata, CustomMetadataBuilder, Prompts
from adrbench.kernels.backend.prefill import attend_for
from adrbench.kernels.backend.refusals import refuse
from adrbench.kernels.decode.launch import HEAD_DIMS, decode
from adrbench.kernels.formats import Scheme
from adrbench.kernels.formats import scheme as scheme_of
from adrbench.kernels.formats.layout import PAGE_MULTIPLE, PagedCache, PageLayout
from adrbench.kernels.formats.served import backend_problem
from adrbench.kernels.store.launch import load, store
from adrbench.serve import plugin
from vllm.v1.attention.backend import AttentionType, MultipleOf
from vllm.v1.attention.backends.triton_attn import TritonAttentionBackend, TritonAttentionImpl

PREFERRED_PAGE = 64
"""The page that the decode kernels read best; ``--block-size`` overrides it, hybrid models may round it up."""


def active_scheme() -> Scheme:
    """The scheme that the arm's configuration names (``plugin.scheme``).

    Raises:
        ValueError: no scheme, one that needs calibrated scales, or one without kernels.
    """
    name = plugin.settings().get("scheme")
    if not name:
        raise ValueError("backend CUSTOM needs plugin.scheme, a scheme of src/kernels/formats")
    found = scheme_of(name)
    if problem := backend_problem(found):
        raise ValueError(f"backend CUSTOM: {problem}")
    return found


class CustomBackend(TritonAttentionBackend):  # type: ignore[misc]
    """``AttentionBackendEnum.CUSTOM``: vLLM's Triton backend with our cache layout and kernels."""

    supported_dtypes: ClassVar[list[torch.dtype]] = [torch.bfloat16, torch.float16]
    supported_kv_cache_dtypes: ClassVar[list[str]] = ["auto"]
    forward_includes_kv_cache_update: bool = False

    @staticmethod
    def get_name() -> str:
        return "CUSTOM"

    @staticmethod
    def get_impl_cls() -> type:
        return CustomImpl

    @staticmethod
    def get_builder_cls() -> type:
        return CustomMetadataBuilder

    @staticmethod
    def get_supported_kernel_block_sizes() -> list[Any]:
        return [MultipleOf(PAGE_MULTIPLE)]

    @classmethod
    def get_preferred_block_size(cls, default_block_size: int) -> int:  # noqa: ARG003
        return PREFERRED_PAGE

    @staticmethod
    def get_kv_cache_shape(
        num_blocks: int,
        block_size: int,
        num_kv_heads: int,
        head_size: int,
        cache_dtype_str: str = "auto",  # noqa: ARG004
    ) -> tuple[int, ...]:
        return (num_blocks, PageLayout(active_scheme(), num_kv_heads, head_size, block_size).page_bytes)

    @staticmethod
    def get_kv_cache_stride_order(include_num_layers_dimension: bool = False) -> tuple[int, ...]:
        if include_num_layers_dimension:
            raise NotImplementedError  # vLLM's word for: no layout across layers
        return (0, 1)

    @classmethod
    def supports_head_size(cls, head_size: int) -> bool:
        return head_size in HEAD_DIMS

    @classmethod
    def supports_attn_type(cls, attn_type: str) -> bool:
        return bool(attn_type == AttentionType.DECODER)

    @classmethod
    def supports_mm_prefix(cls) -> bool:
        return False

    @classmethod
    def supports_sink(cls) -> bool:
        return False

    @classmethod
    def supports_alibi_sqrt(cls) -> bool:
        return False

    @classmethod
    def supports_batch_invariance(cls) -> bool:
        return False


class CustomImpl(TritonAttentionImpl):  # type: ignore[misc]
    """One layer's attention. Arguments are those of vLLM's Triton implementation."""

    _reported = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        refuse(
            sliding_window=self.sliding_window if self.sliding_window != (-1, -1) else None,
            alibi=self.alibi_slopes is not None,
            soft_cap=self.logits_soft_cap,
            sinks=self.sinks is not None,
            shared_cache_of=self.kv_sharing_target_layer_name,
            kv_cache_dtype=self.kv_cache_dtype if self.kv_cache_dtype != "auto" else None,
            context_parallelism=getattr(self, "total_cp_world_size", 1) > 1,
        )
        self.scheme = active_scheme()
        self.supports_quant_query_input = False
        self._cache: PagedCache | None = None
        self._prefill_name, self._attend = attend_for(self.head_size)
        if not CustomImpl._reported:
            CustomImpl._reported = True
            implementation = f"{type(self).__module__}.{type(self).__qualname__}"
            row = self.scheme.bytes_per_token(self.num_kv_heads, self.head_size)
            plugin.report(
                mechanism="L3", implementation=implementation, base=TritonAttentionBackend.__qualname__,
                scheme=self.scheme.name, bytes_per_token_and_layer=row, prefill=self._prefill_name,
            )  # fmt: skip

    def fused_output_quant_supported(self, quant_key: Any) -> bool:  # noqa: ARG002
        return False

    def fused_rope_kvcache_supported(self) -> bool:
        return False

    def cache_of(self, kv_cache: torch.Tensor) -> PagedCache:
        """``kv_cache`` ``[pages, page_bytes]`` with its planes as views, made once: views cost microseconds."""
        if self._cache is None or self._cache.buffer is not kv_cache:
            row = int(self.scheme.bytes_per_token(self.num_kv_heads, self.head_size))
            page, rest = divmod(kv_cache.shape[1], row)
            if rest:
                raise ValueError(f"pages of {kv_cache.shape[1]} bytes are not whole tokens of {row} bytes")
            self._cache = PagedCache(PageLayout(self.scheme, self.num_kv_heads, self.head_size, page), kv_cache)
        return self._cache

    def release(self) -> None:
        """Keep no cache alive; the next call makes its views again."""
        self._cache = None

    def do_kv_cache_update(
        self,
        layer: Any,  # noqa: ARG002
        key: torch.Tensor,
        value: torch.Tensor,
        kv_cache: torch.Tensor,
        slot_mapping: torch.Tensor,
    ) -> None:
        """Store rows; key and value may be padded beyond ``slot_mapping`` ``[tokens]`` int64."""
        tokens = slot_mapping.shape[0]
        store(self.cache_of(kv_cache), key[:tokens], value[:tokens], slot_mapping)

    def forward(
        self,
        layer: Any,  # noqa: ARG002
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        kv_cache: torch.Tensor,
        attn_metadata: CustomMetadata | None,
        output: torch.Tensor | None = None,
        output_scale: torch.Tensor | None = None,
        output_block_scale: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """``query`` ``[tokens, heads, dim]``, this step's ``key`` and ``value`` ``[tokens, kv_heads, dim]``; the
        step's rows are in the cache already. Writes and returns ``output`` ``[tokens, heads, dim]``."""
        assert output is not None, "vLLM passes the output tensor"
        refuse(fused_output_scale=output_scale is not None, fused_block_scale=output_block_scale is not None)
        if attn_metadata is None:
            return output.fill_(0)  # vLLM's profiling run
        refuse(non_causal_attention=not attn_metadata.causal)
        cache = self.cache_of(kv_cache)
        past = self._append(key, value, cache, attn_metadata)
        if attn_metadata.decodes:
            self._decode(query, cache, attn_metadata, output)
        if attn_metadata.prompts is not None:
            self._prompts(query, key, value, past, output, attn_metadata.prompts)
        return output

    def _append(
        self,
        key: torch.Tensor,
        value: torch.Tensor,  # noqa: ARG002
        cache: PagedCache,
        step: CustomMetadata,
    ) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Keys and values ``[tokens, kv_heads, dim]`` of what the step's prompts continue, None where all begin.

        The step's rows were stored by ``do_kv_cache_update``; rows of this step are replaced by the caller.
        """
        if step.prompts is None or step.prompts.context is None:
            return None
        return load(cache, step.prompts.context.slots, key.dtype)

    def _decode(self, query: torch.Tensor, cache: PagedCache, step: CustomMetadata, output: torch.Tensor) -> None:
        decodes = step.decodes
        decode(
            query[:decodes], cache, step.block_table[:decodes], step.seq_lens[:decodes], self.scale,
            out=output[:decodes], longest=step.reach,
        )  # fmt: skip

    def _prompts(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        past: tuple[torch.Tensor, torch.Tensor] | None,
        output: torch.Tensor,
        prompts: Prompts,
    ) -> None:
        rows = slice(prompts.first, prompts.end)
        key, value, starts, longest = key[rows], value[rows], prompts.starts, prompts.longest
        if (context := prompts.context) is not None:
            # This step's own rows stay as they are; only earlier ones went through the cache's format.
            assert past is not None
            all_keys, all_values = past
            all_keys.index_copy_(0, context.fresh, key)
            all_values.index_copy_(0, context.fresh, value)
            key, value, starts, longest = all_keys, all_values, context.starts, context.longest
        self._attend(
            query[rows], key, value, output[rows], prompts.starts, starts, prompts.longest, longest, self.scale
        )


def release_caches(worker: Any) -> None:
    """Keep no cache of a worker alive.

    vLLM measures the memory of graphs with a small cache, drops it, and sizes the real one as if it were gone: as many
    blocks as the largest graph has requests, which of a hybrid model are gigabytes.
    """
    for layer in worker.vllm_config.compilation_config.static_forward_context.values():
        if isinstance(impl := getattr(layer, "impl", None), CustomImpl):
            impl.release()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
