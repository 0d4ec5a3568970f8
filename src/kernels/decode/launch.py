"""Launcher of decode attention: checks, the launch configuration, and the two kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from adrbench.kernels.decode.config import LaunchConfig, choose, choose_windowed, current_target
from adrbench.kernels.decode.grouped import decode_grouped_kernel
from adrbench.kernels.decode.kernel import decode_combine_kernel, decode_partial_kernel
from adrbench.kernels.decode.unpacked import decode_unpacked_kernel
from adrbench.kernels.decode.window import decode_window_kernel
from adrbench.kernels.formats.layout import BLOCK_TOKENS, PAGE_MULTIPLE, Newest, PagedCache, PageLayout, Ring, RingPages
from adrbench.kernels.formats.scheme import Scheme
from adrbench.kernels.formats.served import scope_of
from adrbench.kernels.store.launch import codes_pointer, scale_arguments

HEAD_DIMS = (64, 128, 256)


@dataclass(frozen=True)
class Codes:
    """How queries and probabilities are written beside a cache's codes.

    ``residual`` is the factor by which the second code is finer: the largest rounding error of the
    first code, times it, still fits the format.
    """

    code: Any
    maximum: float
    residual: int
    packed: bool = False


CODES: dict[str, Codes] = {
    "bf16": Codes(tl.bfloat16, 1.0, 0),
    "int8": Codes(tl.int8, 127.0, 254),
    "int4": Codes(tl.int8, 127.0, 254, packed=True),
    "fp8_e4m3fn": Codes(tl.float8e4nv, 448.0, 16),
    "fp8_e4m3fnuz": Codes(tl.float8e4b8, 240.0, 16),
    "fp8_e5m2": Codes(tl.float8e5, 57344.0, 8),
}


def padded_group(group: int, scheme: Scheme) -> int:
    """Query heads per KV head, padded to what fills the matrix instruction's smallest N of 16: 8-bit
    operands use every column twice (high and low codes)."""
    smallest = 16 if scheme.key.values.bits == 16 else 8
    return max(smallest, int(triton.next_power_of_2(group)))


WASTE = {16: 0.07, 8: 0.07, 4: 0.0}
"""By bits: the share of slots beyond a page's end up to which tiles start afresh in every page. INT4 is
bound by instructions, so a short tile costs it what a full one does."""


def page_span(page_size: int, tile: int, bits: int) -> int:
    """Pages that a tile can lie in, 0 for tiles that start afresh in every page; see ``kernel.addresses``."""
    if -(-page_size // tile) * tile <= page_size * (1 + WASTE[bits]):
        return 0
    if tile % page_size == 0:
        return tile // page_size
    return -(-(tile - PAGE_MULTIPLE) // page_size) + 1


def constants(layout: PageLayout, heads: int, config: LaunchConfig, kind: str) -> dict[str, Any]:
    """Compile-time arguments of the partial kernel; ``kind`` is a ``Target.kind``."""
    codes = CODES[layout.scheme.key.values.name]
    group = heads // layout.kv_heads
    if "pieces" in config.forms and (layout.page_size % config.tile != PAGE_MULTIPLE or not layout.values_transposed):
        raise ValueError(
            f"form 'pieces': pages of {layout.page_size} tokens are not whole tiles of {config.tile} and "
            f"{PAGE_MULTIPLE} more"
        )
    return {
        "KV_HEADS": layout.kv_heads,
        "GROUP": group,
        "GP": padded_group(group, layout.scheme),
        "D": layout.head_dim,
        "PAGE": layout.page_size,
        "BLOCK": BLOCK_TOKENS if layout.values_transposed else 0,
        "TILE": config.tile,
        "SPAN": page_span(layout.page_size, config.tile, layout.scheme.key.values.bits),
        "SCOPE": scope_of(layout.scheme),
        "CODE": codes.code,
        "PACKED": codes.packed,
        "MAXIMUM": codes.maximum,
        "RESIDUAL": codes.residual,
        "ASM": "ptx" if kind == "cuda" and codes.packed else "none",
        "PIECES": "pieces" in config.forms,
    }


def unpacked_constants(layout: PageLayout, heads: int, config: LaunchConfig, kind: str) -> dict[str, Any]:
    """Compile-time arguments of the kernel that unpacks 4-bit codes in registers.

    Raises:
        ValueError: a scheme of other widths, or pages that a windowed scheme cannot use.
        NotImplementedError: AMD, where the scheme's own kernel needs fewer instructions.
    """
    scheme = layout.scheme
    if kind == "hip" and not layout.windowed:
        raise NotImplementedError(f"{scheme.name}: codes are unpacked to fp16 on NVIDIA only; leave the kernel empty")
    scope = "channel" if layout.windowed else scope_of(scheme)
    if scheme.key.values.bits != 4 or scope == "static":
        raise ValueError(f"{scheme.name}: only 4-bit codes whose scales lie beside them are unpacked")
    if layout.windowed and (layout.page_size % config.tile or config.tile != scheme.key.group):
        raise ValueError(
            f"{scheme.name}: pages must be a multiple of the group of {scheme.key.group} tokens and tiles be groups, "
            f"got pages of {layout.page_size}, tiles of {config.tile}"
        )
    group = heads // layout.kv_heads
    return {
        "KV_HEADS": layout.kv_heads,
        "GROUP": group,
        # The smallest N of the matrix instructions: mma's 8, mfma's 16.
        "GP": max(16 if kind == "hip" else 8, int(triton.next_power_of_2(group))),
        "D": layout.head_dim,
        "PAGE": layout.page_size,
        "TILE": config.tile,
        "SPAN": page_span(layout.page_size, config.tile, 8),
        "SCOPE": scope,
        "WINDOW": scheme.value.residual,
        "PARTS": window_parts(layout),
        "ASM": "ptx" if kind == "cuda" else "none",
        "CHAIN": "chain" in config.forms,
        "LAZY": "lazy" in config.forms,
    }


def window_parts(layout: PageLayout) -> int:
    """Partial results of a query head that a scheme's 16-bit window adds to those of the splits."""
    return layout.scheme.value.residual // 32 + 1 if layout.windowed else 0


def combined(layout: PageLayout, splits: int) -> tuple[int, int]:
    """(partial results of a query head, the power of two that the combine kernel is compiled for)."""
    parts = splits + window_parts(layout)
    return parts, int(triton.next_power_of_2(parts))


def window_constants(layout: PageLayout, fixed: dict[str, Any], newest: Newest) -> dict[str, Any]:
    """Compile-time arguments of the kernel of the 16-bit window, beside those of ``unpacked_constants``."""
    names = ("KV_HEADS", "GROUP", "GP", "D", "PAGE", "WINDOW", "PARTS")
    ring = {"UNITS": newest.units, "FIRST_VALUE": newest.first_value}
    return {name: fixed[name] for name in names} | ring | {"STEP": layout.scheme.key.window_step}


GROUPED = ("KV_HEADS", "GROUP", "GP", "D", "PAGE", "BLOCK", "TILE", "SPAN", "RESIDUAL", "ASM")
"""The compile-time arguments that the kernel of grouped schemes takes."""


def launched(layout: PageLayout, heads: int, config: LaunchConfig, kind: str) -> tuple[Any, dict[str, Any]]:
    """(partial kernel, its compile-time arguments) of a launch."""
    if config.kernel == "unpacked":
        return decode_unpacked_kernel, unpacked_constants(layout, heads, config, kind)
    return kernel_of(constants(layout, heads, config, kind))


def register_limit(config: LaunchConfig, kind: str) -> dict[str, int]:
    """The option that limits a thread's registers; AMD's compiler has none."""
    return {"maxnreg": config.registers} if config.registers and kind == "cuda" else {}


def kernel_of(fixed: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """(partial kernel of a scheme, its share of ``fixed``)."""
    if fixed["SCOPE"] == "group":
        return decode_grouped_kernel, {name: fixed[name] for name in GROUPED}
    return decode_partial_kernel, fixed


def _check(q: torch.Tensor, cache: PagedCache, table: torch.Tensor, lengths: torch.Tensor) -> None:
    layout = cache.layout
    if q.ndim != 3 or q.shape[2] != layout.head_dim or q.stride()[1:] != (layout.head_dim, 1):
        raise ValueError(
            f"q must be [sequences, heads, {layout.head_dim}], each sequence contiguous, got {tuple(q.shape)} with "
            f"strides {q.stride()}"
        )
    if layout.head_dim not in HEAD_DIMS:
        raise ValueError(f"head_dim {layout.head_dim}: use one of {HEAD_DIMS}")
    if q.shape[1] % layout.kv_heads:
        raise ValueError(f"{q.shape[1]} query heads are not a multiple of {layout.kv_heads} KV heads")
    if table.ndim != 2 or table.shape[0] != q.shape[0] or table.dtype != torch.int32 or table.stride(1) != 1:
        raise ValueError(f"the block table must be int32 [{q.shape[0]}, pages], got {table.dtype} {tuple(table.shape)}")
    if lengths.shape != q.shape[:1] or lengths.dtype != torch.int32:
        raise ValueError(f"lengths must be int32 [{q.shape[0]}], got {lengths.dtype} {tuple(lengths.shape)}")


def config_of(layout: PageLayout, sequences: int, longest: int) -> LaunchConfig:
    """The launch that the tables give a batch on this device; ``longest``: the longest sequence expected, in tokens."""
    target, programs = current_target(), sequences * layout.kv_heads
    if layout.windowed:
        return choose_windowed(layout.head_dim, programs, longest, target)
    scheme = layout.scheme
    bits = scheme.key.values.bits
    return choose(bits, layout.head_dim, programs, longest, target, scope_of(scheme), layout.page_size)


def decode(
    q: torch.Tensor,
    cache: PagedCache,
    table: torch.Tensor,
    lengths: torch.Tensor,
    softmax_scale: float,
    key_scale: torch.Tensor | None = None,
    value_scale: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    config: LaunchConfig | None = None,
    longest: int | None = None,
) -> torch.Tensor:
    """Attention of one query token per sequence over its cached tokens; full attention, no window.

    Args:
        q: ``[sequences, heads, dim]`` fp16 or bf16 (fp32 in the interpreter); rows of a sequence contiguous.
        cache: the pages; every slot below a sequence's length has been stored.
        table: int32 ``[sequences, pages]``, each sequence's pages in order.
        lengths: int32 ``[sequences]``, tokens to attend to; 0 gives zeros.
        softmax_scale: factor on q k, usually dim ** -0.5.
        key_scale, value_scale: fp32 ``[kv_heads]`` for static schemes.
        out: written and returned, contiguous; same shape and dtype as ``q`` by default.
        config: overrides the table of ``config.choose``.
        longest: longest length, where the caller knows it; the block table's width otherwise. Only
            the split count depends on it, never the result.

    Returns:
        ``[sequences, heads, dim]``.

    Raises:
        ValueError: arguments that the kernel does not take, with what it takes.
        NotImplementedError: the scheme has no decode kernel, or none that is right when compiled.
    """
    _check(q, cache, table, lengths)
    layout, target = cache.layout, current_target()
    sequences, heads, dim = q.shape
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device) if out is None else out
    if out.shape != q.shape or not out.is_contiguous():
        raise ValueError(f"out must be contiguous {tuple(q.shape)}, got {tuple(out.shape)} with strides {out.stride()}")
    if sequences == 0:
        return out
    scope = scope_of(layout.scheme)
    if config is None:
        config = config_of(layout, sequences, longest if longest is not None else table.shape[1] * layout.page_size)
    key_scales, value_scales, scale_stride = scale_arguments(cache, scope, key_scale, value_scale)
    parts = torch.empty((sequences, heads, config.splits, dim), dtype=torch.float32, device=q.device)
    lse = torch.empty((sequences, heads, config.splits), dtype=torch.float32, device=q.device)
    kernel, fixed = launched(layout, heads, config, target.kind)
    kernel[(sequences, layout.kv_heads, config.splits)](
        q,
        codes_pointer(cache.key),
        codes_pointer(cache.value),
        key_scales,
        value_scales,
        table,
        lengths,
        parts,
        lse,
        softmax_scale,
        q.stride(0),
        table.stride(0),
        cache.key.stride(0),
        scale_stride,
        config.splits,
        **fixed,
        num_warps=config.warps,
        num_stages=config.stages,
        **register_limit(config, target.kind),
    )
    decode_combine_kernel[(sequences * heads,)](
        parts, lse, out, config.splits, D=dim, SPLITS_PADDED=combined(layout, config.splits)[1]
    )
    return out


def decode_windowed(
    q: torch.Tensor,
    cache: PagedCache,
    ring: Ring | RingPages,
    rows: torch.Tensor,
    table: torch.Tensor,
    lengths: torch.Tensor,
    softmax_scale: float,
    out: torch.Tensor | None = None,
    config: LaunchConfig | None = None,
    longest: int | None = None,
) -> torch.Tensor:
    """``decode`` for schemes that keep the newest tokens in 16 bit.

    ``ring`` holds them, sequence i in row ``rows[i]`` (int32) or pages ``rows[i]``; other arguments as ``decode``.

    Raises:
        ValueError: arguments that the kernels do not take, with what they take.
    """
    _check(q, cache, table, lengths)
    layout, target = cache.layout, current_target()
    sequences, heads, dim = q.shape
    newest = ring.newest(layout, rows, sequences)
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device) if out is None else out
    if sequences == 0:
        return out
    if config is None:
        config = config_of(layout, sequences, longest if longest is not None else table.shape[1] * layout.page_size)
    assert cache.key_scale is not None
    assert cache.value_scale is not None
    splits = config.splits
    fixed = unpacked_constants(layout, heads, config, target.kind)
    all_parts, padded = combined(layout, splits)
    parts = torch.empty((sequences, heads, all_parts, dim), dtype=torch.float32, device=q.device)
    lse = torch.empty((sequences, heads, all_parts), dtype=torch.float32, device=q.device)
    planes = (codes_pointer(cache.key), codes_pointer(cache.value), cache.key_scale, cache.value_scale)
    strides = (q.stride(0), table.stride(0), cache.key.stride(0), cache.key_scale.stride(0), splits)
    decode_unpacked_kernel[(sequences, layout.kv_heads, splits)](
        q, *planes, table, lengths, parts, lse, softmax_scale, *strides,
        **fixed, num_warps=config.warps, num_stages=config.stages, **register_limit(config, target.kind),
    )  # fmt: skip
    decode_window_kernel[(sequences, layout.kv_heads, fixed["PARTS"])](
        q, *planes, table, lengths, newest.key, newest.value, newest.table, parts, lse, softmax_scale, *strides,
        newest.table.stride(0), newest.stride, **window_constants(layout, fixed, newest), num_warps=4,
    )  # fmt: skip
    decode_combine_kernel[(sequences * heads,)](parts, lse, out, all_parts, D=dim, SPLITS_PADDED=padded)
    return out
