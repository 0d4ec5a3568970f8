# ruff: noqa: E402
"""Which variants the warm-up of CUSTOM launches, and which served steps need; prints JSON. No kernel is run.

``warmup_checks.py SCHEME TARGET`` (``sm_90``, ``gfx942``) with the folder of one vLLM version's sources on PYTHONPATH.
A launch is stopped where Triton would look its variant up: the key is that of Triton's own binder for the target.
"""

import gc
import importlib
import itertools
import json
import os
import sys
import types
import weakref
from unittest import mock

SCHEME, TARGET = sys.argv[1:]
os.environ |= {"ADRBENCH_PLUGIN": json.dumps({"mechanism": "L3", "backend": "CUSTOM", "scheme": SCHEME})}
for name in ("gguf", "gguf.constants", "gguf.quants", "diskcache"):
    sys.modules.setdefault(name, mock.MagicMock())  # imported by vLLM, used by nothing here

import torch
import triton
from adrbench.serve import plugin

plugin._observe = lambda: None  # the platform here is the CPU's
plugin.register()

import warmup_steps as served
from adrbench.kernels.backend import attention, prefill, warmup
from adrbench.kernels.decode import config as decode_config
from adrbench.kernels.decode import launch
from adrbench.kernels.decode.config import Target
from adrbench.kernels.gate.compile import target_of
from adrbench.kernels.store import kernel as store_kernel
from adrbench.kernels.store import load_kernel
from triton.compiler import make_backend
from triton.runtime import jit
from vllm import triton_utils
from vllm.v1.attention.ops import triton_unified_attention

# vLLM has placeholders for Triton on a host without an accelerator; its kernels and what they call are loaded again.
triton_utils.triton, triton_utils.tl = triton, triton.language
for name in sorted(name for name in sys.modules if name.startswith("vllm.v1.attention.ops.triton_")):
    if sys.modules[name] is not triton_unified_attention:
        importlib.reload(sys.modules[name])
importlib.reload(triton_unified_attention)

BACKEND = make_backend(target_of(TARGET))
KEYS, BINDERS = set(), {}


def launched(self, *args, grid, warmup, **kwargs):
    """In place of ``JITFunction.run``: the kernel's name and everything that its variant depends on."""
    if self not in BINDERS:
        BINDERS[self] = jit.create_function_from_signature(self.signature, self.params, BACKEND)
    _, specialization, options = BINDERS[self](*args, **kwargs)
    KEYS.add((self.fn.__name__, str(specialization), str(sorted(options.items()))))


COMPILED = []
jit.JITFunction.run = launched
jit.JITFunction._do_compile = lambda _self, key: COMPILED.append(key) or f"binary of {key}"
launch.current_target = lambda: Target("cuda" if TARGET.startswith("sm") else "hip", 132)


def attend_with(name):
    """Prompts by FlashAttention launch nothing of Triton; without it vLLM's Triton kernel is launched."""
    attention.attend_for = lambda _dim: (name, prefill._triton if name == "triton" else lambda *_args: None)


def late(attend, steps_of=warmup.steps_of, many=(served.REQUESTS, served.TOKENS, served.REACH), count=150):
    """(launches of the warm-up's variants by kernel, names of variants that served steps need and it lacks)."""
    attend_with(attend)
    KEYS.clear()
    worker, layer, builder = served.worker_of(SCHEME, "cpu", many=many)
    with mock.patch.object(warmup, "steps_of", steps_of):
        warmup.warm_up(worker)
    warmed, (cache,) = set(KEYS), layer.kv_cache
    assert int(cache.sum()) == 0
    KEYS.clear()
    for seed, steps in zip(range(count), served.mixes(1, many), strict=False):
        served.serve(steps, layer, builder, seed)
    names = [name for name, *_ in warmed]
    return {
        "warmed": {name: names.count(name) for name in sorted(set(names))},
        "late": sorted(name for name, *_ in KEYS - warmed),
        "unused": sorted(name for name, *_ in warmed - KEYS),
        "steps": len(steps_of(layer.impl.cache_of(cache).layout, builder.reach, *many[:2])),
    }


def only_decodes(*args):
    return [step for step in STEPS_OF(*args) if not step.prompts]


def only_prompts(*args):
    return [step for step in STEPS_OF(*args) if step.prompts]


def any_splits():
    """The same with split counts of every kind: 1 to 40, another for almost each number of sequences."""
    with mock.patch.object(decode_config, "split_count", lambda programs, *_: 1 + programs // served.KV_HEADS * 7 % 40):
        return late("flash")


def places():
    """Steps in which the places of its own tokens, among all that its prompts attend to, are wrong."""
    _, _, builder = served.worker_of(SCHEME, "cpu")
    wrong = 0
    for steps in itertools.islice(served.mixes(2), 60):
        table = torch.zeros(len(steps), 200 + builder.window_pages, dtype=torch.int32)
        slots = torch.zeros(sum(now for _, now in steps), dtype=torch.int64)
        prompts = served.metadata(builder, steps, table, slots).prompts
        if prompts is None or prompts.context is None:
            continue
        expected, first = [], 0
        for before, now in steps[-(prompts.starts.shape[0] - 1) :]:
            expected += range(first + before, first + before + now)
            first += before + now
        wrong += prompts.context.fresh.tolist() != expected
    return wrong


def guessed():
    """Tokens that a prompt of 4 after 4 attends to, where drafts may still be refused: vLLM's bound on the host is 11.

    None for a vLLM that knows no such bound.
    """
    worker, _, builder = served.worker_of(SCHEME, "cpu")
    config = worker.vllm_config
    config.speculative_config = types.SimpleNamespace(num_speculative_tokens=3)
    config.scheduler_config.async_scheduling = True
    builder = type(builder)(builder.kv_cache_spec, ["layer"], config, torch.device("cpu"))
    common = warmup.common_metadata(warmup.Step(0, ((4, 4),)), 1 + builder.window_pages, torch.device("cpu"))
    common._seq_lens_cpu = None
    if (bound := getattr(common, "seq_lens_cpu_upper_bound", None)) is None:
        return None
    common.seq_lens_cpu_upper_bound = bound + 3
    context = builder.build(0, common).prompts.context
    return [context.slots.shape[0], context.longest, context.longest_before]


def started(attend):
    """(what happened in order, error) when vLLM's executor tells a worker to warm up."""
    from vllm.v1.worker.worker_base import WorkerWrapperBase

    attention.attend_for = lambda _dim: ("flash", attend)
    worker, _, _ = served.worker_of(SCHEME, "cpu")
    happened, wrapper = [], WorkerWrapperBase.__new__(WorkerWrapperBase)
    worker.compile_or_warm_up_model = lambda: happened.append("vLLM") or 7.0
    wrapper.worker = worker
    try:
        with mock.patch.object(plugin, "report", lambda **facts: happened.append(sorted(facts))):
            assert wrapper.compile_or_warm_up_model() == 7.0
    except RuntimeError as error:
        return [happened, str(error)]
    return [[fact for fact in happened if fact == "vLLM" or "warmup_steps" in fact], ""]


def profiled():
    """(what the worker answers, whether the small cache that vLLM profiles graphs with is gone afterwards)."""
    from vllm.v1.worker.worker_base import WorkerWrapperBase

    attend_with("flash")
    worker, layer, builder = served.worker_of(SCHEME, "cpu")
    wrapper, small = WorkerWrapperBase.__new__(WorkerWrapperBase), weakref.ref(layer.kv_cache[0])

    def profile():
        served.serve([(0, 1)], layer, builder)
        layer.kv_cache = []
        return 7

    wrapper.worker, worker.determine_available_memory = worker, profile
    answer = wrapper.determine_available_memory()
    gc.collect()
    return [answer, small() is None]


def broken(*_args):
    raise ValueError("no kernel image")


def watched():
    """What is counted and reported of variants that Triton compiles during the warm-up and after it."""
    reported = []
    store, load = store_kernel.store_blocks_kernel, load_kernel.load_kernel
    earlier, found = warmup.watch(), warmup.watch()
    with mock.patch.object(plugin, "report", lambda **facts: reported.append(facts)):
        binaries = [store._do_compile("a"), load._do_compile("b")]
        found.close()
        binaries.append(load._do_compile("c"))
        vars(triton_unified_attention)[OTHERS]._do_compile("other")
    return {"reported": reported, "warmed": found.warmed, "late": found.late, "compiled": COMPILED,
            "binaries": binaries, "earlier": earlier.warmed}  # fmt: skip


OTHERS = next(name for name in vars(triton_unified_attention) if name.startswith("kernel_unified_attention"))
STEPS_OF = warmup.steps_of
print("RESULT" + json.dumps({
    "served": late("flash"), "triton": late("triton"),
    "small": late("flash", many=(8, 96, 100)), "any splits": any_splits(),
    "without prompts": late("flash", only_decodes), "without decodes": late("flash", only_prompts),
    "places": places(), "guessed": guessed(), "profiled": profiled(),
    "started": started(lambda *_args: None), "failed": started(broken),
    "watched": watched(),
}))  # fmt: skip
