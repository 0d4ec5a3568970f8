"""Run in the serving interpreter: the kernel of ``one_launch.py`` compiled for GPUs, without one.

JSON, by target and scheme: registers that did not fit (``spilled``; AMD only, NVIDIA's are known when ptxas has run),
and whether rows are loaded and stored 16 bytes at a time (``wide``).
"""

from __future__ import annotations

import json
import os
import re
import sys
from typing import Any

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")

import triton
from adrbench.kernels.formats import scheme
from adrbench.kernels.formats.plane import SCALE_FLOOR
from adrbench.serve.simulation.one_launch import OneLaunch
from adrbench.serve.simulation.window_kernel import replace_windows_kernel as kernel
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

UNKNOWN = ("table_stride", "columns", "block")
"""Numbers of which the compiler is not told whether they are multiples of 16."""


def compiled(target: str, name: str, dim: int) -> dict[str, Any]:
    kind = GPUTarget("cuda", int(target[3:]), 32) if target.startswith("sm_") else GPUTarget("hip", target, 64)
    fixed = {"D": dim, "SPAN_FLOOR": SCALE_FLOOR, **OneLaunch(scheme(name)).fixed}
    names = kernel.arg_names
    types = {"key_ptr": "*bf16", "value_ptr": "*bf16", "table_ptr": "*i32", "start_ptr": "*i32", "length_ptr": "*i32"}
    signature = {name: "constexpr" if name in fixed else types.get(name, "i32") for name in names}
    aligned = {(names.index(n),): [["tt.divisibility", 16]] for n in names if n not in fixed and n not in UNKNOWN}
    constants = {(names.index(name),): value for name, value in fixed.items()}
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=aligned)
    code = triton.compile(source, target=kind, options={"num_warps": 4}).asm
    text = code.get("ptx") or code["amdgcn"]
    loads = re.findall(r"ld\.global\S*\.v4\.b32|global_load_dwordx4|buffer_load_dwordx4", text)
    stores = re.findall(r"st\.global\S*\.v4\.b32|global_store_dwordx4|buffer_store_dwordx4", text)
    spilled = sum(int(count) for count in re.findall(r"[sv]gpr_spill_count: *(\d+)", text))
    return {"spilled": spilled, "wide": bool(loads and stores)}


if __name__ == "__main__":
    asked = [one.split(":") for one in sys.argv[1:]]
    print(json.dumps({":".join(one): compiled(one[0], one[1], int(one[2])) for one in asked}))
