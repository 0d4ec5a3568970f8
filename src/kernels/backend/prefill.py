"""Attention of prompts over rows in 16 bit: FlashAttention where the host's vLLM has it, else vLLM's Triton kernel.

Rows come either fresh from the projection or, for chunks that continue a prompt, dequantised from the
cache (``store.launch.load``). Both ways take ragged sequences whose last query sees all of its keys.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

Attend = Callable[..., None]

PAGE = 16
"""Tokens of a page of the copy that the Triton kernel reads."""


@cache
def attend_for(head_dim: int) -> tuple[str, Attend]:
    """(name, function) of the best varlen attention that this host's vLLM can run.

    The function takes ``q [tokens, heads, dim], key, value [tokens, kv_heads, dim], out, q_starts,
    k_starts, longest_q, longest_k, scale``.
    """
    try:
        from vllm.v1.attention.backends.fa_utils import flash_attn_varlen_func, get_flash_attn_version
    except ImportError:
        return "triton", _triton
    from vllm.platforms import current_platform

    version = get_flash_attn_version(head_size=head_dim) if current_platform.is_cuda() else None
    if current_platform.is_cuda() and version is None:
        return "triton", _triton
    if current_platform.is_rocm() and not _rocm_has_flash():
        return "triton", _triton
    extra = {} if version is None else {"fa_version": version}

    def flash(q: Any, key: Any, value: Any, out: Any, q_starts: Any, k_starts: Any, longest_q: int, longest_k: int,
              scale: float) -> None:  # fmt: skip
        options = dict(extra)
        if version is not None:
            options["out"] = out
        got = flash_attn_varlen_func(
            q=q, k=key, v=value, cu_seqlens_q=q_starts, cu_seqlens_k=k_starts, max_seqlen_q=longest_q,
            max_seqlen_k=longest_k, softmax_scale=scale, causal=True, **options,
        )  # fmt: skip
        if version is None:
            out.copy_(got)

    return f"flash_attn {version or ''}".strip(), flash


def _rocm_has_flash() -> bool:
    from vllm.v1.attention.backends.fa_utils import is_flash_attn_varlen_func_available

    return bool(is_flash_attn_varlen_func_available())


def paged_copy(rows: torch.Tensor, starts: torch.Tensor, longest: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(pages ``[pages, PAGE, heads, dim]``, block table ``[sequences, pages]``) of ragged rows.

    Every sequence gets ``ceil(longest / PAGE)`` pages, so that no size depends on device values, and some more up to a
    multiple of 16: Triton compiles vLLM's kernel once for table strides that are one, and again for others.
    """
    sequences, width = starts.shape[0] - 1, -(-longest // (16 * PAGE)) * 16
    pages = torch.zeros((sequences, width * PAGE, *rows.shape[1:]), dtype=rows.dtype, device=rows.device)
    token = torch.arange(rows.shape[0], device=rows.device)
    owner = torch.searchsorted(starts[1:], token, right=True)
    pages[owner, token - starts[owner]] = rows
    table = torch.arange(sequences * width, dtype=torch.int32, device=rows.device).view(sequences, width)
    return pages.view(-1, PAGE, *rows.shape[1:]), table


def _triton(q: Any, key: Any, value: Any, out: Any, q_starts: Any, k_starts: Any, longest_q: int, longest_k: int,
            scale: float) -> None:  # fmt: skip
    """vLLM's unified Triton kernel over a paged copy of the rows: for hosts without FlashAttention."""
    from vllm.v1.attention.ops.triton_unified_attention import unified_attention

    pages_k, table = paged_copy(key, k_starts, longest_k)
    pages_v, _ = paged_copy(value, k_starts, longest_k)
    unified_attention(
        q=q, k=pages_k, v=pages_v, out=out, cu_seqlens_q=q_starts, max_seqlen_q=longest_q,
        seqused_k=k_starts[1:] - k_starts[:-1], max_seqlen_k=longest_k, softmax_scale=scale, causal=True,
        window_size=(-1, -1), block_table=table, softcap=0, q_descale=None, k_descale=None, v_descale=None,
        seq_threshold_3D=0, num_par_softmax_segments=16, softmax_segm_output=None, softmax_segm_max=None,
        softmax_segm_expsum=None,
    )  # fmt: skip
