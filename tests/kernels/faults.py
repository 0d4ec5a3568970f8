"""Run in the serving interpreter by test_kernels_job: put one fault after the other into a launcher, run
the cases of its operation and format, and print their statuses as JSON."""

import contextlib
import io
import json
import os

os.environ["TRITON_INTERPRET"] = "1"

import torch
from adrbench.kernels import worker
from adrbench.kernels.atomics import launch as atomics
from adrbench.kernels.decode import launch as decode
from adrbench.kernels.dot_scaled import launch as dot_scaled
from adrbench.kernels.store import check as store_check
from adrbench.kernels.store import launch as store
from adrbench.kernels.store import window_launch as window_kernels

good_store, good_load, good_dot = store.store, store.load, dot_scaled.dot_scaled
good_decode, good_windowed, good_left = decode.decode, decode.decode_windowed, window_kernels.store_windowed
good_sum, good_head_scale = atomics.scaled_sum, atomics.head_scale


def truncate(cache, key, value, slots, **scales):
    """Codes rounded towards zero, as vLLM 0.20 stored them."""
    plane = cache.layout.scheme.key
    if plane.values.name != "int8":
        return good_store(cache, key, value, slots, **scales)
    encode = type(plane.values).encode
    try:
        type(plane.values).encode = lambda self, x, limit=None: x.clamp(-127, 127).trunc().to(torch.int8)
        from adrbench.kernels.store import reference

        reference.store(cache, key, value, slots, **scales)
    finally:
        type(plane.values).encode = encode


def double_scale(cache, key, value, slots, **scales):
    good_store(cache, key, value, slots, **scales)
    if cache.key_scale is not None:
        cache.key_scale.mul_(1.001)


def spill_over(cache, key, value, slots, **scales):
    """Writes the skipped token too, where nothing else is written."""
    used = set(slots.tolist())
    free = next(slot for slot in range(cache.pages * cache.layout.page_size) if slot not in used)
    good_store(cache, key, value, slots.where(slots >= 0, free), **scales)


def unscaled_load(cache, slots, dtype=torch.float32, **scales):
    key, value = good_load(cache, slots, dtype, **scales)
    return key, value * 1.0001


def last_token_lost(q, cache, table, lengths, scale, **rest):
    """A tail mask that is off by one."""
    return good_decode(q, cache, table, (lengths - 1).clamp(min=0), scale, **rest)


def last_token_of_window_lost(q, cache, ring, rows, table, lengths, scale, **rest):
    return good_windowed(q, cache, ring, rows, table, (lengths - 1).clamp(min=0), scale, **rest)


def window_first(cache, ring, rows, key, value, table, starts, lengths, most):
    """The ring's new rows written before the old ones that they replace are encoded."""
    window_kernels.store_newest_kernel, newest = NoKernel(), window_kernels.store_newest_kernel
    try:
        newest[(table.shape[0], cache.layout.kv_heads, 4)](
            key, value, ring.key, ring.value, rows, starts, lengths, key.stride(0), value.stride(0),
            **{name: window_kernels.constants(cache.layout)[name] for name in window_kernels.NEWEST},
        )  # fmt: skip
        good_left(cache, ring, rows, key, value, table, starts, lengths, most)
    finally:
        window_kernels.store_newest_kernel = newest


class NoKernel:
    def __getitem__(self, grid):
        return lambda *_, **__: None


FAULTS = {
    "truncate": ("store", "int8", store, "store", truncate),
    "scale": ("store", "int8", store, "store", double_scale),
    "skip": ("store", "int8", store, "store", spill_over),
    "load": ("store", "fp8_e4m3fn", store, "load", unscaled_load),
    "dot": ("dot_scaled", "int8", dot_scaled, "dot_scaled", lambda a, b, sa, sb: good_dot(a, b, sa, sb * 1.001)),
    "sum": ("atomics", "int32", atomics, "scaled_sum", lambda x, s, dtype: good_sum(x[:-1], s[:-1], dtype)),
    "max": ("atomics", "fp32", atomics, "head_scale", lambda x, top: good_head_scale(x[:-1].contiguous(), top)),
    "decode": ("decode", "int4", decode, "decode", last_token_lost),
    "window": ("decode", "int4", decode, "decode_windowed", last_token_of_window_lost),
    "ring": ("store", "int4", store_check, "store_windowed", window_first),
}

cases = worker.all_cases()
found = {}
with contextlib.redirect_stdout(io.StringIO()):
    primitives: dict = {}
    worker.run_cases([case for case in cases if case.op == "primitive"], primitives, "cpu", 0, True)
    for fault, (op, format_, module, name, broken) in FAULTS.items():
        good = getattr(module, name)
        setattr(module, name, broken)
        outcomes = dict(primitives)
        worker.run_cases([c for c in cases if c.op == op and c.format == format_], outcomes, "cpu", 0, True)
        setattr(module, name, good)
        found[fault] = [[o.case, o.status] for o in outcomes.values() if o.op == op]
print(json.dumps(found))
