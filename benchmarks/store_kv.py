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
import time
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent))

from adrbench.evidence import write_json
from adrbench.kernels.formats import scheme
from adrbench.kernels.formats.layout import PagedCache, PageLayout, Ring
from adrbench.kernels.store import check, launch
from adrbench.kernels.store.launch import store
from adrbench.kernels.store.window_launch import store_windowed
from decode_providers import OURS
from decode_timing import ceilings, last_level_cache_bytes, time_calls

Cut = tuple[int | None, int | None, int, int]
"""Warps, limit of registers (None: the launcher's own), 1 where rows are loaded before slots, heads of a program."""


def slots_for(tokens: int, page: int, start: int) -> torch.Tensor:
    """Slots of a prompt of ``tokens`` on shuffled pages, the first token at offset ``start`` of its page."""
    pages = -(-(tokens + start) // page)
    order = torch.randperm(pages, device="cuda")
    position = torch.arange(start, tokens + start, device="cuda")
    return order[position // page] * page + position % page


def set_cut(cut: Cut | None) -> None:
    """Let the launcher cut the block kernel as ``cut``; None: as it would by itself."""
    warps, registers, early, heads = cut or (None, None, 0, 0)
    launch.BLOCK_WARPS, launch.BLOCK_REGISTERS = warps, registers
    launch.BLOCK_EARLY, launch.BLOCK_HEADS = bool(early), heads


def row(
    name: str, heads: int, dim: int, tokens: int, page: int, start: int, budget_s: float, cut: Cut
) -> dict[str, Any]:
    """``wrong_bytes``: of the whole cache, against the launcher's own cut, which tests compare with the reference."""
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
    timing = time_calls(calls, budget_s)
    usual = PagedCache.allocate(layout, cache.pages, "cuda")
    set_cut(None)
    store(usual, key, value, slots, **scales)
    set_cut(cut)
    return {
        "scheme": name, "kv_heads": heads, "dim": dim, "tokens": tokens, "page": page,
        "wrong_bytes": int((usual.buffer != cache.buffer).sum()),
        "prompt": "block" if start == 0 else "ragged", "median_us": timing.median_us, "low_us": timing.low_us,
        "high_us": timing.high_us, "bytes": read + written, "bytes_per_s": (read + written) / timing.median_us * 1e6,
    }  # fmt: skip


def row_windowed(
    name: str, heads: int, dim: int, tokens: int, page: int, start: int, budget_s: float, _cut: Cut
) -> dict[str, Any]:
    """``row`` of a scheme with a 16-bit window: a prompt, or one token each of ``tokens`` (few) sequences.

    ``wrong_bytes``: of the store's own check, on this device.
    """
    layout = PageLayout(scheme(name), heads, dim, page)
    sequences, new, before = (1, tokens, start) if tokens > 256 else (tokens, 1, 4096 + start)
    plane = layout.scheme.value.row_bytes(dim)
    size = 4 * tokens * heads * dim + int(layout.scheme.bytes_of_request(tokens, heads, dim))
    if new == 1:  # rows in, rows to the ring, one row of values from the ring and its codes
        size = int(tokens * heads * (4 * dim + 4 * dim + 2 * dim + plane))
    copies = max(1, min(32, -(-4 * last_level_cache_bytes() // size)))
    starts = torch.arange(sequences + 1, dtype=torch.int32, device="cuda") * new
    lengths = torch.full((sequences,), before + new, dtype=torch.int32, device="cuda")
    rows = torch.arange(sequences, dtype=torch.int32, device="cuda")
    calls = []
    for _ in range(copies):
        pages = -(-(before + new) // page)
        table = torch.randperm(sequences * pages, device="cuda").to(torch.int32).view(sequences, pages)
        cache = PagedCache.allocate(layout, table.numel(), "cuda")
        ring = Ring.allocate(layout, sequences, torch.bfloat16, "cuda", 0.0)
        key = torch.randn(tokens, heads, dim, device="cuda").to(torch.bfloat16)
        value = torch.randn_like(key)
        calls.append(
            lambda c=cache, r=ring, k=key, v=value, t=table: store_windowed(c, r, rows, k, v, t, starts, lengths, new)
        )
    timing = time_calls(calls, budget_s)
    wrong = sum(check._windowed(name, s, c, torch.bfloat16)("cuda") for s, c in check.WINDOWED_SHAPES)
    return {
        "scheme": name, "kv_heads": heads, "dim": dim, "tokens": tokens, "page": page, "wrong_bytes": wrong,
        "prompt": "block" if start == 0 else "ragged", "median_us": timing.median_us, "low_us": timing.low_us,
        "high_us": timing.high_us, "bytes": size, "bytes_per_s": size / timing.median_us * 1e6,
    }  # fmt: skip


def compile_ahead(arguments: list[str], workers: int, limit_s: float = 60.0) -> None:
    """Fill Triton's cache with the kernels from several processes, on few tokens."""
    command = [sys.executable, __file__, *arguments]
    running = [
        subprocess.Popen([*command, "--shard", str(i), str(workers)], stdout=subprocess.DEVNULL) for i in range(workers)
    ]
    end = time.monotonic() + limit_s
    for process in running:
        try:
            process.wait(timeout=max(0.1, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def measure(name: str, shape: tuple[int, int, int, int, int], cut: Cut, budget_s: float) -> dict[str, Any]:
    """``row`` with the block kernel cut as ``cut``, or why there is none."""
    heads, dim, tokens, page, start = shape
    set_cut(cut)
    chosen = dict(zip(("warps", "registers", "early", "program_heads"), cut, strict=True))
    try:
        timed = row_windowed if scheme(name).depends_on_length else row
        return timed(name, heads, dim, tokens, page, start, budget_s, cut) | chosen
    except Exception as problem:
        failed = f"{type(problem).__name__}: {str(problem)[:300]}"
        return {
            "scheme": name,
            "kv_heads": heads,
            "dim": dim,
            "tokens": tokens,
            "page": page,
            "failed": failed,
        } | chosen


def show(found: dict[str, Any], ceiling: float) -> None:
    head = f"store {found['scheme']:<22} {found['kv_heads']}x{found['dim']} {found['tokens']} tokens"
    cut = f"warps {found['warps']} registers {found['registers']} early {found['early']} heads {found['program_heads']}"
    if "failed" in found:
        print(f"{head} {cut} {found['failed']}", flush=True)
        return
    share = f"{found['bytes_per_s'] / ceiling:6.1%} of the copy ceiling"
    wrong = f" {found['wrong_bytes']:g} bytes wrong" if found.get("wrong_bytes") else ""
    print(f"{head} {found['prompt']:<7} {cut} {found['median_us']:8.1f} us {share}{wrong}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--page", type=int, default=64)
    parser.add_argument("--schemes", nargs="+", default=list(OURS))
    parser.add_argument("--warps", type=int, nargs="+", default=[None], help="of the block kernel")
    parser.add_argument("--registers", type=int, nargs="+", default=[None], help="limits of the block kernel's threads")
    parser.add_argument("--early", type=int, nargs="+", default=[0], help="1: rows are loaded before their slots")
    parser.add_argument("--program-heads", type=int, nargs="+", default=[0], help="of one program; 0: one, as it was")
    parser.add_argument("--cuts", nargs="+", help="WARPSxREGISTERSxEARLYxHEADS, in place of the product of these")
    parser.add_argument("--budget", type=float, default=0.12, help="seconds of replays for one row")
    parser.add_argument("--workers", type=int, default=0, help="processes that compile ahead")
    parser.add_argument("--shard", type=int, nargs=2, default=(0, 0), help=argparse.SUPPRESS)
    args = parser.parse_args()
    shapes, cuts = (
        ((8, 128), (4, 256)),
        list(itertools.product(args.warps, args.registers, args.early, args.program_heads)),
    )
    if args.cuts:
        cuts = [(int(w), int(r), int(e), int(h)) for w, r, e, h in (cut.split("x") for cut in args.cuts)]
    shard, shards = args.shard
    if shards:
        jobs = list(itertools.product(shapes, args.schemes, cuts))[shard::shards]
        for shape, name, cut in jobs:
            measure(name, (*shape, 256, args.page, 0), cut, 0.0)
        return
    if args.workers:
        compile_ahead(sys.argv[1:], args.workers)
    top, rows = ceilings(), []
    # A decode step's 32 tokens go to the other kernel, whatever the cut.
    prompts = [(tokens, start, cut) for tokens, start in ((8192, 0), (8192, 5)) for cut in cuts] + [(32, 5, cuts[0])]
    for (heads, dim), name, (tokens, start, cut) in itertools.product(shapes, args.schemes, prompts):
        if scheme(name).depends_on_length and cut != cuts[0]:
            continue  # another kernel, cut in one way only
        rows.append(measure(name, (heads, dim, tokens, args.page, start), cut, args.budget))
        show(rows[-1], top["copy_bytes_per_s"])
        if args.output:
            write_json(args.output, {"device": torch.cuda.get_device_name(), "ceilings": top, "rows": rows})


if __name__ == "__main__":
    main()
