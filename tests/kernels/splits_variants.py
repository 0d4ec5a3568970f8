"""Run in the serving interpreter by test_kernels_splits: variants that ``decode_splits.py`` compiles ahead, and needs.

A launch is stopped where Triton would look its variant up, as in warmup_checks.py: nothing is computed. JSON: by kind
of case, how many were compiled ahead, how many a case needs, which of these are missing; and ``occupancy``'s answer.
"""

from __future__ import annotations

import json
import sys
import types
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import decode_problem
import decode_splits as splits
from adrbench.kernels.decode import launch
from adrbench.kernels.decode.config import Target
from adrbench.kernels.gate.compile import target_of
from triton.compiler import make_backend
from triton.runtime import jit

BACKEND = make_backend(target_of("sm_90"))
KEYS: set[tuple[str, str, str]] = set()
BINDERS: dict[Any, Any] = {}


def launched(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
    """In place of ``JITFunction.run``: the kernel's name and everything that its variant depends on is noted."""
    if self not in BINDERS:
        BINDERS[self] = jit.create_function_from_signature(self.signature, self.params, BACKEND)
    _, specialization, options = BINDERS[self](*args, **kwargs)
    KEYS.add((self.fn.__name__, str(specialization), str(sorted(options.items()))))
    # What Triton 3.6 compiles for 8 bit at D 256; a combine kernel has less.
    return types.SimpleNamespace(n_regs=128, metadata=types.SimpleNamespace(shared=104456))


def keys_of(call: Any) -> set[tuple[str, str, str]]:
    KEYS.clear()
    call()
    return set(KEYS)


def needed(batch: splits.Batch) -> None:
    """Fill a case's caches and launch every count of it, in two buffer sets."""
    filled = splits.fill(batch.group.scheme, batch.group.case(batch.real), batch.group.page, 2)
    config = launch.config_of(batch.group.layout, batch.sequences, batch.group.length)
    for count in splits.Rules.of(batch, Target("cuda", 132), config, None).counts():
        for call in filled.prepare(replace(config, splits=count), batch.lengths).calls:
            call()


def resident() -> list[Any]:
    """Programs a unit of what a call launches, and whether the kernel is as it was before."""
    group = splits.Batch.of("int8_per_token_head/d256/64/512/1in1").group
    config = launch.config_of(group.layout, 1, group.length)
    call = splits.fill(group.scheme, group.case(1), group.page, 1).prepare(config).calls[0]
    kernel, _ = launch.launched(group.layout, 24, config, "cuda")
    return [splits.occupancy(config, group.layout, 24, call), "run" not in vars(kernel)]


if __name__ == "__main__":
    decode_problem.DEVICE = "cpu"
    jit.JITFunction.run = launched
    found: dict[str, Any] = {}
    here = mock.patch.object(launch, "current_target", return_value=Target("cuda", 132))
    with here, mock.patch.object(splits, "ceilings"):
        for name in ("int8_per_token_head/d256/1600", "int8_per_token_head/d128/64", "bf16/d256/784",
                     "int4_per_token_head/d128/64"):  # fmt: skip
            batch = splits.Batch.of(f"{name}/8192/2in3")
            primed = keys_of(lambda g=batch.group: splits.prime([(g.scheme, g.heads, g.page)]))
            wanted = keys_of(lambda batch=batch: needed(batch))
            found[name] = [len(primed), len(wanted), sorted(kernel for kernel, *_ in wanted - primed)]
        print(json.dumps({"kinds": found, "resident": resident()}))
