"""Launches once, before vLLM captures its graphs, every kernel variant that serving can reach.

Triton compiles a variant, and loads one that its cache on disk has, at its first launch: several hundred ms in which a
server answers nobody. What a variant depends on and which step reaches it: docs/kernels.md, "What is compiled when".

The steps go through the metadata builder and one layer of each kind, as served steps do: so torch's own kernels and
the attention of prompts are loaded too. They run on the layer's real cache, since alignment, strides and, on AMD, the
size of a buffer belong to a variant. Every slot is -1, so nothing is stored, and every page is vLLM's null block.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import torch
from adrbench.kernels.backend.attention import CustomBackend
from adrbench.kernels.decode import grouped, unpacked, window
from adrbench.kernels.decode import kernel as decode_kernel
from adrbench.kernels.decode.config import LaunchConfig
from adrbench.kernels.decode.launch import combined, config_of
from adrbench.kernels.formats.layout import PageLayout
from adrbench.kernels.store import kernel as store_kernel
from adrbench.kernels.store import load_kernel, window_kernel, window_load
from adrbench.kernels.store.launch import BLOCKS_FROM_TOKENS
from adrbench.serve import plugin
from triton.runtime.jit import JITFunction

PROMPT = 2048
"""Tokens of the longest prompt of a warm-up step: FlashAttention cuts long and short prompts differently."""

PAST = 4096
"""Tokens that the longest continued prompt has behind it; they are dequantised into 16 bit, so not as many as fit."""


@dataclass(frozen=True)
class Step:
    """Requests of one step: ``decodes`` of one token each, then ``prompts``, (tokens before, tokens now) of each."""

    decodes: int = 0
    prompts: tuple[tuple[int, int], ...] = ()

    @property
    def tokens(self) -> int:
        return self.decodes + sum(now for _, now in self.prompts)


def steps_of(layout: PageLayout, reach: int, requests: int, tokens: int) -> list[Step]:
    """Steps that launch every variant.

    Args:
        reach: the model's maximum length in tokens.
        requests, tokens: the most of one step.
    """
    # Decodes beside prompts run outside of graphs, in any number: the fewest sequences of each set of variants.
    fewest = {compiled(layout, config_of(layout, n, reach)): n for n in range(requests, 0, -1)}
    steps = [Step(n) for n in sorted(fewest.values())]
    long = min(PROMPT, reach, tokens)
    past = max(1, min(PAST, reach - long))
    wanted = [
        Step(0, ((0, long),)),
        Step(0, ((past, min(long, reach - past)),)),
        Step(0, ((min(PAST, reach - 2), 2),)),
        Step(1, ((0, 2), (1, 2))),
        Step(0, ((0, 2),) * 16),  # vLLM's Triton kernel is specialised on the number of prompts: 1, 16 and others
        _blocks(long),
    ]

    def possible(step: Step) -> bool:
        sizes_fit = step.tokens <= tokens and step.decodes + len(step.prompts) <= requests
        return sizes_fit and all(now > 1 and before >= 0 and before + now <= reach for before, now in step.prompts)

    return steps + [step for step in dict.fromkeys(wanted) if possible(step)]


def compiled(layout: PageLayout, config: LaunchConfig) -> LaunchConfig:
    """What the variants of a decode step depend on: ``config`` with what its split count is padded to."""
    return dataclasses.replace(config, splits=combined(layout, config.splits)[1])


def _blocks(longest: int) -> Step:
    """The fewest tokens that are stored block by block, in prompts of at most ``longest``."""
    whole = min(longest, BLOCKS_FROM_TOKENS)
    count, rest = divmod(BLOCKS_FROM_TOKENS, whole)
    return Step(int(rest == 1), ((0, whole),) * count + (((0, rest),) if rest > 1 else ()))


def common_metadata(step: Step, columns: int, device: torch.device) -> Any:
    """vLLM's metadata of a step whose requests all have ``columns`` pages, each of them vLLM's null block."""
    from vllm.v1.attention.backend import CommonAttentionMetadata

    rows = [(0, 1)] * step.decodes + list(step.prompts)
    now, lengths = (
        torch.tensor(column, dtype=torch.int32) for column in zip(*((n, b + n) for b, n in rows), strict=True)
    )
    starts = torch.zeros(len(rows) + 1, dtype=torch.int32)
    starts[1:] = now.cumsum(0)
    fields = {
        "query_start_loc": starts.to(device), "query_start_loc_cpu": starts, "seq_lens": lengths.to(device),
        "num_reqs": len(rows), "num_actual_tokens": step.tokens, "max_query_len": int(now.max()),
        "max_seq_len": int(lengths.max()),
        "block_table_tensor": torch.zeros(len(rows), columns, dtype=torch.int32, device=device),
        "slot_mapping": torch.full((step.tokens,), -1, dtype=torch.int64, device=device),
        "seq_lens_cpu_upper_bound": lengths, "_seq_lens_cpu": lengths,
    }  # fmt: skip
    known = {known.name for known in dataclasses.fields(CommonAttentionMetadata)}  # versions differ in the last two
    return CommonAttentionMetadata(**{name: value for name, value in fields.items() if name in known})


def run_step(step: Step, layer: Any, cache: torch.Tensor, builder: Any, dtype: torch.dtype) -> None:
    """One step of one layer: store and attention, as vLLM calls them."""
    impl = layer.impl
    longest = max(before + now for before, now in (*step.prompts, (0, 1)))
    common = common_metadata(step, -(-longest // builder.page) + builder.window_pages, cache.device)
    metadata = builder.build(0, common)
    heads, kv_heads = impl.num_heads, impl.num_kv_heads
    rows = torch.zeros(step.tokens, heads + 2 * kv_heads, impl.head_size, dtype=dtype, device=cache.device)
    query, key, value = rows.split([heads, kv_heads, kv_heads], dim=1)
    output = torch.empty(step.tokens, heads, impl.head_size, dtype=dtype, device=cache.device)
    if not layer.attn_backend.forward_includes_kv_cache_update:
        impl.do_kv_cache_update(layer, key, value, cache, common.slot_mapping)
    impl.forward(layer, query, key, value, cache, metadata, output)


@dataclass
class Compilations:
    """The variants of our kernels that Triton compiles or loads in this process, by name; ``late``: after ``close``."""

    warmed: Counter[str] = field(default_factory=Counter)
    late: list[str] = field(default_factory=list)
    closed: bool = False

    def seen(self, name: str) -> None:
        """Count one variant; one that comes late is reported, so that it is known from the evidence."""
        if self.closed:
            self.late.append(name)
            plugin.report(compiled_late=name)
        else:
            self.warmed[name] += 1

    def close(self) -> None:
        self.closed = True


def watch() -> Compilations:
    """Count from now on, in place of an earlier count.

    Costs nothing but at a compilation, and concerns our kernels only: Triton's global hook would have the arguments of
    everybody's kernels written as JSON, which not all can be. Triton without ``_do_compile`` is not watched.
    """
    found = Compilations()
    for kernel in kernels():
        original = getattr(kernel, "_do_compile", None)
        original = getattr(original, "original", original)
        if original is not None:
            kernel._do_compile = _counted(original, kernel.fn.__name__, found)
    return found


def kernels() -> list[Any]:
    """Every compiled function of our modules; none in the interpreter."""
    modules = (grouped, decode_kernel, unpacked, window, store_kernel, load_kernel, window_kernel, window_load)
    return [found for module in modules for found in vars(module).values() if isinstance(found, JITFunction)]


def _counted(original: Any, name: str, found: Compilations) -> Any:
    def compiled(*args: Any, **kwargs: Any) -> Any:
        found.seen(name)
        return original(*args, **kwargs)

    compiled.original = original  # type: ignore[attr-defined]
    return compiled


def _kinds(worker: Any) -> list[tuple[Any, torch.Tensor, Any]]:
    """(layer, its cache, its metadata builder) of one layer of each kind that CUSTOM serves in this process."""
    layers = worker.vllm_config.compilation_config.static_forward_context
    found: dict[Any, tuple[Any, torch.Tensor, Any]] = {}
    for group in (group for groups in worker.model_runner.attn_groups for group in groups):
        if not issubclass(group.backend, CustomBackend):
            continue
        for name in group.layer_names:
            layer = layers[name]
            # 0.18.1 keeps a list, one cache for each of its virtual engines.
            cache = layer.kv_cache[0] if isinstance(layer.kv_cache, list) else layer.kv_cache
            impl = layer.impl
            shape = (impl.num_heads, impl.num_kv_heads, impl.head_size, impl.scale, tuple(cache.shape), cache.stride())
            kind = (type(impl), *shape, cache.data_ptr() % 16, cache.untyped_storage().nbytes())
            found.setdefault(kind, (layer, cache, group.get_metadata_builder()))
    return list(found.values())


def warm_up(worker: Any) -> Compilations:
    """Warm up the layers of a worker whose cache has been made; nothing where CUSTOM serves none of them.

    Raises:
        RuntimeError: a step failed, with its cause: the server must not start.
    """
    kinds, config, count = _kinds(worker), worker.vllm_config, 0
    if not kinds:
        return Compilations()
    compilations = watch()
    scheduler, device = config.scheduler_config, kinds[0][1].device
    with torch.inference_mode():
        for layer, cache, builder in kinds:
            layout = layer.impl.cache_of(cache).layout
            steps = steps_of(layout, builder.reach, scheduler.max_num_seqs, scheduler.max_num_batched_tokens)
            for step in steps:
                try:
                    run_step(step, layer, cache, builder, config.model_config.dtype)
                except Exception as error:
                    raise RuntimeError(f"backend CUSTOM: the warm-up of {step} failed: {error}") from error
            count += len(steps)
    if device.type == "cuda":
        torch.cuda.synchronize(device)  # a launch that failed fails here, not in a request
        torch.cuda.empty_cache()
    compilations.close()
    plugin.report(warmup_steps=count, warmed=dict(sorted(compilations.warmed.items())))
    return compilations
