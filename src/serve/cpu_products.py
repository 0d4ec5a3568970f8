"""Products of 16-bit matrices on a CPU that has no instructions for them (x86-64 without AVX-512, so most laptops).

There torch multiplies bf16 matrices by dot products, one by one: 9 GFLOP/s of one core with AVX2 where its fp32
product reaches 75 (benchmarks/cpu_products.py), and a prompt takes several times as long. Here the operands are
widened, multiplied in fp32 and rounded once, which is the arithmetic of those dot products (products of bf16 are exact
in fp32) in another order of summation. vLLM's own choice is taken wherever the CPU has the instructions.

``ADRBENCH_CPU_PRODUCTS`` of a server: ``torch`` leaves vLLM as it is, ``fp32`` widens what torch would multiply on any
CPU; unset: as the CPU needs.
"""

from __future__ import annotations

import functools
import os
from typing import Any

import torch

VARIABLE = "ADRBENCH_CPU_PRODUCTS"
CHOICES = ("torch", "fp32")
WIDENED = "fp32 products"
WIDE = (torch.bfloat16, torch.float16)
# Below, widening the weights costs more than the dot products: of 1 to 8 rows, 1 and 2 were faster without, 4 with, at
# 576 to 3,072 outputs, on one core with AVX2. So torch's own product is used there, and the order of summation depends
# on the rows of a step, as that of a library does which chooses its kernels by size.
LEAST_ROWS = 4
# Weights that are widened at once: 4 MiB in fp32, which stays in a core's caches.
BLOCK_VALUES = 1 << 20


def choice() -> str:
    """What this process's environment asks for; empty where it leaves that to the CPU."""
    return os.environ.get(VARIABLE, "")


def lacks(dtype: torch.dtype, asked: str = "") -> bool:
    """Whether oneDNN, which torch multiplies 16-bit matrices with, has no instructions for ``dtype`` on this CPU.

    Args:
        asked: one of ``CHOICES``, which says so instead; empty: as the CPU has them.

    Raises:
        ValueError: ``asked`` is another word.
    """
    if asked and asked not in CHOICES:
        raise ValueError(f"{VARIABLE} is {asked!r}; use {' or '.join(CHOICES)}, or leave it unset")
    if asked:
        return asked == "fp32" and dtype in WIDE
    supported = {
        torch.bfloat16: torch.ops.mkldnn._is_mkldnn_bf16_supported,
        torch.float16: torch.ops.mkldnn._is_mkldnn_fp16_supported,
    }
    return dtype in supported and not supported[dtype]()


def product(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """``torch.nn.functional.linear`` of 16-bit ``x`` ``[..., in]``, ``weight`` ``[out, in]``, ``bias`` ``[out]``."""
    rows = x.reshape(-1, x.shape[-1])
    if rows.shape[0] < LEAST_ROWS:
        return torch.nn.functional.linear(x, weight, bias)
    wide = rows.float()
    result = torch.empty(rows.shape[0], weight.shape[0], dtype=x.dtype)
    count = max(1, BLOCK_VALUES // weight.shape[1])
    for start in range(0, weight.shape[0], count):
        part = slice(start, start + count)
        added = None if bias is None else bias[part].float()
        result[:, part] = torch.nn.functional.linear(wide, weight[part].float(), added)
    return result.view(*x.shape[:-1], weight.shape[0])


@functools.cache
def operator() -> Any:
    """``product`` as an operator: torch.compile takes it whole, and a trace has its name."""
    library = torch.library.Library("adrbench", "FRAGMENT")
    library.define("linear(Tensor x, Tensor weight, Tensor? bias) -> Tensor")
    library.impl("linear", product, "CPU")

    def shape(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:  # noqa: ARG001
        return x.new_empty(*x.shape[:-1], weight.shape[0])

    torch.library.register_fake("adrbench::linear", shape, lib=library)
    operator.library = library  # type: ignore[attr-defined]  # its operators live as long as it does
    return torch.ops.adrbench.linear.default


def packed(function: Any) -> bool:
    """Whether vLLM gave a layer a product with weights that it packed, which also those keep that must not lose theirs
    (tied embeddings). Such a function closes over what it packed; the one that calls torch closes over nothing."""
    return bool(getattr(function, "__closure__", None))


def install(report: Any) -> None:
    """Let vLLM's linear layers multiply so, where the CPU lacks the instructions; ``report`` is told, once.

    Wraps ``dispatch_cpu_unquantized_gemm`` (vllm/model_executor/layers/utils.py), which gives each layer its product.
    """
    from vllm.model_executor.layers import utils

    original = utils.dispatch_cpu_unquantized_gemm
    if getattr(original, "_adrbench", False):
        return
    told: list[bool] = []

    @functools.wraps(original)
    def dispatch(layer: torch.nn.Module, *args: Any, **kwargs: Any) -> None:
        original(layer, *args, **kwargs)
        weight = layer.weight
        # Empty: vLLM has packed the weights for a product of its own.
        if weight.is_meta or weight.ndim != 2 or not weight.numel() or packed(layer.cpu_linear):
            return
        if not lacks(weight.dtype, choice()):
            return
        layer.cpu_linear = operator()
        if not told:
            told.append(True)
            report(cpu_products=WIDENED, dtype=str(weight.dtype).removeprefix("torch."), asked=bool(choice()))

    dispatch._adrbench = True  # type: ignore[attr-defined]
    utils.dispatch_cpu_unquantized_gemm = dispatch
