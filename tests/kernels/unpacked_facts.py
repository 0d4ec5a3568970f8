"""Run in the serving interpreter by test_kernels_unpacked: 4-bit kernels on data that are hard for fp16, as JSON."""

from __future__ import annotations

import json
import os

os.environ["TRITON_INTERPRET"] = "1"

from typing import Any

import torch
from adrbench.kernels.decode import check, launch
from adrbench.kernels.decode.config import LaunchConfig, Target, choose_windowed
from adrbench.kernels.decode.reference import attend
from adrbench.kernels.formats import scheme
from adrbench.kernels.formats.layout import PagedCache, PageLayout, Ring
from adrbench.kernels.store import windowed
from adrbench.kernels.store.window_launch import constants, grid_blocks, store_windowed

CONFIG = LaunchConfig(32, 1, 2, 2, "unpacked")
SHAPE = check.Shape(4, 1, 64, 32, (257, 40))


def problem(name: str, largest: float, smallest: float = 1.0) -> check.Problem:
    """A problem whose rows are ``smallest`` times standard normal, with single numbers of ``largest``."""
    torch.manual_seed(0)
    normal = torch.randn

    def rows(*size: Any, **rest: Any) -> torch.Tensor:
        x = normal(*size, **rest)
        if len(size) == 4:
            x = torch.where(torch.rand(x.shape) > 0.995, x.sign() * largest, x * smallest)
        return x

    torch.randn = rows
    try:
        return check.build(name, SHAPE, torch.float16, "cpu")
    finally:
        torch.randn = normal


def decode_facts(name: str) -> dict[str, Any]:
    found = {}
    for label, largest, smallest in (("plain", 2.0, 1.0), ("outliers", 1e4, 1.0), ("tiny", 0.002, 0.001)):
        p = problem(name, largest, smallest)
        out, stored = p.attend(CONFIG), p.expected()
        exact = [attend(q, k, v, SHAPE.dim**-0.5) for q, k, v in zip(p.q, p.key, p.value, strict=True)]
        found[label] = {
            "finite": bool(out.isfinite().all()),
            "kernel_error": check.relative_error(out, stored),
            "scheme_error": check.relative_error(stored, torch.stack(exact)),
        }
    return found


def unwritten(name: str, page: int) -> bool:
    """Whether the output is the same, to the bit, over slots that hold another poison (0xFFFF is an fp16 NaN)."""
    outs = []
    for fill in (0xA5, 0xFF):
        torch.manual_seed(0)
        shape = check.Shape(4, 1, 64, page, (257, 40, page - 1))
        outs.append(check.build(name, shape, torch.float16, "cpu", fill).attend(CONFIG))
    return bool(torch.equal(*outs))


def refusal(call: Any, *arguments: Any) -> str:
    try:
        call(*arguments)
    except (ValueError, NotImplementedError) as problem:
        return f"{type(problem).__name__}: {problem}"
    return ""


def refusals() -> dict[str, str]:
    kivi = PageLayout(scheme("kivi4"), 1, 64, 32)
    rows, table = torch.zeros(1, 1, 64), torch.zeros(1, 1, dtype=torch.int32)
    one, two = torch.ones(1, dtype=torch.int32), torch.tensor([0, 1], dtype=torch.int32)
    cache, ring = PagedCache.allocate(kivi, 1, "cpu"), Ring.allocate(kivi, 1, torch.float16, "cpu")
    half = rows.half()
    return {
        "amd": refusal(launch.unpacked_constants, PageLayout(scheme("int4_g32"), 1, 64, 64), 4, CONFIG, "hip"),
        "bits": refusal(launch.unpacked_constants, PageLayout(scheme("int8_per_head"), 1, 64, 64), 4, CONFIG, "cuda"),
        "tile": refusal(launch.unpacked_constants, kivi, 4, LaunchConfig(64, 1, 2, 2, "unpacked"), "cuda"),
        "page": refusal(constants, PageLayout(scheme("kivi4"), 1, 64, 48)),
        "kivi2": refusal(constants, PageLayout(scheme("kivi2"), 1, 64, 32)),
        "dtype": refusal(store_windowed, cache, ring, one * 0, rows, rows, table, two, one, 1),
        "rows": refusal(store_windowed, cache, ring, one.long(), half, half, table, two, one, 1),
        "starts": refusal(store_windowed, cache, ring, one * 0, half, half, table, one, one, 1),
        "kernel": refusal(LaunchConfig, 32, 1, 4, 1, "wide"),
        "stages": refusal(LaunchConfig, 64, 4, 1, 1),
    }


def spoiled() -> dict[str, Any]:
    """A NaN in one row of values and one of keys: whose numbers it reaches, of a head whose rows are clean besides."""
    layout = PageLayout(scheme("kivi4"), 2, 64, 32)
    torch.manual_seed(0)
    key, value = torch.randn(2, 300, 2, 64).half()
    key[5, 0, 3], value[7, 0, 40] = float("nan"), float("inf")
    cache, ring = PagedCache.allocate(layout, 10, "cpu"), Ring.allocate(layout, 1, torch.float16, "cpu")
    table = torch.arange(10, dtype=torch.int32)[None]
    starts, lengths = torch.tensor([0, 300], dtype=torch.int32), torch.tensor([300], dtype=torch.int32)
    store_windowed(cache, ring, torch.zeros(1, dtype=torch.int32), key, value, table, starts, lengths, 300)
    key, value = windowed.load_request(cache, ring, 0, 300, table[0])
    return {
        "keys": sorted({tuple(i) for i in key.isnan().nonzero()[:, 1:].tolist()}),
        "key_tokens": int(key.isnan().sum()),
        "value_tokens": sorted({i for i, _, _ in value.isnan().nonzero().tolist()}),
        "values": int(value.isnan().sum()),
    }


def blocks() -> list[str]:
    """Batches whose blocks of 32 tokens are more than the grid has."""
    wrong = []
    for most in (1, 2, 31, 33, 34, 95, 127, 128, 129, 200):
        keys, values = grid_blocks(most, 128)
        for start in range(300):
            end = start + most
            lo, hi = max(0, start - 128), max(0, end - 128)
            if (end // 128 - start // 128) * 4 > keys or (hi > lo and (hi - 1) // 32 - lo // 32 + 1 > values):
                wrong.append(f"{start} + {most}")
    return wrong


print(
    json.dumps(
        {
            "decode": {name: decode_facts(name) for name in ("int4_per_token_head", "int4_g32", "kivi4")},
            "unwritten": {
                f"{name}, page {page}": unwritten(name, page)
                for name, page in (("int4_per_token_head", 64), ("int4_g32", 64), ("int4_g32", 80), ("kivi4", 64))
            },
            "refusals": refusals(),
            "spoiled": spoiled(),
            "blocks": blocks(),
            "amd_config": [choose_windowed(dim, 8, 4096, Target("hip", 100)).warps for dim in (64, 128, 256)],
        }
    )
)
