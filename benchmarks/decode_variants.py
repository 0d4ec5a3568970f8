"""Variants of the 4-bit decode kernels side by side: right first, then fast.

    python benchmarks/decode_variants.py --workers 14 --output results/<platform>/decode_variants.json

A variant is ``scheme/page/kernel/TILExWARPSxSTAGESxSPLITS``, perhaps with ``xREGISTERS``; kernel ``table`` is what
``decode`` takes by itself, ``codes+pieces`` the scheme's own in a form of ``LaunchConfig.forms``.
Each is first compared with fp32 attention over the same cache on odd lengths, in processes side by side (they fill
Triton's compile cache too), then timed as ``decode_attention.py`` does. A variant that fails is a row with its
reason. The output is written after every timing.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import triton

sys.path.insert(0, str(Path(__file__).parent))

from adrbench.evidence import write_json
from adrbench.kernels.decode import check
from adrbench.kernels.decode.config import LaunchConfig
from decode_attention import HEADS, copies_for
from decode_problem import Case
from decode_providers import fill, fill_windowed
from decode_timing import ceilings, time_calls

DEVICE = "cuda"


@dataclass(frozen=True)
class Variant:
    """One kernel launch of a scheme on one page size."""

    scheme: str
    page: int
    config: LaunchConfig | None

    @classmethod
    def of(cls, text: str) -> Variant:
        scheme, page, kernel, *cut = text.split("/")
        if kernel == "table":
            return cls(scheme, int(page), None)
        tile, warps, stages, splits, *limit = map(int, cut[0].split("x"))
        kernel, *forms = kernel.split("+")
        kernel = "" if kernel == "codes" else kernel
        config = LaunchConfig(tile, warps, stages, splits, kernel, limit[0] if limit else 0, tuple(forms))
        return cls(scheme, int(page), config)

    def __str__(self) -> str:
        if self.config is None:
            return f"{self.scheme}/{self.page}/table"
        c = self.config
        kernel = "+".join((c.kernel or "codes", *c.forms))
        limit = f"x{c.registers}" if c.registers else ""
        return f"{self.scheme}/{self.page}/{kernel}/{c.tile}x{c.warps}x{c.stages}x{c.splits}{limit}"


def default_variants(heads: str) -> list[str]:
    """The tables' launches, and what could be faster (docs/kernels.md has each one's reason and prediction)."""
    token, group, kivi = "int4_per_token_head", "int4_g32", "kivi4"
    found = [f"{name}/{page}/table" for name in (token, group) for page in (16, 64, 128, 784)]
    found += [f"{kivi}/{page}/table" for page in (64, 128)]
    found += [f"{token}/16/codes+pieces/{cut}" for cut in ("128x4x6x4", "128x4x6x8")]
    found += [f"{token}/784/codes+pieces/128x4x6x4"]
    if heads == "d128":
        found += [f"{token}/{page}/codes+pieces/128x4x6x{cut}" for page in (16, 784) for cut in ("4x128", "8x128")]
        found += [f"{group}/64/unpacked/{cut}" for cut in ("32x1x6x8x128", "32x1x6x7x136", "32x1x6x6")]
        found += [f"{group}/64/unpacked+{form}/32x1x6x7x136" for form in ("chain", "chain+lazy")]
        found += [f"{group}/64/unpacked+chain+lazy/32x1x6x8x128"]
        found += [f"{kivi}/64/unpacked/{cut}" for cut in ("32x1x6x6", "32x1x6x7x144", "32x1x6x8x128")]
        return [*found, f"{kivi}/64/unpacked+lazy/32x1x6x7x144", f"{kivi}/128/unpacked/32x1x6x7x144"]
    found += [f"{group}/64/unpacked/{cut}" for cut in ("32x1x6x10x200", "32x1x4x8")]
    forms, cuts = ("chain", "chain+lazy"), ("32x1x6x8", "32x1x6x9x224", "32x1x6x10x200")
    found += [f"{group}/64/unpacked+{form}/{cut}" for form in forms for cut in cuts]
    return [*found, f"{kivi}/64/unpacked+lazy/32x1x6x8"]


def lengths_of(page: int) -> tuple[int, ...]:
    """Around the ends of tiles, pages and windows; the last is long enough for every split."""
    return (page - 1, 1, 2 * page + 33, 0, 127, 129, 160, 161, 1027, 16, 5000)


def error_of(variant: Variant, heads: str, seeds: int = 2) -> float:
    """Largest relative error against fp32 attention over the same, poisoned cache."""
    query_heads, kv_heads, dim = HEADS[heads]
    shape, worst = check.Shape(query_heads, kv_heads, dim, variant.page, lengths_of(variant.page)), 0.0
    for seed in range(seeds):
        torch.manual_seed(seed)
        problem = check.build(variant.scheme, shape, torch.bfloat16, DEVICE)
        first, again = (problem.attend(variant.config) for _ in range(2))
        if not torch.equal(first, again):
            raise ValueError("two runs differ: a race")
        error = check.relative_error(first, problem.expected())
        if error != error:
            return error
        worst = max(worst, error)
    return worst


def attempt(variant: Variant, heads: str) -> dict[str, Any]:
    """The row of one variant's numerics."""
    row: dict[str, Any] = {"variant": str(variant), "heads": heads}
    try:
        error = error_of(variant, heads)
    except Exception as problem:
        return row | {"failed": message_of(problem)}
    # Outputs, and what KIVI's window multiplies, are bf16 here; the check's own are fp16.
    limit = max(check.tolerance(variant.scheme, variant.config) * 1.5, 1e-2)
    row["kernel_error"] = error if math.isfinite(error) else None
    return row if error <= limit else row | {"failed": f"error {error:.4g} is above {limit:g}"}


def message_of(problem: Exception) -> str:
    """One line of an exception: a compiler says it last, the device first."""
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()] or ["no message"]
    text = lines[0][:200] if len(lines) == 1 else f"{lines[0][:200]} ... {lines[-1][:200]}"
    return f"{type(problem).__name__}: {text}"


def check_all(jobs: list[tuple[Variant, str]]) -> None:
    """Print the jobs' rows; after a fault of the device this process can do no more."""
    for variant, heads in jobs:
        print(json.dumps(attempt(variant, heads)), flush=True)
        torch.cuda.synchronize()


def checked(jobs: list[tuple[Variant, str]], end: float) -> list[dict[str, Any]]:
    """The jobs' rows, from a process that is replaced when it dies; what is left at time ``end`` failed."""
    rows: list[dict[str, Any]] = []
    while len(rows) < len(jobs):
        rest, late = jobs[len(rows) :], False
        text = json.dumps([[str(variant), heads] for variant, heads in rest])
        # A file, not a pipe: a compiler that outlives its process would hold that open.
        with tempfile.TemporaryFile("w+") as output:
            command = [sys.executable, __file__, "--check", text]
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.DEVNULL)
            try:
                process.wait(timeout=max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                late = True
            output.seek(0)
            found = [json.loads(line) for line in output.read().splitlines() if line.startswith("{") and "}" in line]
        rows += found
        if late:
            reason, lost = "no time was left for its check", rest[len(found) :]
        else:
            reason = f"its process ended with {process.returncode}"
            lost = [] if found else rest[:1]
        rows += [{"variant": str(v), "heads": h, "failed": reason} for v, h in lost]
    return rows


def numerics(jobs: list[tuple[Variant, str]], workers: int, limit_s: float) -> list[dict[str, Any]]:
    """Every job's row, from ``workers`` processes at a time."""
    end = time.monotonic() + limit_s
    with ThreadPoolExecutor(workers) as pool:
        return [row for rows in pool.map(lambda i: checked(jobs[i::workers], end), range(workers)) for row in rows]


def timed(row: dict[str, Any], filled: Any, variant: Variant, expected: list[torch.Tensor]) -> dict[str, Any]:
    """``row`` with the time of the variant on a filled cache, and its error over the unquantised rows."""
    try:
        prepared = filled.prepare(variant.config)
        for call in prepared.calls:
            call()
        torch.cuda.synchronize()
        got = [prepared.out[0].float(), prepared.out[-1].float()]
        errors = [float((g - e).norm() / e.norm()) for g, e in zip(got, expected, strict=True)]
        if not all(map(math.isfinite, errors)):
            return row | {"failed": "the output holds NaN or infinity"}
        timing = time_calls(prepared.calls, 0.06)
    except Exception as problem:
        return row | {"failed": message_of(problem)}
    return row | {
        "median_us": timing.median_us, "low_us": timing.low_us, "high_us": timing.high_us, "samples": timing.samples,
        "bytes": prepared.bytes, "bytes_per_s": prepared.bytes / timing.median_us * 1e6, "error": max(errors),
    }  # fmt: skip


def timings(rows: list[dict[str, Any]], args: argparse.Namespace, save: Any) -> None:
    """Add times to the rows that are right; a cache is filled once for all variants of its scheme and page."""
    for heads in args.heads:
        case = Case(args.batch, args.length, *HEADS[heads])
        expected = [case.answer(0), case.answer(case.batch - 1)]
        mine = [row for row in rows if row["heads"] == heads]
        for scheme, page in dict.fromkeys(
            (Variant.of(r["variant"]).scheme, Variant.of(r["variant"]).page) for r in mine
        ):
            good = [r for r in mine if r["variant"].startswith(f"{scheme}/{page}/") and "failed" not in r]
            if not good:
                continue
            copies = copies_for(case.batch * case.length * case.kv_heads * case.dim)
            try:
                filled = (fill_windowed if scheme.startswith("kivi") else fill)(scheme, case, page, copies)
            except Exception as problem:
                for row in good:
                    row["failed"] = message_of(problem)
                save()
                continue
            for row in good:
                row |= timed(row, filled, Variant.of(row["variant"]), expected)
                show(row)
                save()
            del filled
            gc.collect()
            torch.cuda.empty_cache()


def once(args: argparse.Namespace) -> None:
    """One launch of each variant on the first of ``args.heads``."""
    case = Case(args.batch, args.length, *HEADS[args.heads[0]])
    for variant in map(Variant.of, args.variants or default_variants(args.heads[0])):
        filled = (fill_windowed if variant.scheme.startswith("kivi") else fill)(variant.scheme, case, variant.page, 1)
        filled.prepare(variant.config).calls[0]()
        torch.cuda.synchronize()


def show(row: dict[str, Any]) -> None:
    if "median_us" in row:
        text = f"{row['median_us']:8.1f} us  {row['bytes_per_s'] / 1e12:6.3f} TB/s  error {row['error']:.4f}"
    else:
        text = row.get("failed", "right")
    print(f"{row['heads']} {row['variant']:<48} {text}  kernel error {row.get('kernel_error')}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--variants", nargs="+", help="all of ``default_variants`` where none is named")
    parser.add_argument("--heads", nargs="+", choices=HEADS, default=list(HEADS))
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--length", type=int, default=16384)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--check-seconds", type=float, default=90.0, help="limit of the numerics")
    parser.add_argument("--once", action="store_true", help="only launch each variant once, under a profiler")
    parser.add_argument("--check", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.check:
        check_all([(Variant.of(text), heads) for text, heads in json.loads(args.check)])
        return
    if args.once:
        once(args)
        return
    jobs = [(Variant.of(text), heads) for heads in args.heads for text in args.variants or default_variants(heads)]
    began = time.monotonic()
    rows = numerics(jobs, args.workers, args.check_seconds)
    print(f"numerics of {len(rows)} variants in {time.monotonic() - began:.0f} s", flush=True)
    for row in rows:
        if "failed" in row:
            show(row)
    top = ceilings()

    def save() -> None:
        host = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "triton": triton.__version__}
        if args.output:
            write_json(args.output, {"host": host, "ceilings": top, "arguments": sys.argv[1:], "rows": rows})

    save()
    timings(rows, args, save)


if __name__ == "__main__":
    main()
