"""Compiles variants for one target and prints one JSON line each: ``python -m adrbench.kernels.gate.compile gfx942``.

One target per process: a compiler that dies on one conversion takes its process with it.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")

import triton
from adrbench.kernels.decode.config import LaunchConfig
from adrbench.kernels.decode.launch import constants, kernel_of
from adrbench.kernels.formats import scheme
from adrbench.kernels.formats.layout import PageLayout
from adrbench.kernels.gate import inspect
from adrbench.kernels.gate.variants import VARIANTS, Variant
from adrbench.kernels.store import launch as store
from adrbench.kernels.store.kernel import load_kernel, store_blocks_kernel, store_scattered_kernel
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

POINTERS = {
    "decode": {"q_ptr": "bf16", "table_ptr": "i32", "length_ptr": "i32", "o_ptr": "fp32", "lse_ptr": "fp32"},
    "rows": {"key_ptr": "bf16", "value_ptr": "bf16", "slot_ptr": "i64"},
}
ALIGNED = ("page_stride", "scale_stride", "q_stride", "key_stride", "value_stride", "output_stride")


def target_of(name: str) -> GPUTarget:
    return GPUTarget("cuda", int(name[3:]), 32) if name.startswith("sm_") else GPUTarget("hip", name, 64)


def launch_of(variant: Variant, layout: PageLayout, kind: str) -> tuple[Any, dict[str, Any], int, int]:
    """(kernel, compile-time arguments, warps, stages) of a variant, as its launcher has them."""
    if variant.kernel == "decode":
        config = LaunchConfig(variant.tile, 4, 6 if kind == "cuda" else 2, 4)
        fixed = constants(layout, layout.kv_heads * variant.group, config, kind)
        kernel, fixed = kernel_of(fixed)
        return kernel, fixed, config.warps, config.stages
    if variant.kernel == "store blocks":
        return (
            store_blocks_kernel,
            store.store_constants(layout) | {"EARLY": store.BLOCK_EARLY},
            store.block_warps(layout),
            3,
        )
    if variant.kernel == "store scattered":
        tile = 1 if layout.values_transposed else 16
        return store_scattered_kernel, store.store_constants(layout) | {"TILE": tile}, 1 if tile == 1 else 4, 3
    return load_kernel, store.constants(layout) | {"TILE": store.LOAD_TILE_TOKENS}, 4, 3


def compile_variant(variant: Variant, target: str) -> dict[str, Any]:
    """The resources of one variant; the signature and hints are those the JIT infers from the launcher's arguments."""
    kind = "cuda" if target.startswith("sm_") else "hip"
    layout = PageLayout(scheme(variant.scheme), 8, variant.dim, variant.page)
    kernel, fixed, warps, stages = launch_of(variant, layout, kind)
    values = layout.scheme.key.values
    code = "i8" if values.bits == 4 else values.triton_name
    scales = "i32" if layout.scheme.key.scope == "row_group" else "fp32"
    pointers = {"k_ptr": code, "v_ptr": code, "ks_ptr": scales, "vs_ptr": scales}
    pointers |= POINTERS["decode" if variant.kernel == "decode" else "rows"]
    names = kernel.arg_names
    signature = {
        name: "constexpr" if name in fixed else f"*{pointers[name]}" if name in pointers
        else "fp32" if name == "softmax_scale" else "i32"
        for name in names
    }  # fmt: skip
    aligned = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(names) if name in pointers or name in ALIGNED}
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
    # Only decode has a hot loop; what the search finds in the others says nothing.
    return row if variant.kernel == "decode" else row | {"per_element": None}


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
