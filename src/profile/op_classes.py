"""Classes of operations in a trace: what a step's time is spent on, by the operation's name.

One table for CPU operators and GPU kernels; the first pattern that matches decides, so the specific
comes before the general. What nothing matches is ``other``, which a report shows with its biggest names.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from typing import Any

HOST = "host"
OTHER = "other"
BIGGEST_NAMES = 5
# Stands for every step's own span in tables of time by name; no operation can have this name.
STEP_NAME = b"\0step"

# Order matters: vllm::unified_kv_cache_update is a KV write although the attention layer calls it.
PATTERNS: tuple[tuple[str, str], ...] = (
    ("communication", r"nccl|rccl|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|gloo|c10d|shm_"),
    ("kv_write", r"reshape_and_cache|kv_cache_update|concat_and_cache|write_kv|kv_write|slot_mapping"),
    (
        "linear_attention",
        r"gated_delta|gdn|linear_attention|chunk_(fwd|bwd|gated|scaled|local|o\b)|fused_recurrent|causal_conv"
        + r"|solve_tril|recompute_w_u|mamba|selective_(scan|state)|l2norm",
    ),
    # reduce_segments: the second kernel of vLLM's Triton attention, which adds up a sequence's segments.
    (
        "attention",
        r"attention|attn|sdpa|flash_fwd|flash::|fmha|paged|\bmla_|unified_attn|softmax_lse|merge_states|reduce_segments",
    ),
    ("sampling", r"argmax|multinomial|top_?k|top_?p|sampl|sort|exponential|aten::_?(log_)?softmax|cumsum|rejection"),
    # Compiled pointwise and reduction kernels name every operator that they fuse, casts and copies among them.
    ("norm_rope_activation", r"^triton_(red|per|poi)_fused"),
    (
        "gemm",
        r"gemm|_mm\b|::mm\b|matmul|linear\b|addmm|bmm|cublas|cutlass|nvjet|xmma|tensile|cijk_|onednn_mm|dot_|fused_moe",
    ),
    (
        "copy",
        r"copy|memcpy|memset|FillFunctor|gather_kernel|gpu_index_kernel|index_select|(?<!rotary_)embedding"
        + r"|aten::(to|fill_|zero_|cat|contiguous|clone|index)$",
    ),
    (
        "norm_rope_activation",
        r"norm|rotary|rope|silu|gelu|swiglu|act_and_mul|aten::(mul|pow|mean|rsqrt|add|sigmoid|div)_?$|"
        + r"triton_(red|per|poi)|elementwise_kernel|::reduce_kernel",
    ),
)
_COMPILED = tuple((name, re.compile(pattern, re.IGNORECASE)) for name, pattern in PATTERNS)

CLASSES = (
    *("communication", "kv_write", "linear_attention", "attention", "sampling", "gemm", "copy", "norm_rope_activation"),
    HOST,
    OTHER,
)


def op_class(name: str) -> str:
    """Class of an operator or kernel name."""
    return next((cls for cls, pattern in _COMPILED if pattern.search(name)), OTHER)


def _readable(name: bytes) -> str:
    return str(json.loads(b'"' + name + b'"')) if b"\\" in name else name.decode(errors="replace")


def class_times(times_us: dict[bytes, float]) -> tuple[dict[str, float], list[list[Any]]]:
    """Time by raw name, in us, as (seconds by class, the biggest names of class ``other`` with their seconds)."""
    seconds: dict[str, float] = defaultdict(float)
    others: list[list[Any]] = []
    for name, us in times_us.items():
        readable = _readable(name) if name != STEP_NAME else ""
        cls = op_class(readable) if readable else HOST
        seconds[cls] += us / 1e6
        if cls == OTHER:
            others.append([readable[:120], us / 1e6])
    return dict(seconds), sorted(others, key=lambda pair: -pair[1])[:BIGGEST_NAMES]
