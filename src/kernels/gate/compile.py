"""Compiles variants for one target and prints one JSON line each: ``python -m adrbench.kernels.gate.compile gfx942``.

One target per process: a compiler that dies on one conversion takes its process with it.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("TRITON_CACHE_DIR", tempfile.mkdtemp(prefix="adrbench_gate_"))
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from adrbench.kernels.decode.config import LaunchConfig
from adrbench.kernels.decode.kernel import decode_partial_kernel
from adrbench.kernels.decode.launch import constants
from adrbench.kernels.formats import scheme
from adrbench.kernels.formats.layout import PageLayout
from adrbench.kernels.gate import inspect
from adrbench.kernels.gate.variants import VARIANTS, Variant

POINTERS = {
    "q_ptr": "bf16",
    "ks_ptr": "fp32",
    "vs_ptr": "fp32",
    "table_ptr": "i32",
    "length_ptr": "i32",
    "o_ptr": "fp32",
    "lse_ptr": "fp32",
}
ALIGNED = ("page_stride", "scale_stride")


def target_of(name: str) -> GPUTarget:
    return GPUTarget("cuda", int(name[3:]), 32) if name.startswith("sm_") else GPUTarget("hip", name, 64)


def compile_variant(variant: Variant, target: str) -> dict[str, Any]:
    """The resources of one variant; the signature and hints are those the JIT infers from the launcher's arguments."""
    kind = "cuda" if target.startswith("sm_") else "hip"
    config = LaunchConfig(variant.tile, 4, 6 if kind == "cuda" else 2, 4)
    layout = PageLayout(scheme(variant.scheme), 8, variant.dim, variant.page)
    fixed = constants(layout, 8 * variant.group, config, kind)
    values = layout.scheme.key.values
    code = "i8" if values.bits == 4 else values.triton_name
    pointers = POINTERS | {"k_ptr": code, "v_ptr": code}
    names = decode_partial_kernel.arg_names
    signature = {
        name: "constexpr" if name in fixed else f"*{pointers[name]}" if name in pointers
        else "fp32" if name == "softmax_scale" else "i32"
        for name in names
    }  # fmt: skip
    aligned = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(names) if name in pointers or name in ALIGNED}
    source = ASTSource(
        decode_partial_kernel,
        signature=signature,
        constexprs={(names.index(name),): value for name, value in fixed.items()},
        attrs=aligned,
    )
    options = {"num_warps": config.warps, "num_stages": config.stages}
    binary = triton.compile(source, target=target_of(target), options=options)
    elements = 2 * config.tile * variant.dim
    if kind == "cuda":
        tools = Path(triton.__file__).parent / "backends/nvidia/bin"
        return inspect.nvidia(binary.asm["cubin"], tools, binary.metadata.shared, config.warps, elements)
    return inspect.amd(binary.asm["amdgcn"], binary.metadata.shared, config.warps, elements, target)


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
