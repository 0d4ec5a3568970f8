"""A worker with one layer of CUSTOM, and steps as vLLM would serve them, for the checks of the warm-up."""

import random
import types

import torch
from adrbench.kernels.formats import scheme as scheme_of
from backend_steps import metadata

PAGE, HEADS, KV_HEADS, DIM = 64, 8, 2, 128
REQUESTS, TOKENS, REACH = 200, 8192, 32768
PAGES = 40


def worker_of(scheme, device, dtype=torch.bfloat16, many=(REQUESTS, TOKENS, REACH)):
    """(worker, layer, builder): what ``warm_up`` is given after vLLM has made the cache."""
    from adrbench.kernels.backend import attention, windowed
    from adrbench.kernels.backend.spec import PageSpec

    requests, tokens, reach = many
    found = windowed.CustomWindowedBackend if scheme_of(scheme).depends_on_length else attention.CustomBackend
    impl = found.get_impl_cls()(HEADS, DIM, DIM**-0.5, KV_HEADS, None, None, "auto")
    spec = PageSpec(block_size=PAGE, num_kv_heads=KV_HEADS, head_size=DIM, dtype=dtype, scheme=scheme)
    shape = found.get_kv_cache_shape(PAGES, PAGE, KV_HEADS, DIM)
    cache = torch.zeros(shape, dtype=torch.uint8, device=device)
    layer = types.SimpleNamespace(impl=impl, attn_backend=found, kv_cache=[cache])
    config = types.SimpleNamespace(
        model_config=types.SimpleNamespace(max_model_len=reach, dtype=dtype), speculative_config=None,
        scheduler_config=types.SimpleNamespace(max_num_seqs=requests, max_num_batched_tokens=tokens),
        parallel_config=types.SimpleNamespace(decode_context_parallel_size=1),
        compilation_config=types.SimpleNamespace(static_forward_context={"layer": layer}),
    )  # fmt: skip
    builder = found.get_builder_cls()(spec, ["layer"], config, torch.device(device))
    group = types.SimpleNamespace(backend=found, layer_names=["layer"], get_metadata_builder=lambda: builder)
    runner = types.SimpleNamespace(attn_groups=[[group]])
    return types.SimpleNamespace(vllm_config=config, model_runner=runner), layer, builder


def bytes_changed(scheme, attend):
    """Bytes of a cache that the warm-up changes when its kernels run, in fp16 on a CPU; its largest step, its steps."""
    from unittest import mock

    from adrbench.kernels.backend import attention, warmup

    attention.attend_for = lambda _dim: ("torch", attend)
    worker, layer, builder = worker_of(scheme, "cpu", torch.float16, many := (5, 140, 200))
    cache = layer.kv_cache[0]
    cache.fill_(17)
    before = cache.clone()
    with mock.patch.object(warmup.plugin, "report"):
        warmup.warm_up(worker)
    steps = warmup.steps_of(layer.impl.cache_of(cache).layout, builder.reach, *many[:2])
    return [int((cache != before).sum()), max(step.tokens for step in steps), len(steps)]


def mixes(seed, many=(REQUESTS, TOKENS, REACH)):
    """Endless random steps, (tokens before, tokens now) of each request, single tokens first."""
    chance = random.Random(seed)
    requests, tokens, reach = many
    while True:
        decodes = chance.choice([0, 0, 1, 2, 3, chance.randint(1, requests - 4), requests])
        steps = [(chance.randint(0, min(reach, 3000) - 1), 1) for _ in range(decodes)]
        for _ in range(chance.choice([0, 1, 1, 2, 3])):
            now = chance.choice([2, 15, 16, 17, 128, 129, chance.randint(2, 5000)])
            before = chance.choice([0, 0, 1, 16, 63, 64, chance.randint(0, 6000)])
            room = tokens - sum(n for _, n in steps)
            if len(steps) < requests and 1 < now <= room and before + now <= reach:
                steps.append((before, now))
        if steps:
            yield steps


def serve(steps, layer, builder, seed=0):
    """One step of the layer, its tensors as vLLM has them: parts of larger ones, queries fused with keys or not."""
    chance = random.Random(seed)
    impl, cache = layer.impl, layer.kv_cache[0]
    device, dtype = cache.device, torch.bfloat16
    tokens = sum(now for _, now in steps)
    columns = max(before + now for before, now in steps) // PAGE + 1 + builder.window_pages + chance.randint(0, 9)
    table = torch.zeros(REQUESTS + 1, columns, dtype=torch.int32, device=device)[: len(steps)]
    slots = torch.full((TOKENS + REQUESTS,), -1, dtype=torch.int64, device=device)[:tokens]
    common = metadata(builder, steps, table, slots, device)
    if chance.random() < 0.5:
        rows = torch.zeros(tokens, HEADS + 2 * KV_HEADS, DIM, dtype=dtype, device=device)
        query, key, value = rows.split([HEADS, KV_HEADS, KV_HEADS], dim=1)
    else:
        query, key, value = (
            torch.zeros(tokens, n, DIM, dtype=dtype, device=device) for n in (HEADS, KV_HEADS, KV_HEADS)
        )
    if not layer.attn_backend.forward_includes_kv_cache_update:
        impl.do_kv_cache_update(layer, key, value, cache, slots)
    impl.forward(
        layer, query, key, value, cache, common, torch.zeros_like(query, memory_format=torch.contiguous_format)
    )
