"""Run in the serving interpreter: compiled readers against plain ones, on CPU.

JSON, by plane (``SCHEME.key``): ``differing``, share of values; ``compiled_later``, whether a size compiled after the
warm-up, when a graph could be captured.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
from adrbench.kernels.formats import scheme
from adrbench.serve.simulation.readers import WARM_UP_TOKENS, Readers

HEADS, DIM, BLOCK = 2, 64, 16


def facts(name: str, which: str) -> dict[str, float | bool]:
    plane = getattr(scheme(name), which)
    torch.manual_seed(0)
    static = plane.static(plane.calibrate(torch.randn(600, HEADS, DIM)))
    compiled, plain = Readers(plane, True), Readers(plane, False)
    windowed = plane.window_step > 1
    compiled.warm_up(static, HEADS, DIM, BLOCK, torch.float32, windowed)
    assert compiled.form == "compiled", compiled.form
    different = total = 0
    with torch.inference_mode(), torch.compiler.set_stance("fail_on_recompile"):
        for tokens in (*WARM_UP_TOKENS, 2, 3, 40):
            rows = torch.randn(tokens, HEADS, DIM)
            try:
                pair = [reader.rows(rows, static) for reader in (compiled, plain)] if not windowed else None
                pair = pair or [reader.slots(*step(plane, tokens), static) for reader in (compiled, plain)]
            except RuntimeError as error:
                return {"differing": 1.0, "compiled_later": True, "error": str(error)[:300]}
            different += int((pair[0] - pair[1]).abs().gt(1e-5 * pair[1].abs() + 1e-6).sum())
            total += pair[0].numel()
    return {"differing": different / total, "compiled_later": False}


def step(plane: Any, tokens: int) -> tuple[torch.Tensor, ...]:
    """Cache, blocks, offsets and mask of a step; the same for the same number of tokens."""
    torch.manual_seed(tokens)
    count = tokens * plane.window_step
    valid = (torch.rand(tokens) < 0.5).repeat_interleave(plane.window_step)
    block, offset = torch.randint(0, tokens + 1, (count,)), torch.randint(0, BLOCK, (count,))
    return torch.randn(tokens + 1, BLOCK, HEADS, DIM), block, offset, valid


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps({name: facts(*name.split(".")) for name in sys.argv[1:]}))
