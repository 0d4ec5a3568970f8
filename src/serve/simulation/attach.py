"""Put a simulation between vLLM's attention layers and the backend that it resolved."""

from __future__ import annotations

import os
from functools import wraps
from typing import Any

import torch
from adrbench.serve.simulation.caches import MirrorCache, plain_cache, plane_dimension
from adrbench.serve.simulation.engine import Layer, Simulation
from adrbench.serve.simulation.record import Recorder
from adrbench.serve.workers import around

# Their prefill reads the step's own keys and values from the arguments, not from the cache.
ARGUMENT_READERS = ("ROCM_ATTN", "ROCM_AITER_FA")
COMPILE_VARIABLE = "ADRBENCH_KV_COMPILE"
ONE_LAUNCH_VARIABLE = "ADRBENCH_KV_ONE_LAUNCH"
NO_CACHE_TYPES = ("encoder", "encoder_only")


class Attachment:
    """What is active in this process; the patched methods look here, so that a test can exchange it."""

    def __init__(self) -> None:
        self.simulation: Simulation | None = None
        self.recorder: Recorder | None = None
        self.patched: set[type] = set()
        self.wrapped: str | None = None


ACTIVE = Attachment()


def activate(settings: dict[str, Any], folder: str | None) -> None:
    """Make the plugin's settings active: ``kv_simulation`` and ``kv_record``, as far as given."""
    if wanted := settings.get("kv_simulation"):
        compiled = torch.cuda.is_available() and os.environ.get(COMPILE_VARIABLE, "1") != "0"
        ACTIVE.simulation = Simulation(wanted, folder, compiled)
        # An engine tries the kernel before it serves; this is for comparing it with the compiled readers.
        if os.environ.get(ONE_LAUNCH_VARIABLE, "1") == "0":
            ACTIVE.simulation.one_launch = None
        ACTIVE.simulation.counts.facts["backend"] = ACTIVE.wrapped
        if torch.cuda.is_available():
            around("determine_available_memory", "kv_simulation", after=_release)
    if wanted := settings.get("kv_record"):
        ACTIVE.recorder = Recorder(wanted["file"], wanted["tokens"])


def _release(_worker: Any) -> None:
    """Let the small cache go that vLLM measures the memory of graphs with: it sizes the real one as if it were gone."""
    if ACTIVE.simulation is not None:
        ACTIVE.simulation.release()
        torch.cuda.empty_cache()


def attach(backend: Any) -> None:
    """Patch a resolved backend class: its implementation and its metadata builder.

    Raises:
        ValueError: a backend whose cache this does not understand.
    """
    name = backend.get_name()
    if backend in ACTIVE.patched:
        return
    if backend.is_mla():
        raise ValueError(f"kv_simulation: {name} stores latent vectors (MLA), not keys and values")
    simulation = ACTIVE.simulation
    if simulation is not None and backend.__module__.startswith("adrbench.kernels"):
        raise ValueError(f"kv_simulation: {name} already stores a scheme of its own; it would be quantised twice")
    if simulation is not None and simulation.windowed:
        if name in ARGUMENT_READERS:
            raise ValueError(f"kv_simulation: {name} reads a prompt's own tokens past the cache; take TRITON_ATTN")
        if name != "CPU_ATTN" and plane_dimension(backend) is None:
            raise ValueError(
                f"kv_simulation: the layout of {name}'s cache is unknown; {simulation.scheme.name} needs it"
            )
    ACTIVE.patched.add(backend)
    ACTIVE.wrapped = f"{backend.__module__}.{backend.__qualname__}"
    if simulation is not None:
        simulation.counts.facts["backend"] = ACTIVE.wrapped
    _patch_builder(backend.get_builder_cls())
    _patch_implementation(backend)


def _patch_builder(builder: Any) -> None:
    """Layers are prepared before anything is captured; each step looks whether a report is due."""
    made, build = builder.__init__, builder.build

    @wraps(made)
    def prepare(self: Any, spec: Any, layer_names: list[str], vllm_config: Any, *args: Any, **kwargs: Any) -> None:
        made(self, spec, layer_names, vllm_config, *args, **kwargs)
        prepare_layers(layer_names, vllm_config, getattr(self, "device", torch.device("cpu")))

    @wraps(build)
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        if ACTIVE.simulation is not None:
            ACTIVE.simulation.counts.step()
        return build(self, *args, **kwargs)

    builder.__init__, builder.build = prepare, step


def prepare_layers(layer_names: list[str], vllm_config: Any, device: torch.device) -> None:
    """Make the state of layers, and compile what their steps call: before any step runs or is captured.

    Raises:
        ValueError: the engine's settings or the layers do not allow the simulation.
    """
    _check(vllm_config)
    for layer_name in layer_names:
        layer = vllm_config.compilation_config.static_forward_context[layer_name]
        state = _state(layer, device)
        if state is not None and ACTIVE.simulation is not None and ACTIVE.simulation.compiled and state.counted:
            shape = layer.num_kv_heads, layer.head_size, vllm_config.cache_config.block_size
            ACTIVE.simulation.warm_up(state, *shape, vllm_config.model_config.dtype)


def _check(vllm_config: Any) -> None:
    """Refuse settings of the engine under which a simulation would not be what it says."""
    simulation = ACTIVE.simulation
    if simulation is None:
        return
    cache, parallel, name = vllm_config.cache_config, vllm_config.parallel_config, simulation.scheme.name
    problems = []
    if cache.cache_dtype not in ("auto", "float16", "bfloat16"):
        problems.append(f"--kv-cache-dtype {cache.cache_dtype} would quantise twice; leave it `auto`")
    if getattr(parallel, "decode_context_parallel_size", 1) > 1:
        problems.append("decode context parallelism reads tokens past the cache")
    if simulation.scheme.depends_on_length and cache.enable_prefix_caching:
        problems.append(f"{name} keeps the newest tokens in 16 bit: a cached prefix would be read in two ways; "
                        "add --no-enable-prefix-caching")  # fmt: skip
    if simulation.scheme.depends_on_length and vllm_config.speculative_config is not None:
        problems.append(f"{name} cannot take back tokens that speculative decoding rejects")
    if problems:
        raise ValueError("kv_simulation: " + "; ".join(problems))


def _state(layer: Any, device: torch.device) -> Layer | None:
    """A layer's state in the active simulation; None where its cache is another layer's or it has none."""
    if ACTIVE.recorder is not None:
        ACTIVE.recorder.expect(_number(layer))
    if ACTIVE.simulation is None:
        return None
    known = ACTIVE.simulation.layers.get(layer.layer_name)
    if known is not None:
        return known
    return ACTIVE.simulation.layer(layer.layer_name, _number(layer), layer.num_kv_heads, layer.head_size, device)


def _number(layer: Any) -> int:
    """The layer's number: the first whole number in its dotted name, ``model.layers.3.self_attn.attn``."""
    return int(next(part for part in layer.layer_name.split(".") if part.isdigit()))


def _has_cache(impl: Any) -> bool:
    return getattr(impl, "attn_type", "decoder") not in NO_CACHE_TYPES and not getattr(
        impl, "kv_sharing_target_layer_name", None
    )


def _patch_implementation(backend: Any) -> None:
    """Replace rows on their way to the cache, and windows before attention reads it."""
    impl, name = backend.get_impl_cls(), backend.get_name()
    writes_in_forward = getattr(backend, "forward_includes_kv_cache_update", True)
    plane_dim = None if name == "CPU_ATTN" else plane_dimension(backend)
    forward = impl.forward

    @wraps(forward)
    def attend(
        self: Any,
        layer: Any,
        query: Any,
        key: Any,
        value: Any,
        kv_cache: Any,
        attn_metadata: Any,
        *args: Any,
        **kw: Any,
    ) -> Any:
        if attn_metadata is not None and key is not None and _has_cache(self):
            if writes_in_forward:
                _written(layer, key, value, attn_metadata.slot_mapping)
            simulation = ACTIVE.simulation
            if simulation is not None and simulation.windowed:
                key, value = _windows(self, layer, key, value, kv_cache, attn_metadata, plane_dim)
            elif simulation is not None and (writes_in_forward or name in ARGUMENT_READERS):
                key, value = simulation.rows(_known(layer, key), key, value)
        return forward(self, layer, query, key, value, kv_cache, attn_metadata, *args, **kw)

    impl.forward = attend
    if hasattr(impl, "fused_rope_kvcache_supported"):
        impl.fused_rope_kvcache_supported = lambda _self: False
    if writes_in_forward:
        return
    update = impl.do_kv_cache_update

    @wraps(update)
    def write(self: Any, layer: Any, key: Any, value: Any, kv_cache: Any, slot_mapping: Any) -> Any:
        if _has_cache(self):
            _written(layer, key, value, slot_mapping)
            if ACTIVE.simulation is not None and not ACTIVE.simulation.windowed:
                key, value = ACTIVE.simulation.rows(_known(layer, key), key, value)
        return update(self, layer, key, value, kv_cache, slot_mapping)

    impl.do_kv_cache_update = write
    impl._adrbench_update = update


def _known(layer: Any, key: torch.Tensor) -> Layer:
    state = _state(layer, key.device)
    assert state is not None
    return state


def _written(layer: Any, key: torch.Tensor, value: torch.Tensor, slots: torch.Tensor) -> None:
    """Rows are on their way to the cache: record them, count them (windows count what they replace, too)."""
    if ACTIVE.recorder is not None:
        ACTIVE.recorder.take(_number(layer), key, value, slots)
    if ACTIVE.simulation is not None and not ACTIVE.simulation.windowed:
        ACTIVE.simulation.count(_known(layer, key), slots)


def _windows(
    impl: Any, layer: Any, key: Any, value: Any, kv_cache: Any, metadata: Any, plane_dim: int | None
) -> tuple[Any, Any]:
    """Replace what leaves a window in this step; keys and values for a backend that is yet to write them."""
    simulation, state = ACTIVE.simulation, _known(layer, key)
    assert simulation is not None
    slots = metadata.slot_mapping
    count = slots.shape[0]
    capturing = key.is_cuda and torch.cuda.is_current_stream_capturing()
    if plane_dim is not None:
        if state.cache is None or not state.cache.shows(kv_cache, plane_dim):
            state.cache = plain_cache(kv_cache, plane_dim)
        simulation.count(state, slots, simulation.replace(state, metadata, state.cache.block_size, capturing))
        return key, value
    block_size = _cpu_block_size(kv_cache)
    if state.cache is None:
        blocks = kv_cache.shape[0] if kv_cache.dim() == 4 else kv_cache.shape[1]
        state.cache = MirrorCache(blocks, block_size, key.shape[1], key.shape[2], key.dtype)
    state.cache.begin(key[:count], value[:count], slots)
    simulation.count(state, slots, simulation.replace(state, metadata, block_size, capturing))
    if hasattr(impl, "_adrbench_update"):
        state.cache.end(write=lambda k, v, s: impl._adrbench_update(layer, k, v, kv_cache, s))
        return key, value
    state.cache.end(write=lambda k, v, s: _write_0181(k, v, kv_cache, s, metadata), excluded=slots)
    rows: tuple[torch.Tensor, torch.Tensor] = state.cache.rows(slots)
    return rows


def _cpu_block_size(kv_cache: torch.Tensor) -> int:
    """Tokens per block of CPU_ATTN's cache: ``[blocks, heads, block, 2 * dim]``, in 0.18.1 ``[2, blocks, ...]``."""
    return int(kv_cache.shape[2] if kv_cache.dim() == 4 else kv_cache.shape[3])


def _write_0181(
    key: torch.Tensor, value: torch.Tensor, kv_cache: torch.Tensor, slots: torch.Tensor, metadata: Any
) -> None:
    """CPU_ATTN of vLLM 0.18.1 writes inside ``forward``: its writer, for tokens of earlier steps."""
    from vllm import _custom_ops as ops

    ops.cpu_attn_reshape_and_cache(key, value, *kv_cache.unbind(0), slots, metadata.isa)
