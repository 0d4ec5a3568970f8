"""Facts about ``serve.cpu_products`` in the serving interpreter, as JSON in the last line."""

from __future__ import annotations

import json
import os

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import torch
from adrbench.serve import cpu_products
from torch.nn.functional import linear

torch.manual_seed(20260609)
torch.set_grad_enabled(False)


def error(result, exact):
    """Largest error in units of the result's magnitude, beside cancellation."""
    return float(((result.double() - exact).abs() / (exact.abs() + exact.abs().mean())).max())


def accuracy():
    found = []
    for dtype in (torch.bfloat16, torch.float16):
        for rows, inputs, outputs in ((1, 64, 48), (3, 64, 48), (4, 64, 48), (37, 96, 130), (5, 7, 3), (0, 64, 48)):
            for lead in ((rows,), (1, rows)):
                for bias in (False, True):
                    x, weight = torch.randn(*lead, inputs).to(dtype), torch.randn(outputs, inputs).to(dtype)
                    added = torch.randn(outputs).to(dtype) if bias else None
                    ours = cpu_products.operator()(x, weight, added)
                    exact = linear(x.double(), weight.double(), None if added is None else added.double())
                    assert ours.dtype == dtype
                    assert ours.shape == exact.shape
                    if rows:
                        found.append([error(ours, exact), error(linear(x, weight, added), exact)])
    return found


def blocks():
    """Weights in blocks of 1, 5 and all rows give one result."""
    x, weight, bias = (torch.randn(*shape).bfloat16() for shape in ((9, 64), (48, 64), (48,)))
    results = []
    for values in (1, 5 * 64, 1 << 20):
        cpu_products.BLOCK_VALUES = values
        results.append(cpu_products.product(x, weight, bias))
    return [bool(torch.allclose(results[0].float(), other.float(), rtol=1e-2, atol=1e-2)) for other in results[1:]]


def compiled():
    operator = cpu_products.operator()
    weight = torch.randn(48, 64).bfloat16()
    asked = torch.compile(lambda x: operator(x * 2, weight, None) + 1, dynamic=True, fullgraph=True)
    found = []
    for rows in (2, 9):
        x = torch.randn(rows, 64).bfloat16()
        found.append(error(asked(x), linear(x.double() * 2, weight.double()) + 1))
    return found


REPORTS: list = []


def layer(choice):
    """What the last of two layers of vLLM multiplies with."""
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.distributed import init_distributed_environment, initialize_model_parallel
    from vllm.model_executor.layers.linear import ReplicatedLinear
    from vllm.platforms import current_platform

    assert current_platform.is_cpu()
    os.environ[cpu_products.VARIABLE] = choice
    cpu_products.install(lambda **facts: REPORTS.append(facts))
    with set_current_vllm_config(VllmConfig()):
        if not torch.distributed.is_initialized():
            init_distributed_environment(1, 0, "tcp://127.0.0.1:0", 0, "gloo")
            initialize_model_parallel(1, 1)
        for _ in range(2):
            made = ReplicatedLinear(64, 48, bias=False, params_dtype=torch.bfloat16)
            made.weight.data.copy_(torch.randn(48, 64))
            weight = made.weight.data.clone()
            made.quant_method.process_weights_after_loading(made)
    x = torch.randn(5, 64).bfloat16()
    return {
        "ours": made.cpu_linear is cpu_products.operator(), "reports": len(REPORTS),
        "error": error(made(x)[0], linear(x.double(), weight.double())),
    }  # fmt: skip


def kept():
    """What vLLM packed for a layer that keeps its weights, as tied embeddings do, stays."""
    from vllm.model_executor.layers import utils

    def dispatch(layer, remove_weight):
        handler = layer.weight.t().contiguous()
        layer.cpu_linear = lambda x, weight, bias: x @ handler

    ours, utils.dispatch_cpu_unquantized_gemm = utils.dispatch_cpu_unquantized_gemm, dispatch
    os.environ[cpu_products.VARIABLE] = "fp32"
    cpu_products.install(lambda **facts: REPORTS.append(facts))
    embedding = torch.nn.Linear(64, 48, bias=False, dtype=torch.bfloat16)
    utils.dispatch_cpu_unquantized_gemm(embedding, remove_weight=False)
    utils.dispatch_cpu_unquantized_gemm = ours
    return embedding.cpu_linear is not cpu_products.operator()


def refused():
    try:
        cpu_products.lacks(torch.bfloat16, "bf16")
    except ValueError as problem:
        return str(problem)
    return None


def lacks():
    """By dtype and what is asked for."""
    names = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
    return {
        name: {asked: cpu_products.lacks(dtype, asked) for asked in ("fp32", "torch", "")}
        for name, dtype in names.items()
    }


facts = {
    "accuracy": accuracy(), "blocks": blocks(), "compiled": compiled(), "torch": layer("torch"), "fp32": layer("fp32"),
    "left": layer(""), "kept": kept(), "refused": refused(), "lacks": lacks(), "reports": REPORTS,
    "choices": [cpu_products.VARIABLE, cpu_products.CHOICES],
}  # fmt: skip
print(json.dumps(facts))
