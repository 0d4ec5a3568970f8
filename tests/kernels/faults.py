"""Run in the serving interpreter by test_kernels_job: put one fault into a launcher, run the cases of
its operation, and print their statuses as JSON."""

import contextlib
import io
import json
import os
import sys

os.environ["TRITON_INTERPRET"] = "1"

import torch
from adrbench.kernels import worker
from adrbench.kernels.atomics import launch as atomics
from adrbench.kernels.dot_scaled import launch as dot_scaled
from adrbench.kernels.store import launch as store

good_store, good_load, good_dot = store.store, store.load, dot_scaled.dot_scaled
good_sum, good_head_scale = atomics.scaled_sum, atomics.head_scale


def truncate(cache, key, value, slots, **scales):
    """Codes rounded towards zero, as vLLM 0.20 stored them."""
    plane = cache.layout.scheme.key
    if plane.values.name != "int8":
        return good_store(cache, key, value, slots, **scales)
    encode = type(plane.values).encode
    try:
        type(plane.values).encode = lambda self, x: x.clamp(-127, 127).trunc().to(torch.int8)
        from adrbench.kernels.store import reference

        reference.store(cache, key, value, slots, **scales)
    finally:
        type(plane.values).encode = encode


def double_scale(cache, key, value, slots, **scales):
    good_store(cache, key, value, slots, **scales)
    if cache.key_scale is not None:
        cache.key_scale.mul_(1.001)


def spill_over(cache, key, value, slots, **scales):
    """Writes the skipped token too."""
    good_store(cache, key, value, slots.abs(), **scales)


def unscaled_load(cache, slots, dtype=torch.float32, **scales):
    key, value = good_load(cache, slots, dtype, **scales)
    return key, value * 1.0001


FAULTS = {
    "truncate": ("store", store, "store", truncate),
    "scale": ("store", store, "store", double_scale),
    "skip": ("store", store, "store", spill_over),
    "load": ("store", store, "load", unscaled_load),
    "dot": ("dot_scaled", dot_scaled, "dot_scaled", lambda a, b, sa, sb: good_dot(a, b, sa, sb * 1.001)),
    "sum": ("atomics", atomics, "scaled_sum", lambda x, s, dtype: good_sum(x[:-1], s[:-1], dtype)),
    "max": ("atomics", atomics, "head_scale", lambda x, top: good_head_scale(x[:-1].contiguous(), top)),
}

op, module, name, fault = FAULTS[sys.argv[1]]
setattr(module, name, fault)
outcomes = {}
cases = [case for case in worker.all_cases() if case.op in (op, "primitive")]
with contextlib.redirect_stdout(io.StringIO()):
    worker.run_cases(cases, outcomes, "cpu", 0, True)
print(json.dumps([[o.op, o.format, o.case, o.status] for o in outcomes.values()]))
