"""What is timed: our kernel per scheme, and vLLM's Triton kernel and FlashAttention 3 where vLLM is installed.

A provider fills its own cache from the case's rows and returns a call per buffer set. Baselines are
called exactly as vLLM's attention backends call them (segments, thresholds, scheduler left to the
kernel); what differs is named in the provider's docstring.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import decode_problem
import torch
from adrbench.kernels.decode.config import LaunchConfig
from adrbench.kernels.formats import scheme
from adrbench.kernels.formats.layout import PagedCache, PageLayout, Ring
from decode_problem import Case

Call = Callable[[], object]


@dataclass(frozen=True)
class Prepared:
    """``calls``: one per buffer set; ``out``: what the first call writes; ``bytes``: of K, V and scales read."""

    calls: list[Call]
    out: torch.Tensor
    bytes: int


class NotInstalled(RuntimeError):
    """A baseline's package is not there."""


@dataclass(frozen=True)
class Filled:
    """Our caches of one case, filled by our store kernel: one per buffer set."""

    case: Case
    caches: list[PagedCache]
    table: torch.Tensor
    scales: dict[str, torch.Tensor]

    def prepare(self, config: LaunchConfig | None = None, lengths: Sequence[int] = ()) -> Prepared:
        """The calls of our kernel, with ``config`` in place of the configuration table's.

        ``lengths``: tokens of each sequence in place of the case's; beyond the case's sequences comes padding, as in a
        captured graph, of 0.
        """
        from adrbench.kernels.decode.launch import decode

        lengths = lengths or [self.case.length] * self.case.batch
        case, padding = replace(self.case, batch=len(lengths)), len(lengths) - self.case.batch
        q, tokens = case.queries(), torch.tensor(lengths, dtype=torch.int32, device=self.table.device)
        table = torch.nn.functional.pad(self.table, (0, 0, 0, padding))
        outs = [torch.full_like(q, float("nan")) for _ in self.caches]

        def make(cache: PagedCache, out: torch.Tensor) -> Call:
            return lambda: decode(
                q, cache, table, tokens, case.softmax_scale, **self.scales,
                out=out, config=config, longest=case.length,
            )  # fmt: skip

        calls = [make(cache, out) for cache, out in zip(self.caches, outs, strict=True)]
        row = self.caches[0].layout.scheme.bytes_per_token(case.kv_heads, case.dim)
        return Prepared(calls, outs[0], int(sum(lengths) * row))

    def part(self, batch: int, copies: int) -> Filled:
        """The first ``batch`` sequences, in ``copies`` buffer sets."""
        return replace(
            self, case=replace(self.case, batch=batch), caches=self.caches[:copies], table=self.table[:batch]
        )


def fill(name: str, case: Case, page_size: int, copies: int) -> Filled:
    """Store the case's rows in caches of scheme ``name``."""
    from adrbench.kernels.store.launch import store

    layout = PageLayout(scheme(name), case.kv_heads, case.dim, page_size)
    table = case.table(page_size)
    scales: dict[str, torch.Tensor] = {}
    if layout.scheme.is_static:
        tops = torch.zeros(2, case.kv_heads, device=decode_problem.DEVICE)
        for _, key, value in case.sequences():
            tops[0] = torch.maximum(tops[0], key.abs().amax((0, 2)).float())
            tops[1] = torch.maximum(tops[1], value.abs().amax((0, 2)).float())
        tops /= layout.scheme.key.values.maximum
        scales = {"key_scale": tops[0].contiguous(), "value_scale": tops[1].contiguous()}
    cache = PagedCache.allocate(layout, table.numel(), decode_problem.DEVICE)
    for sequence, key, value in case.sequences():
        store(cache, key, value, case.slots(table, sequence, page_size), **scales)
    caches = [cache] + [PagedCache(layout, cache.buffer.clone()) for _ in range(copies - 1)]
    return Filled(case, caches, table, scales)


@dataclass(frozen=True)
class FilledWindowed:
    """Our caches of a windowed scheme, filled by our store kernels."""

    case: Case
    caches: list[PagedCache]
    ring: Ring
    table: torch.Tensor

    def prepare(self, config: LaunchConfig | None = None) -> Prepared:
        """As ``Filled.prepare``; bytes count the 16-bit rows too."""
        from adrbench.kernels.decode.launch import decode_windowed

        case, q, lengths = self.case, self.case.queries(), self.case.lengths()
        outs = [torch.full_like(q, float("nan")) for _ in self.caches]
        rows = torch.arange(case.batch, dtype=torch.int32, device=decode_problem.DEVICE)

        def make(cache: PagedCache, out: torch.Tensor) -> Call:
            return lambda: decode_windowed(
                q, cache, self.ring, rows, self.table, lengths, case.softmax_scale, out=out, config=config,
                longest=case.length,
            )  # fmt: skip

        calls = [make(cache, out) for cache, out in zip(self.caches, outs, strict=True)]
        row = self.caches[0].layout.scheme.bytes_of_request(case.length, case.kv_heads, case.dim)
        return Prepared(calls, outs[0], int(case.batch * row))


def fill_windowed(name: str, case: Case, page_size: int, copies: int) -> FilledWindowed:
    """Put the case's rows in caches of windowed scheme ``name``."""
    from adrbench.kernels.store.window_launch import store_windowed

    layout = PageLayout(scheme(name), case.kv_heads, case.dim, page_size)
    table = case.table(page_size)
    cache = PagedCache.allocate(layout, table.numel(), decode_problem.DEVICE)
    ring = Ring.allocate(layout, case.batch, torch.bfloat16, decode_problem.DEVICE)
    starts, lengths = (
        torch.tensor([0, case.length], dtype=torch.int32, device=decode_problem.DEVICE),
        case.lengths()[:1],
    )
    rows = torch.arange(case.batch, dtype=torch.int32, device=decode_problem.DEVICE)
    for sequence, key, value in case.sequences():
        one = slice(sequence, sequence + 1)
        store_windowed(cache, ring, rows[one], key, value, table[one], starts, lengths, case.length)
    caches = [cache] + [PagedCache(layout, cache.buffer.clone()) for _ in range(copies - 1)]
    return FilledWindowed(case, caches, ring, table)


def ours(name: str, case: Case, page_size: int, copies: int) -> Prepared:
    """Our kernel on scheme ``name``."""
    if scheme(name).depends_on_length:
        return fill_windowed(name, case, page_size, copies).prepare()
    return fill(name, case, page_size, copies).prepare()


def _paged(case: Case, page_size: int, dtype: torch.dtype, scale: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    """(cache ``[pages, 2, page, kv_heads, dim]``, table) as vLLM's FlashAttention and Triton backends hold it."""
    table = case.table(page_size)
    shape = (table.numel(), 2, page_size, case.kv_heads, case.dim)
    cache = torch.zeros(shape, dtype=dtype, device="cuda")
    for sequence, key, value in case.sequences():
        slots = case.slots(table, sequence, page_size)
        for side, rows in enumerate((key, value)):
            cache[slots // page_size, side, slots % page_size] = (rows.float() / scale).to(dtype)
    return cache, table


def _segments(case: Case) -> dict[str, Any]:
    """vLLM's split buffers: 16 segments, used while the batch is at most 128 // KV heads."""
    threshold = 128 // case.kv_heads
    shape = (max(threshold, case.batch), case.heads, 16)
    return {
        "seq_threshold_3D": threshold,
        "num_par_softmax_segments": 16,
        "softmax_segm_output": torch.empty((*shape, case.dim), dtype=torch.float32, device="cuda"),
        "softmax_segm_max": torch.empty(shape, dtype=torch.float32, device="cuda"),
        "softmax_segm_expsum": torch.empty(shape, dtype=torch.float32, device="cuda"),
    }


def _vllm_call(
    case: Case, q: torch.Tensor, table: torch.Tensor, **planes: Any
) -> tuple[Callable[..., Call], torch.Tensor]:
    """(maker of a call from a (key, value) pair, its output)."""
    try:
        from vllm.v1.attention.ops.triton_unified_attention import unified_attention
    except ImportError as problem:
        raise NotInstalled(f"vllm: {problem}") from None
    out = torch.full((case.batch, case.heads, case.dim), float("nan"), dtype=torch.bfloat16, device="cuda")
    starts = torch.arange(case.batch + 1, dtype=torch.int32, device="cuda")
    common = {
        "q": q, "out": out, "cu_seqlens_q": starts, "max_seqlen_q": 1, "seqused_k": case.lengths(),
        "max_seqlen_k": case.length, "softmax_scale": case.softmax_scale, "causal": True, "window_size": (-1, -1),
        "block_table": table, "softcap": 0, "q_descale": None, **_segments(case),
    }  # fmt: skip

    def make(key: torch.Tensor, value: torch.Tensor, **extra: Any) -> Call:
        return lambda: unified_attention(k=key, v=value, **common, **planes, **extra)

    return make, out


def vllm_triton_bf16(case: Case, page_size: int, copies: int) -> Prepared:
    """vLLM's Triton backend, ``--kv-cache-dtype auto``."""
    make, out = _vllm_call(case, case.queries(), case.table(page_size), k_descale=None, v_descale=None)
    cache, _ = _paged(case, page_size, torch.bfloat16)
    caches = [cache] + [cache.clone() for _ in range(copies - 1)]
    return Prepared(
        [make(c[:, 0], c[:, 1]) for c in caches], out, 4 * case.batch * case.length * case.kv_heads * case.dim
    )


def vllm_triton_fp8(case: Case, page_size: int, copies: int) -> Prepared:
    """vLLM's Triton backend, ``--kv-cache-dtype fp8``, queries in bf16 (more exact than its fp8 queries)."""
    from vllm.v1.kv_cache_interface import KVQuantMode

    # One value per layer, as calibrated scales are: 6 sigma of the rows over the largest code.
    scale = 6.0 / 448.0
    descale = torch.full((1,), scale, device="cuda")
    planes = {"k_descale": descale, "v_descale": descale, "kv_quant_mode": KVQuantMode.FP8_PER_TENSOR}
    make, out = _vllm_call(case, case.queries(), case.table(page_size), **planes)
    cache, _ = _paged(case, page_size, torch.float8_e4m3fn, scale)
    caches = [cache] + [cache.clone() for _ in range(copies - 1)]
    return Prepared(
        [make(c[:, 0], c[:, 1]) for c in caches], out, 2 * case.batch * case.length * case.kv_heads * case.dim
    )


def _vllm_int8(case: Case, page_size: int, copies: int, pad: int) -> Prepared:
    """vLLM's int8 kernel over rows of ``dim + pad`` bytes, the fp32 scale in the first four of the padding."""
    from vllm.v1.kv_cache_interface import KVQuantMode

    table, dim = case.table(page_size), case.dim
    cache = torch.zeros((table.numel(), 2, page_size, case.kv_heads, dim + pad), dtype=torch.int8, device="cuda")
    scales = cache.view(torch.float32)[..., dim // 4]
    for sequence, key, value in case.sequences():
        slots = case.slots(table, sequence, page_size)
        page, token = slots // page_size, slots % page_size
        for side, rows in enumerate((key, value)):
            scale = rows.float().abs().amax(-1).clamp(min=1e-6) / 127
            cache[page, side, token, :, :dim] = (rows.float() / scale[..., None]).round().to(torch.int8)
            scales[page, side, token] = scale
    make, out = _vllm_call(
        case, case.queries(), table, k_descale=None, v_descale=None, kv_quant_mode=KVQuantMode.INT8_PER_TOKEN_HEAD
    )
    calls = []
    for copy in range(copies):
        c = cache if copy == 0 else cache.clone()
        s = c.view(torch.float32)[..., dim // 4]
        planes = {"k_scale_cache": s[:, 0], "v_scale_cache": s[:, 1]}
        calls.append(make(c[:, 0, :, :, :dim], c[:, 1, :, :, :dim], **planes))
    return Prepared(calls, out, 2 * case.batch * case.length * case.kv_heads * (dim + 4))


def vllm_triton_int8(case: Case, page_size: int, copies: int) -> Prepared:
    """vLLM's Triton backend, ``--kv-cache-dtype int8_per_token_head``, as vLLM lays it out."""
    return _vllm_int8(case, page_size, copies, 4)


def vllm_triton_int8_aligned(case: Case, page_size: int, copies: int) -> Prepared:
    """The same kernel with rows padded to 16 bytes: what it could do without its alignment fault."""
    return _vllm_int8(case, page_size, copies, 16)


def _flash(case: Case, page_size: int, copies: int, dtype: torch.dtype, scale: float) -> Prepared:
    try:
        from vllm.vllm_flash_attn import flash_attn_varlen_func
    except ImportError as problem:
        raise NotInstalled(f"FlashAttention 3 of vllm: {problem}") from None
    q = case.queries()
    descales: dict[str, Any] = {}
    if dtype != torch.bfloat16:
        # Queries are standard normal; one scale per (sequence, KV head), as the backend passes it.
        q_scale = 6.0 / 448.0
        q = (q.float() / q_scale).to(dtype)
        one = torch.ones((case.batch, case.kv_heads), device="cuda")
        descales = {"q_descale": one * q_scale, "k_descale": one * scale, "v_descale": one * scale}
    cache, table = _paged(case, page_size, dtype, scale)
    caches = [cache] + [cache.clone() for _ in range(copies - 1)]
    out = torch.full((case.batch, case.heads, case.dim), float("nan"), dtype=torch.bfloat16, device="cuda")
    starts = torch.arange(case.batch + 1, dtype=torch.int32, device="cuda")
    lengths = case.lengths()

    def make(c: torch.Tensor) -> Call:
        return lambda: flash_attn_varlen_func(
            q, c[:, 0], c[:, 1], max_seqlen_q=1, cu_seqlens_q=starts, max_seqlen_k=case.length, seqused_k=lengths,
            softmax_scale=case.softmax_scale, causal=True, block_table=table, out=out, fa_version=3, **descales,
        )  # fmt: skip

    size = 2 * cache.element_size() * case.batch * case.length * case.kv_heads * case.dim
    return Prepared([make(c) for c in caches], out, size)


def fa3_bf16(case: Case, page_size: int, copies: int) -> Prepared:
    """FlashAttention 3 as vLLM ships it, split count by its own heuristic."""
    return _flash(case, page_size, copies, torch.bfloat16, 1.0)


def fa3_fp8(case: Case, page_size: int, copies: int) -> Prepared:
    """FlashAttention 3 with fp8 queries, keys and values."""
    return _flash(case, page_size, copies, torch.float8_e4m3fn, 6.0 / 448.0)


BASELINES: dict[str, Callable[[Case, int, int], Prepared]] = {
    "vllm_triton:bf16": vllm_triton_bf16,
    "vllm_triton:int8_per_token_head": vllm_triton_int8,
    "vllm_triton:int8_aligned_rows": vllm_triton_int8_aligned,
    "vllm_triton:fp8_per_tensor": vllm_triton_fp8,
    "fa3:bf16": fa3_bf16,
    "fa3:fp8": fa3_fp8,
}

OURS = (
    "bf16",
    "int8_per_token_head",
    "int8_per_head",
    "fp8_per_head",
    "fp8_per_token_head",
    "int4_per_token_head",
    "int4_g32",
    "kivi4",
)
