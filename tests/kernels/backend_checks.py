# ruff: noqa: E402
"""Runs the CUSTOM backend inside the Python sources of one vLLM version, in Triton's interpreter; prints JSON.

``backend_checks.py SCHEME`` with the sources' folder on PYTHONPATH. vLLM's compiled parts are not
needed: its configuration, registry, specifications and metadata are Python.
"""

import json
import os
import sys
import types
from unittest import mock

SCHEME = sys.argv[1]
os.environ |= {
    "TRITON_INTERPRET": "1",
    "ADRBENCH_PLUGIN": json.dumps({"mechanism": "L3", "backend": "CUSTOM", "scheme": SCHEME}),
}
for name in ("gguf", "gguf.constants", "gguf.quants", "diskcache"):
    sys.modules.setdefault(name, mock.MagicMock())  # imported by vLLM, used by nothing here

import torch
from adrbench.kernels.decode.reference import attend
from adrbench.kernels.formats import scheme
from adrbench.serve import plugin
from backend_steps import attend_rows, metadata
from warmup_steps import bytes_changed

PAGE, HEADS, KV_HEADS, DIM = 32, 6, 2, 64


def served_steps():
    """Errors of the two steps of a batch: prompts, then a decode beside a prompt that continues."""
    from adrbench.kernels.backend import attention
    from adrbench.kernels.backend.metadata import CustomMetadataBuilder
    from adrbench.kernels.backend.spec import PageSpec

    attention.attend_for = lambda _dim: ("torch", attend_rows)
    torch.manual_seed(0)
    impl = attention.CustomImpl(HEADS, DIM, DIM**-0.5, KV_HEADS, None, None, "auto")
    shape = attention.CustomBackend.get_kv_cache_shape(12, PAGE, KV_HEADS, DIM)
    spec = PageSpec(block_size=PAGE, num_kv_heads=KV_HEADS, head_size=DIM, dtype=torch.float16, scheme=SCHEME)
    assert shape == (12, spec.page_size_bytes), (shape, spec)
    cache = torch.full(shape, 0xA5, dtype=torch.uint8)
    config = types.SimpleNamespace(
        model_config=types.SimpleNamespace(max_model_len=256), speculative_config=None,
        parallel_config=types.SimpleNamespace(decode_context_parallel_size=1),
    )  # fmt: skip
    builder = CustomMetadataBuilder(spec, ["layer"], config, torch.device("cpu"))
    table = torch.tensor([[3, 7, 1, 0], [5, 2, 9, 0]], dtype=torch.int32)
    rows = [torch.randn(3, 90, HEADS, DIM).half() for _ in range(2)]  # q, k, v of every position
    errors = []
    for steps in ([(0, 40), (0, 33)], [(40, 1), (33, 30)], [(41, 1), (63, 1)]):
        places = [(i, before + j) for i, (before, now) in enumerate(steps) for j in range(now)]
        slots = torch.tensor([int(table[i, t // PAGE]) * PAGE + t % PAGE for i, t in places], dtype=torch.int64)
        # Keys and values lie among other rows, as a fused projection leaves them; three rows are padding.
        both = torch.zeros(len(places) + 3, 2 * KV_HEADS + 1, DIM, dtype=torch.float16)
        query = torch.zeros(len(places) + 3, HEADS + 1, DIM, dtype=torch.float16)
        for n, (i, t) in enumerate(places):
            query[n, :HEADS] = rows[i][0, t]
            both[n, : 2 * KV_HEADS] = torch.cat((rows[i][1, t, :KV_HEADS], rows[i][2, t, :KV_HEADS]))
        key, value = both[:, :KV_HEADS], both[:, KV_HEADS : 2 * KV_HEADS]
        output = torch.full((len(places) + 3, HEADS, DIM), float("nan"), dtype=torch.float16)
        impl.do_kv_cache_update(None, key, value, cache, slots)
        step = metadata(builder, steps, table, slots)
        impl.forward(None, query[:, :HEADS], key, value, cache, step, output)
        worst = 0.0
        for n, (i, t) in enumerate(places):
            expected = attend(rows[i][0, t].float(), rows[i][1, : t + 1, :KV_HEADS], rows[i][2, : t + 1, :KV_HEADS],
                              DIM**-0.5)  # fmt: skip
            worst = max(worst, float((output[n].float() - expected).norm() / expected.norm()))
        errors.append(worst)
    return errors


def pool():
    """Blocks that vLLM's own planner gives two layers in 64 MiB, and the manager it picks; auto for comparison."""
    from adrbench.kernels.backend.spec import PageSpec
    from vllm.v1.core.single_type_kv_cache_manager import spec_manager_map
    from vllm.v1.kv_cache_interface import FullAttentionSpec

    base = {"block_size": 64, "num_kv_heads": 8, "head_size": 128, "dtype": torch.bfloat16}
    ours, full = PageSpec(**base, scheme=SCHEME), FullAttentionSpec(**base)
    merged = PageSpec.merge([ours, ours])
    assert merged == ours
    assert ours.copy_with_new_block_size(128).page_size_bytes == 2 * ours.page_size_bytes
    return {"ratio": full.page_size_bytes / ours.page_size_bytes, "manager": spec_manager_map[type(ours)].__name__}


def layer_spec():
    """Type and bytes that the patched layer reports, ours and another backend's."""
    from adrbench.kernels.backend.attention import CustomBackend
    from vllm.model_executor.layers.attention import Attention
    from vllm.v1.attention.backends.triton_attn import TritonAttentionBackend

    found = {}
    config = types.SimpleNamespace(cache_config=types.SimpleNamespace(block_size=64))
    for name, backend in (("ours", CustomBackend), ("other", TritonAttentionBackend)):
        layer = types.SimpleNamespace(
            attn_backend=backend, num_kv_heads=8, head_size=128, head_size_v=128, kv_cache_torch_dtype=torch.bfloat16,
            kv_cache_dtype="auto", sliding_window=None, attn_type="decoder",
        )  # fmt: skip
        spec = Attention.get_kv_cache_spec(layer, config)
        found[name] = [type(spec).__name__, spec.page_size_bytes]
    return found


def hybrid():
    """(tokens of a page, bytes of a page, padded bytes of a recurrent state) of a Qwen3.5-27B-like model."""
    from unittest.mock import patch

    import vllm.v1.kv_cache_interface as interface
    from adrbench.kernels.backend.attention import CustomBackend
    from vllm.model_executor.models import ModelRegistry

    state = 3_207_168  # bytes of one recurrent state

    class Model:
        @staticmethod
        def get_mamba_state_shape_from_config(_config):
            return ((state // 2,),)

        @staticmethod
        def get_mamba_state_dtype_from_config(_config):
            return (torch.bfloat16,)

    cache = types.SimpleNamespace(
        cache_dtype="auto", block_size=64, mamba_block_size=None, user_specified_mamba_block_size=False,
        mamba_cache_mode="none", mamba_page_size_padded=None,
    )  # fmt: skip
    model = types.SimpleNamespace(
        dtype=torch.bfloat16, use_mla=False, get_num_kv_heads=lambda _p: 4, get_head_size=lambda: 256,
        architecture="x", max_model_len=65536,
    )  # fmt: skip
    from vllm.v1.attention.backends.registry import AttentionBackendEnum

    config = types.SimpleNamespace(
        cache_config=cache, model_config=model, parallel_config=None,
        attention_config=types.SimpleNamespace(backend=AttentionBackendEnum.CUSTOM),
    )  # fmt: skip
    with patch.object(ModelRegistry, "resolve_model_cls", lambda *_a, **_k: (Model, None)):
        from vllm.platforms.interface import Platform

        if hasattr(Platform, "_align_hybrid_block_size"):
            with patch("vllm.config.vllm.set_current_vllm_config", mock.MagicMock()):
                Platform._align_hybrid_block_size(config, CustomBackend)
        else:
            import vllm.model_executor.models.config as configs

            with patch.object(configs.MambaModelConfig, "verify_and_update_config", lambda _c: None):
                configs.HybridAttentionMambaModelConfig.verify_and_update_config(config)
    assert interface.FullAttentionSpec.__name__ == "FullAttentionSpec"
    row = scheme(SCHEME).bytes_per_token(4, 256)
    return {"tokens": cache.block_size, "bytes": cache.block_size * row, "padded": cache.mamba_page_size_padded}


plugin.register = mock.Mock(wraps=plugin.register)
plugin._observe = lambda: None  # the platform here is the CPU's
plugin.register()
from adrbench.kernels.backend.attention import CustomBackend
from vllm.v1.attention.backends.registry import AttentionBackendEnum

assert AttentionBackendEnum.CUSTOM.get_class() is CustomBackend
print("RESULT" + json.dumps({"steps": served_steps(), "pool": pool(), "layer": layer_spec(), "hybrid": hybrid(),
                             "page": CustomBackend.get_preferred_block_size(16),
                             "warm-up": bytes_changed(SCHEME, attend_rows)}))  # fmt: skip
