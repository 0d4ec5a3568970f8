"""Registers CUSTOM in the running vLLM: the backend class, the bytes of its pages, and its warm-up.

Three places of vLLM know a page's size before any backend is asked: the attention layer's
specification, the manager chosen by the specification's type, and, for hybrid models, the search for a
page that holds a recurrent state. Each gets the scheme's bytes here, in memory, in each process.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from adrbench.serve.workers import around

BACKEND = "adrbench.kernels.backend.attention.CustomBackend"
WINDOWED = "adrbench.kernels.backend.windowed.CustomWindowedBackend"


def install(scheme: str) -> None:
    """Register the backend and teach vLLM the page size of ``scheme``.

    Raises:
        KeyError: unknown scheme.
        ValueError: a scheme that the backend cannot serve.
        AttributeError: this vLLM has none of the places that are known; name and version tell which.
    """
    from adrbench.kernels.formats import scheme as scheme_of
    from adrbench.kernels.formats.served import backend_problem
    from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend

    found = scheme_of(scheme)
    if problem := backend_problem(found):
        raise ValueError(f"backend CUSTOM: {problem}")
    register_backend(AttentionBackendEnum.CUSTOM, WINDOWED if found.depends_on_length else BACKEND)
    _specify(scheme, found.depends_on_length)
    _manage(found.depends_on_length)
    _align_hybrid(scheme)
    _accompany_workers()


def _is_ours(layer: Any) -> bool:
    return bool(layer.attn_backend.get_name() == "CUSTOM")


def _specify(scheme: str, windowed: bool) -> None:
    """``Attention.get_kv_cache_spec`` gives a ``PageSpec`` for layers that CUSTOM serves."""
    from vllm.model_executor.layers.attention import Attention

    original = Attention.get_kv_cache_spec
    if getattr(original, "_adrbench", False):
        return

    @functools.wraps(original)
    def get_kv_cache_spec(self: Any, vllm_config: Any) -> Any:
        if not _is_ours(self):
            return original(self, vllm_config)
        from adrbench.kernels.backend.spec import PageSpec

        if windowed:
            from adrbench.kernels.backend.window_pages import refuse_settings

            refuse_settings(scheme, vllm_config)
        return PageSpec(
            block_size=vllm_config.cache_config.block_size, num_kv_heads=self.num_kv_heads,
            head_size=self.head_size, dtype=self.kv_cache_torch_dtype, scheme=scheme,
        )  # fmt: skip

    get_kv_cache_spec._adrbench = True  # type: ignore[attr-defined]
    Attention.get_kv_cache_spec = get_kv_cache_spec


def _manage(windowed: bool) -> None:
    """Pages of a ``PageSpec`` are managed like those of full attention, and windows are pages beside them."""
    from adrbench.kernels.backend.spec import PageSpec
    from vllm.v1.core.single_type_kv_cache_manager import FullAttentionManager, spec_manager_map

    spec_manager_map[PageSpec] = FullAttentionManager
    if windowed:
        from adrbench.kernels.backend.window_pages import WindowedManager, widen_block_tables

        spec_manager_map[PageSpec] = WindowedManager
        widen_block_tables()


@contextlib.contextmanager
def _full_attention_is(module: ModuleType, scheme: str) -> Iterator[None]:
    """While a hybrid model's page is sized, ``FullAttentionSpec`` of ``module`` is a ``PageSpec``."""
    from adrbench.kernels.backend.spec import PageSpec

    original = module.FullAttentionSpec
    module.FullAttentionSpec = functools.partial(PageSpec, scheme=scheme)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        module.FullAttentionSpec = original  # type: ignore[attr-defined]


def _wrapped(original: Callable[..., Any], module: ModuleType, scheme: str, applies: Callable[..., bool]) -> Any:
    @functools.wraps(original)
    def sized(*args: Any, **kwargs: Any) -> Any:
        if not applies(*args, **kwargs):
            return original(*args, **kwargs)
        with _full_attention_is(module, scheme):
            return original(*args, **kwargs)

    sized._adrbench = True  # type: ignore[attr-defined]
    return sized


def _align_hybrid(scheme: str) -> None:
    """Hybrid models: a page of attention must hold a recurrent state, so it has more tokens of fewer bytes."""
    import vllm.v1.kv_cache_interface as interface
    from vllm.platforms.interface import Platform

    if hasattr(Platform, "_align_hybrid_block_size"):  # 0.20.2: after the backend is known
        original = Platform._align_hybrid_block_size.__func__
        if not getattr(original, "_adrbench", False):
            ours = _wrapped(original, interface, scheme, lambda _cls, _config, backend: backend.get_name() == "CUSTOM")
            Platform._align_hybrid_block_size = classmethod(ours)
        return
    import vllm.model_executor.models.config as configs  # 0.18.1: from the configuration alone

    hybrid = configs.HybridAttentionMambaModelConfig
    original = hybrid.verify_and_update_config.__func__
    if not getattr(original, "_adrbench", False):
        ours = _wrapped(original, configs, scheme, lambda _cls, config: _chosen(config))
        hybrid.verify_and_update_config = classmethod(ours)


def _chosen(vllm_config: Any) -> bool:
    backend = vllm_config.attention_config.backend
    return getattr(backend, "name", None) == "CUSTOM"


def _accompany_workers() -> None:
    """Every worker process lets vLLM's small cache go that it was profiled with, and warms CUSTOM up when its own cache
    is made and its graphs are not captured yet.

    Raises:
        AttributeError: this vLLM's workers are not told to warm up.
    """
    from vllm.v1.worker.worker_base import WorkerBase

    if not hasattr(WorkerBase, "compile_or_warm_up_model"):
        raise AttributeError(
            "backend CUSTOM: vLLM's WorkerBase has no compile_or_warm_up_model, so nothing would be warmed up"
        )

    def warm_up(worker: Any) -> None:
        from adrbench.kernels.backend import warmup

        warmup.warm_up(worker)

    def release(worker: Any) -> None:
        from adrbench.kernels.backend import attention

        attention.release_caches(worker)

    around("determine_available_memory", BACKEND, after=release)
    around("compile_or_warm_up_model", BACKEND, before=warm_up)
