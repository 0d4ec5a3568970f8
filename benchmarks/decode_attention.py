"""Decode attention against the memory ceiling, vLLM's Triton kernel and FlashAttention 3, in one run.

    python benchmarks/decode_attention.py --output results/<platform>/decode.json           # the table
    python benchmarks/decode_attention.py --sweep --output results/<platform>/sweep.json     # launch configurations

Needs a GPU (CUDA or ROCm) and ``pythonpath`` on PYTHONPATH; baselines that are not installed are
listed as such. Each number is a CUDA-graph replay over buffers larger than the last-level cache:
median and quartiles, bytes of K, V and scales over time, and the error against fp32 attention over
the unquantised rows.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import triton

sys.path.insert(0, str(Path(__file__).parent))

from adrbench.evidence import write_json
from adrbench.kernels.decode.config import LaunchConfig
from decode_problem import Case, error
from decode_providers import BASELINES, OURS, NotInstalled, Prepared, fill, ours
from decode_timing import ceilings, last_level_cache_bytes, time_calls

HEADS = {"d128": (32, 8, 128), "d256": (24, 4, 256)}
SWEEP_CASES = ((32, 16384), (1, 32768))


def copies_for(size_bytes: int) -> int:
    """Buffer sets that together hold at least four times the last-level cache."""
    return max(1, min(32, -(-4 * last_level_cache_bytes() // max(1, size_bytes))))


def measure(
    name: str, case: Case, page: int, prepare: Callable[[int], Prepared], kv_bytes: int, budget_s: float = 0.12
) -> dict[str, Any]:
    """One row: timing, bandwidth and error, or why there is none."""
    row: dict[str, Any] = {"provider": name, "case": case.name, "batch": case.batch, "length": case.length,
                           "heads": case.heads, "kv_heads": case.kv_heads, "dim": case.dim, "page": page}  # fmt: skip
    try:
        prepared = prepare(copies_for(kv_bytes))
        for call in prepared.calls:
            call()
        torch.cuda.synchronize()
        row["error"] = error(case, prepared.out)
        if row["error"] != row["error"]:
            return row | {"error": None, "failed": "the output holds NaN"}
        timing = time_calls(prepared.calls, budget_s)
    except NotInstalled as problem:
        return row | {"skipped": str(problem)}
    except Exception as problem:
        return row | {"failed": f"{type(problem).__name__}: {str(problem)[:300]}"}
    finally:
        gc.collect()
        torch.cuda.empty_cache()
    return row | {
        "median_us": timing.median_us,
        "low_us": timing.low_us,
        "high_us": timing.high_us,
        "samples": timing.samples,
        "buffers": len(prepared.calls),
        "bytes": prepared.bytes,
        "bytes_per_s": prepared.bytes / timing.median_us * 1e6,
    }


def show(row: dict[str, Any]) -> None:
    head = f"{row['case']:<22} {row['provider']:<32} page {row['page']:<5}"
    if "median_us" not in row:
        print(f"{head} {row.get('skipped') or row['failed']}", flush=True)
        return
    spread = (row["high_us"] - row["low_us"]) / row["median_us"] * 100
    print(
        f"{head} {row['median_us']:9.1f} us  {row['bytes_per_s'] / 1e12:6.3f} TB/s  spread {spread:4.1f} %  "
        f"error {row['error']:.4f}  {row.get('config', '')}",
        flush=True,
    )


def bench(args: argparse.Namespace, save: Callable[[list[dict[str, Any]]], None]) -> list[dict[str, Any]]:
    """Every provider on every case; saved after each case, so that an interrupted run keeps what it has."""
    rows: list[dict[str, Any]] = []
    for heads, (batch, length) in itertools.product(args.heads, itertools.product(args.batch, args.length)):
        case = Case(batch, length, *HEADS[heads])
        for page in args.pages:
            for name in args.schemes:
                size = batch * length * case.kv_heads * case.dim
                rows.append(
                    measure(f"ours:{name}", case, page, lambda n, s=name, p=page, c=case: ours(s, c, p, n), size)
                )
                show(rows[-1])
        for name in args.baselines:
            page, size = args.baseline_page, 2 * batch * length * case.kv_heads * case.dim
            rows.append(measure(name, case, page, lambda n, b=name, p=page, c=case: BASELINES[b](c, p, n), size))
            show(rows[-1])
        save(rows)
    return rows


def sweep_configs(args: argparse.Namespace, batch: int) -> list[LaunchConfig]:
    splits = (4, 8, 16) if batch > 1 else (32, 64, 128)
    return [LaunchConfig(t, w, s, n) for (t, w), s, n in itertools.product(args.cuts, args.stages, splits)]


def sweep(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Our kernel over launch configurations; with ``--shard i/n`` only compiles its share, on a tiny case."""
    rows: list[dict[str, Any]] = []
    shard, shards = args.shard
    kernels = 0
    cases = [(1, 512)] if shards else SWEEP_CASES
    for heads, (batch, length), name, page in itertools.product(args.heads, cases, args.schemes, args.pages):
        case = Case(batch, length, *HEADS[heads])
        filled = fill(name, case, page, copies_for(batch * length * case.kv_heads * case.dim))
        found = []
        for config in sweep_configs(args, batch):
            kernels += config.splits == 32  # the split count is a run-time argument
            if shards and (config.splits != 32 or kernels % shards != shard):
                continue
            row = measure(f"ours:{name}", case, page, lambda _, f=filled, c=config: f.prepare(c), 0, budget_s=0.05)
            found.append(row | {"config": [config.tile, config.warps, config.stages, config.splits]})
        rows += found
        if shards:
            continue
        for row in sorted((row for row in found if "median_us" in row), key=lambda row: row["median_us"])[:4]:
            show(row)
        for row in [row for row in found if "failed" in row][:1]:
            print(f"   some failed, e.g. {row['config']} {row['failed'][:120]}", flush=True)
    return rows


def compile_ahead(arguments: list[str], workers: int) -> None:
    """Fill Triton's cache with the sweep's kernels from several processes."""
    started = time.monotonic()
    command = [sys.executable, __file__, *arguments]
    running = [
        subprocess.Popen([*command, "--shard", f"{i}/{workers}"], stdout=subprocess.DEVNULL) for i in range(workers)
    ]
    for process in running:
        process.wait()
    print(f"compiled ahead in {time.monotonic() - started:.0f} s", flush=True)


def _shard(text: str) -> tuple[int, int]:
    index, _, count = text.partition("/")
    return int(index), int(count)


def _cut(text: str) -> tuple[int, int]:
    tile, _, warps = text.partition("x")
    return int(tile), int(warps)


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, help="JSON with every row and the ceilings")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8, 32, 128])
    parser.add_argument("--length", type=int, nargs="+", default=[4096, 16384, 32768])
    parser.add_argument("--heads", nargs="+", choices=HEADS, default=list(HEADS))
    parser.add_argument("--pages", type=int, nargs="+", default=[64], help="page sizes of our caches")
    parser.add_argument("--baseline-page", type=int, default=16, help="vLLM's default page size")
    parser.add_argument("--schemes", nargs="*", default=list(OURS))
    parser.add_argument("--baselines", nargs="*", choices=[*BASELINES, []], default=list(BASELINES))
    parser.add_argument("--sweep", action="store_true", help="sweep launch configurations instead")
    parser.add_argument("--cuts", type=_cut, nargs="+", default=[(64, 4), (128, 4)], help="TILExWARPS to sweep")
    parser.add_argument("--stages", type=int, nargs="+", default=[2, 3, 4])
    parser.add_argument("--workers", type=int, default=0, help="processes that compile the sweep ahead")
    parser.add_argument("--shard", type=_shard, default=(0, 0), help=argparse.SUPPRESS)
    parser.add_argument("--verbose", action="store_true")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> None:
    args = parse(arguments)
    if args.shard[1]:
        sweep(args)
        return
    properties = torch.cuda.get_device_properties(0)
    host = {
        "device": properties.name,
        "units": properties.multi_processor_count,
        "l2_bytes": last_level_cache_bytes(),
        "torch": torch.__version__,
        "triton": triton.__version__,
    }
    top = ceilings()
    print(
        f"{host}\ncopy {top['copy_bytes_per_s'] / 1e12:.3f} TB/s, read {top['read_bytes_per_s'] / 1e12:.3f} TB/s",
        flush=True,
    )
    if args.sweep and args.workers:
        compile_ahead(arguments, args.workers)

    def save(rows: list[dict[str, Any]]) -> None:
        if args.output:
            write_json(args.output, {"host": host, "ceilings": top, "arguments": arguments, "rows": rows})

    save(sweep(args) if args.sweep else bench(args, save))


if __name__ == "__main__":
    main(sys.argv[1:])
