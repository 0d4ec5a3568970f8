"""Compiles variants for one target and prints one JSON line each: ``python -m adrbench.kernels.gate.compile gfx942``.

One target per process: a compiler that dies on one conversion takes its process with it.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")

import torch
import triton
from adrbench.kernels.decode.config import LaunchConfig, Target, choose, choose_windowed
from adrbench.kernels.decode.launch import constants, kernel_of, unpacked_constants, window_constants
from adrbench.kernels.decode.unpacked import decode_unpacked_kernel
from adrbench.kernels.decode.window import decode_window_kernel
from adrbench.kernels.formats import scheme
from adrbench.kernels.formats.layout import Newest, PagedCache, PageLayout, RingPages
from adrbench.kernels.formats.served import scope_of
from adrbench.kernels.gate import inspect
from adrbench.kernels.gate.variants import VARIANTS, Variant
from adrbench.kernels.store import launch as store
from adrbench.kernels.store import window_launch
from adrbench.kernels.store.kernel import store_blocks_kernel, store_scattered_kernel
from adrbench.kernels.store.load_kernel import load_kernel
from adrbench.kernels.store.window_kernel import store_left_kernel, store_newest_kernel
from adrbench.kernels.store.window_load import LOADED, load_windowed_kernel
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

POINTERS = {"slot_ptr": "i64", "o_ptr": "fp32", "lse_ptr": "fp32"}
POINTERS |= dict.fromkeys(("q_ptr", "key_ptr", "value_ptr", "rk_ptr", "rv_ptr"), "bf16")
POINTERS |= dict.fromkeys(("table_ptr", "length_ptr", "row_ptr", "start_ptr"), "i32")
"""Types of what launchers pass beside a cache's planes."""

ALIGNED = ("page_stride", "scale_stride", "ring_stride", "q_stride", "key_stride", "value_stride", "output_stride")


def target_of(name: str) -> GPUTarget:
    return GPUTarget("cuda", int(name[3:]), 32) if name.startswith("sm_") else GPUTarget("hip", name, 64)


Launch = tuple[Any, dict[str, Any], int, int]
"""(kernel, compile-time arguments, warps, stages)"""


def decode_of(variant: Variant, layout: PageLayout, kind: str) -> Launch:
    """A decode kernel's launch."""
    heads = layout.kv_heads * variant.group
    if variant.kernel in ("decode", "pieces"):
        forms = ("pieces",) if variant.kernel == "pieces" else ()
        config = LaunchConfig(variant.tile, 4, 6 if kind == "cuda" else 2, 4, forms=forms)
        kernel, fixed = kernel_of(constants(layout, heads, config, kind))
        return kernel, fixed, config.warps, config.stages
    config = unpacked_config(layout, kind)
    if variant.kernel == "chained":
        config = replace(config, forms=("chain", "lazy"))
    if variant.kernel == "unpacked" and (config.kernel, config.tile) != ("unpacked", variant.tile):
        raise ValueError(f"{variant.name}: the table's launch is {config}")
    fixed = unpacked_constants(layout, heads, config, kind)
    if variant.kernel == "window":
        return decode_window_kernel, window_constants(layout, fixed, newest_of(layout)), 4, 3
    return decode_unpacked_kernel, fixed, config.warps, config.stages


def newest_of(layout: PageLayout) -> Newest:
    """Newest rows in pages of the cache, as vLLM's backend keeps them."""
    cache, table = PagedCache.allocate(layout, 1, "cpu"), torch.zeros(1, layout.window_pages, dtype=torch.int32)
    return RingPages(cache, torch.bfloat16).newest(layout, table, 1)


def unpacked_config(layout: PageLayout, kind: str) -> LaunchConfig:
    """The configuration that the tables give a batch of 32 sequences of 16,384 tokens."""
    target, programs = Target(kind, 132), 32 * layout.kv_heads
    if layout.windowed:
        return choose_windowed(layout.head_dim, programs, 16384, target)
    bits = layout.scheme.key.values.bits
    return choose(bits, layout.head_dim, programs, 16384, target, scope_of(layout.scheme), layout.page_size)


def store_of(variant: Variant, layout: PageLayout) -> Launch:
    """A store or load kernel's launch."""
    if variant.kernel in ("store left", "store newest"):
        fixed = window_launch.constants(layout) | window_launch.ring_constants(newest_of(layout)) | {"SLOTS": True}
        if variant.kernel == "store left":
            return store_left_kernel, fixed, 4, 3
        return (
            store_newest_kernel,
            {name: fixed[name] for name in (*window_launch.NEWEST, "UNITS", "FIRST_VALUE", "SLOTS")},
            4,
            3,
        )
    if variant.kernel == "load windowed":
        fixed = window_launch.constants(layout) | window_launch.ring_constants(newest_of(layout))
        return load_windowed_kernel, {name: fixed[name] for name in (*LOADED, "UNITS", "FIRST_VALUE")}, 4, 3
    if variant.kernel == "load":
        return load_kernel, store.constants(layout) | {"TILE": store.LOAD_TILE_TOKENS}, 4, 3
    fixed = store.store_constants(layout)
    if variant.kernel == "store scattered":
        tile = 1 if layout.values_transposed else 16
        return store_scattered_kernel, fixed | {"TILE": tile}, 1 if tile == 1 else 4, 3
    early = variant.kernel == "store early"
    return (
        store_blocks_kernel,
        fixed | {"EARLY": early, "HEADS": 2 if variant.kernel == "store runs" else 0},
        store.block_warps(layout),
        3,
    )


def scales_type(variant: Variant) -> str:
    """Triton's name of what a kernel takes the scale planes for."""
    key = scheme(variant.scheme).key
    if key.scope in ("row_group", "channel"):
        return "fp16" if variant.kernel == "store left" else "i32"
    return "fp32"


def compile_variant(variant: Variant, target: str) -> dict[str, Any]:
    """The resources of one variant; the signature and hints are those the JIT infers from the launcher's arguments."""
    kind = "cuda" if target.startswith("sm_") else "hip"
    layout = PageLayout(scheme(variant.scheme), 8, variant.dim, variant.page)
    kernel, fixed, warps, stages = (
        store_of(variant, layout) if variant.kernel.startswith(("store", "load")) else decode_of(variant, layout, kind)
    )
    values = layout.scheme.key.values
    code = "i8" if values.bits == 4 else values.triton_name
    scales = scales_type(variant)
    pointers = POINTERS | {"k_ptr": code, "v_ptr": code, "ks_ptr": scales, "vs_ptr": scales}
    names = kernel.arg_names
    signature = {
        name: "constexpr" if name in fixed else f"*{pointers[name]}" if name in pointers
        else "fp32" if name == "softmax_scale" else "i32"
        for name in names
    }  # fmt: skip
    aligned = {
        (parameter.num,): [["tt.divisibility", 16]]
        for parameter in kernel.params
        if (parameter.name in pointers or parameter.name in ALIGNED) and not parameter.do_not_specialize
    }
    constexprs = {(names.index(name),): value for name, value in fixed.items()}
    source = ASTSource(kernel, signature=signature, constexprs=constexprs, attrs=aligned)
    options = {"num_warps": warps, "num_stages": stages}
    binary = triton.compile(source, target=target_of(target), options=options)
    elements = 2 * variant.tile * variant.dim
    if kind == "cuda":
        tools = Path(triton.__file__).parent / "backends/nvidia/bin"
        row = inspect.nvidia(binary.asm["cubin"], tools, binary.metadata.shared, warps, elements)
    else:
        row = inspect.amd(binary.asm["amdgcn"], binary.metadata.shared, warps, elements, target)
    return row if variant.hot else row | {"per_element": None}


def main(target: str, wanted: list[str]) -> None:
    for index, variant in enumerate(VARIANTS):
        if str(index) not in wanted:
            continue
        print(json.dumps({"start": index}), flush=True)
        try:
            result = compile_variant(variant, target)
        except Exception as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()] or ["no message"]
            result = {"error": f"{type(error).__name__}: {lines[-1][:300]}"}
        print(json.dumps({"index": index, "triton": triton.__version__, **result}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
