"""Run in the serving interpreter: compiled readers against plain ones, on CPU. JSON: share of values that differ."""

from __future__ import annotations

import json
import sys

import torch
from adrbench.kernels.formats import scheme
from adrbench.serve.simulation.readers import WARM_UP_TOKENS, Readers

HEADS, DIM, BLOCK = 2, 64, 16


def differing(name: str, which: str) -> float:
    plane = getattr(scheme(name), which)
    torch.manual_seed(0)
    static = plane.static(plane.calibrate(torch.randn(600, HEADS, DIM)))
    compiled, plain = Readers(plane, True), Readers(plane, False)
    different = total = 0
    for tokens in (*WARM_UP_TOKENS, 40):
        count = tokens * plane.window_step
        cache = torch.randn(tokens + 1, BLOCK, HEADS, DIM)
        block, offset = torch.randint(0, tokens + 1, (count,)), torch.randint(0, BLOCK, (count,))
        valid = torch.rand(count // plane.window_step) < 0.5
        valid = valid.repeat_interleave(plane.window_step)
        pair = [readers.slots(cache, block, offset, valid, static) for readers in (compiled, plain)]
        different += int((pair[0] - pair[1]).abs().gt(1e-5 * pair[1].abs() + 1e-6).sum())
        total += pair[0].numel()
        if plane.window_step == 1:
            pair = [readers.rows(cache[0], static) for readers in (compiled, plain)]
            different += int((pair[0] - pair[1]).abs().gt(1e-5 * pair[1].abs() + 1e-6).sum())
            total += pair[0].numel()
    return different / total


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps({name: differing(*name.split(".")) for name in sys.argv[1:]}))
