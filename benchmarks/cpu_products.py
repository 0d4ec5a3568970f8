"""Products of bf16 matrices on this CPU: widened to fp32 (``adrbench.serve.cpu_products``) against torch's own.

    PYTHONPATH=pythonpath OMP_NUM_THREADS=1 .envs/serve/bin/python benchmarks/cpu_products.py

For each layer of the embedded model and each number of rows (tokens of a step): times of both, alternating, the median
of the rounds' ratios with the least and the greatest, and the rates.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from adrbench.evidence import write_json
from adrbench.serve import cpu_products

# [outputs, inputs] of SmolLM2-135M: up and gate together, down, query with key and value, logits.
LAYERS = {"gate and up": (3072, 576), "down": (576, 1536), "qkv": (960, 576), "logits": (49152, 576)}


def seconds(call: Callable[[], Any], least: float) -> float:
    """Mean time of a call, over as many as fill ``least`` seconds."""
    count, began = 0, time.perf_counter()
    while (passed := time.perf_counter() - began) < least or not count:
        call()
        count += 1
    return passed / count


def row(name: str, rows: int, rounds: int, least: float) -> dict[str, Any]:
    outputs, inputs = LAYERS[name]
    x, weight = torch.randn(rows, inputs).bfloat16(), torch.randn(outputs, inputs).bfloat16()
    calls = [lambda: cpu_products.product(x, weight, None), lambda: torch.nn.functional.linear(x, weight)]
    for call in calls:
        call()
    times = [[seconds(call, least) for call in calls] for _ in range(rounds)]
    ratios = sorted(own / ours for ours, own in times)
    rates = [2e-9 * rows * inputs * outputs / statistics.median(column) for column in zip(*times, strict=True)]
    return {
        "layer": name, "rows": rows, "ratio": statistics.median(ratios), "least": ratios[0], "greatest": ratios[-1],
        "gflop_per_s": rates[0], "torch_gflop_per_s": rates[1],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 2, 4, 8, 64, 360])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.1, help="least time of one sample")
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    print(f"bf16 has no instructions here: {cpu_products.lacks(torch.bfloat16)}; {torch.get_num_threads()} thread(s)")
    found = []
    for name in LAYERS:
        for rows in args.rows:
            found.append(row(name, rows, args.rounds, args.seconds))
            print(
                "{layer:<12} {rows:>4} rows: {ratio:5.2f} x as fast as torch ({least:.2f} to {greatest:.2f}), "
                "{gflop_per_s:5.1f} against {torch_gflop_per_s:5.1f} GFLOP/s".format(**found[-1]),
                flush=True,
            )
    if args.output:
        write_json(args.output, {"torch": torch.__version__, "threads": torch.get_num_threads(), "rows": found})


if __name__ == "__main__":
    main()
