"""Run in the serving interpreter by test_kernels_variants: the benchmarks' variants without a GPU, as JSON."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import decode_variants as variants
import store_kv
import torch
from adrbench.kernels.decode import launch as decode
from adrbench.kernels.formats import scheme
from adrbench.kernels.formats.layout import PagedCache, PageLayout
from adrbench.kernels.store import launch as store
from decode_attention import HEADS


def launches() -> dict[str, list[str]]:
    """The default variants by heads, each turned into compile-time arguments as the launcher does."""
    found: dict[str, list[str]] = {}
    for heads, (query_heads, kv_heads, dim) in HEADS.items():
        found[heads] = variants.default_variants(heads)
        for variant in map(variants.Variant.of, found[heads]):
            layout = PageLayout(scheme(variant.scheme), kv_heads, dim, variant.page)
            if variant.config is not None:
                decode.launched(layout, query_heads, variant.config, "cuda")
    assert [str(variants.Variant.of(text)) for text in found["d256"]] == found["d256"]
    return found


def numerics() -> list[dict[str, Any]]:
    """Rows of small problems, as a worker of the benchmark makes them; the last has a fault."""
    variants.DEVICE = "cpu"
    variants.HEADS = {"tiny": (4, 1, 64)}
    variants.lengths_of = lambda page: (page + 33, 1, 0, 300)
    variants.check.torch.bfloat16 = torch.float16  # what the interpreter can multiply
    variants.torch.bfloat16 = torch.float16
    rows = [
        variants.attempt(variants.Variant.of(text), "tiny")
        for text in ("int4_per_token_head/16/codes+pieces/64x4x2x3", "int4_g32/64/unpacked+chain+lazy/32x1x4x2x128",
                     "kivi4/64/unpacked+lazy/32x1x4x2", "int4_per_token_head/64/codes+pieces/64x4x2x3")
    ]  # fmt: skip
    good, decode.decode = decode.decode, lambda *a, out, **k: good(*a, out=out, **k).mul_(1.1)
    return [*rows, variants.attempt(variants.Variant.of("int4_per_token_head/64/codes/64x4x2x3"), "tiny")]


def cuts() -> dict[str, int]:
    """Bytes that a batch stored by each cut of ``device_session.sh`` has wrong, against the launcher's own."""
    layout = PageLayout(scheme("int4_per_token_head"), 4, 64, 64)
    torch.manual_seed(0)
    key, value = torch.randn(2, 160, 4, 64)
    slots, found = torch.arange(160) + 64, {}
    usual = PagedCache.allocate(layout, 5, "cpu")
    store.store(usual, key, value, slots)
    for cut in ((2, 0, 0, 1), (2, 128, 1, 2), (4, 128, 0, 4), (None, None, 0, 3)):
        store_kv.set_cut(cut)
        cache = PagedCache.allocate(layout, 5, "cpu")
        store.store(cache, key, value, slots)
        found["x".join(map(str, cut))] = int((cache.buffer != usual.buffer).sum())
    found["heads of 3"] = store.heads_of(4)
    store_kv.set_cut(None)
    return found


if __name__ == "__main__":
    print(json.dumps({"launches": launches(), "cuts": cuts(), "numerics": numerics()}))
