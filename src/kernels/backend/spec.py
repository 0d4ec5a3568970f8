"""The KV cache specification: how many bytes a page of a scheme takes, so that vLLM's pool grows with it.

vLLM computes a page as ``block_size * num_kv_heads * (head_size + head_size_v) * sizeof(dtype)``
(``FullAttentionSpec.real_page_size_bytes``); a scheme with scales in planes of their own is described
by its layout instead. The number of blocks, the allocation and the capacity report all follow from
``page_size_bytes``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from adrbench.kernels.formats import scheme as scheme_of
from adrbench.kernels.formats.layout import PageLayout
from vllm.v1.kv_cache_interface import FullAttentionSpec


@dataclass(frozen=True, kw_only=True)
class PageSpec(FullAttentionSpec):  # type: ignore[misc]
    """``FullAttentionSpec`` of a layer whose pages hold ``scheme``; ``dtype`` is always bytes."""

    scheme: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "dtype", torch.uint8)

    @property
    def real_page_size_bytes(self) -> int:
        """Whole bytes for any multiple of 16 tokens; hybrid models also ask for one token."""
        row = scheme_of(self.scheme).bytes_per_token(self.num_kv_heads, self.head_size)
        if row != int(row):
            raise ValueError(f"{self.scheme}: {row} bytes a token, head_dim {self.head_size}, are not whole")
        return int(row) * int(self.block_size)

    @property
    def window_pages(self) -> int:
        """Pages that a request has beside those of its tokens, for the newest ones in 16 bit."""
        found = scheme_of(self.scheme)
        if not found.depends_on_length:
            return 0
        return PageLayout(found, self.num_kv_heads, self.head_size, int(self.block_size)).window_pages

    def max_memory_usage_bytes(self, vllm_config: Any) -> int:
        """Of one request of the model's maximum length."""
        return int(super().max_memory_usage_bytes(vllm_config)) + self.window_pages * int(self.page_size_bytes)

    @classmethod
    def merge(cls, specs: list[Any]) -> Any:
        """One specification of equal layers; the base class keeps its own fields only.

        Raises:
            ValueError: the layers differ in scheme.
        """
        names = {spec.scheme for spec in specs}
        if len(names) != 1:
            raise ValueError(f"layers of one KV cache group differ in scheme: {sorted(names)}")
        return replace(super().merge(specs), scheme=names.pop())
