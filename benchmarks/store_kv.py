"""Quantise-and-store against the copy ceiling of the same run.

    python benchmarks/store_kv.py --output results/<platform>/store.json

Bytes: the 16-bit rows read plus the codes and scales written. ``block`` prompts start at a multiple
of 16 tokens in the batch, so values are written as whole blocks; ``ragged`` ones do not.
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent))

from adrbench.evidence import write_json
from adrbench.kernels.formats import scheme
from adrbench.kernels.formats.layout import PagedCache, PageLayout
from adrbench.kernels.store import launch
from adrbench.kernels.store.launch import store
from decode_providers import OURS
from decode_timing import ceilings, last_level_cache_bytes, time_calls


def slots_for(tokens: int, page: int, start: int) -> torch.Tensor:
    """Slots of a prompt of ``tokens`` on shuffled pages, the first token at offset ``start`` of its page."""
    pages = -(-(tokens + start) // page)
    order = torch.randperm(pages, device="cuda")
    position = torch.arange(start, tokens + start, device="cuda")
    return order[position // page] * page + position % page


def row(name: str, heads: int, dim: int, tokens: int, page: int, start: int) -> dict[str, Any]:
    layout = PageLayout(scheme(name), heads, dim, page)
    written = tokens * layout.scheme.bytes_per_token(heads, dim)
    read = 4 * tokens * heads * dim
    copies = max(1, min(32, -(-4 * last_level_cache_bytes() // (read + int(written)))))
    static = torch.full((heads,), 0.05, device="cuda")
    scales = {"key_scale": static, "value_scale": static} if layout.scheme.is_static else {}
    calls = []
    for _ in range(copies):
        slots = slots_for(tokens, page, start)
        cache = PagedCache.allocate(layout, -(-(tokens + start) // page), "cuda")
        key = torch.randn(tokens, heads, dim, device="cuda").to(torch.bfloat16)
        value = torch.randn_like(key)
        calls.append(lambda c=cache, k=key, v=value, s=slots: store(c, k, v, s, **scales))
    timing = time_calls(calls)
    return {
        "scheme": name, "kv_heads": heads, "dim": dim, "tokens": tokens, "page": page,
        "prompt": "block" if start == 0 else "ragged", "median_us": timing.median_us, "low_us": timing.low_us,
        "high_us": timing.high_us, "bytes": read + written, "bytes_per_s": (read + written) / timing.median_us * 1e6,
    }  # fmt: skip


def compile_ahead(arguments: list[str], workers: int) -> None:
    """Fill Triton's cache with the kernels from several processes, on few tokens."""
    command = [sys.executable, __file__, *arguments]
    running = [
        subprocess.Popen([*command, "--shard", str(i), str(workers)], stdout=subprocess.DEVNULL) for i in range(workers)
    ]
    for process in running:
        process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--page", type=int, default=64)
    parser.add_argument("--schemes", nargs="+", default=list(OURS))
    parser.add_argument("--warps", type=int, nargs="+", default=[None], help="of the block kernel")
    parser.add_argument("--registers", type=int, nargs="+", default=[None], help="limits of the block kernel's threads")
    parser.add_argument("--early", type=int, nargs="+", default=[0], help="1: rows are loaded before their slots")
    parser.add_argument("--workers", type=int, default=0, help="processes that compile ahead")
    parser.add_argument("--shard", type=int, nargs=2, default=(0, 0), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.workers and not args.shard[1]:
        compile_ahead(sys.argv[1:], args.workers)
    shard, shards = args.shard
    top = {} if shards else ceilings()
    rows = []
    prompts = ((8192, 0), (8192, 5), (32, 5))
    cases = itertools.product(((8, 128), (4, 256)), args.schemes, prompts, args.warps, args.registers, args.early)
    for index, ((heads, dim), name, (tokens, start), warps, registers, early) in enumerate(cases):
        launch.BLOCK_WARPS, launch.BLOCK_REGISTERS, launch.BLOCK_EARLY = warps, registers, bool(early)
        if shards:
            if start == 0 and index % shards == shard:
                row(name, heads, dim, 256, args.page, start)
            continue
        rows.append(
            row(name, heads, dim, tokens, args.page, start) | {"warps": warps, "registers": registers, "early": early}
        )
        r = rows[-1]
        share = r["bytes_per_s"] / top["copy_bytes_per_s"]
        head = f"store {name:<22} {heads}x{dim} {tokens} tokens {r['prompt']:<7}"
        cut = f"warps {warps} registers {registers} early {early}"
        print(f"{head} {cut} {r['median_us']:8.1f} us {share:6.1%} of the copy ceiling", flush=True)
    if args.output and not shards:
        write_json(args.output, {"device": torch.cuda.get_device_name(), "ceilings": top, "rows": rows})


if __name__ == "__main__":
    main()
