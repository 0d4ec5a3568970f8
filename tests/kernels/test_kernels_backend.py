"""vLLM's backend CUSTOM inside the Python sources of vLLM, in Triton's interpreter, per version.

Sources: the vLLM wheels in .envs/wheels (the set-up's) and in the folder ADRBENCH_WHEELS; versions
that are not there are skipped. Cannot prove: compiled parts of vLLM, graphs, speed.
"""

import ast

import pytest


@pytest.mark.parametrize(
    ("scheme", "ratio", "error"), [("int8_per_token_head", 1.93, 0.013), ("int4_per_token_head", 3.7, 0.2)]
)
def test_backend_serves_prompts_chunks_and_decodes_and_its_pool_grows(checks, scheme, ratio, error):
    found = checks(scheme)
    fresh, mixed, decoded = found["steps"]
    assert fresh < 1e-3  # rows of this step are not quantised
    assert mixed < error
    assert decoded < error
    assert found["pool"]["manager"] == "FullAttentionManager"
    assert found["pool"]["ratio"] > ratio
    assert found["layer"]["ours"][0] == "PageSpec"
    assert found["layer"]["other"] == ["FullAttentionSpec", 262144]
    assert found["page"] == 64
    assert_warmed_without_a_trace(found)
    hybrid = found["hybrid"]
    assert hybrid["bytes"] == hybrid["padded"] >= 3_207_168
    assert hybrid["tokens"] % 16 == 0


def assert_warmed_without_a_trace(found):
    changed, tokens, steps = found["warm-up"]
    assert changed == 0
    assert tokens >= 128  # prompts that are stored block by block
    assert steps >= 4


def test_warming_up_a_window_leaves_its_pages_alone(windowed):
    assert_warmed_without_a_trace(windowed)


@pytest.fixture(scope="module")
def windowed(checks):
    return checks(script="window_checks.py")


def test_a_window_lives_in_pages_of_its_request(windowed):
    served = windowed["served"]
    # Two prompts, a chunk beside a decode, decodes, a preempted request's pages reused, and that request again: every
    # row against the torch reference of whole requests, whose error here is the kernel's and fp16's alone.
    assert len(served["errors"]) == 8
    assert max(served["errors"]) < 4e-3
    assert served["window"] == 8
    assert served["held"] == {"a": 8 + 4, "b": 8 + 2}
    assert served["reused"] > 0
    assert served["dummy"] == 0
    assert served["free"] == 31  # all but vLLM's null block


def test_the_longest_request_and_its_window_fit_the_block_table_and_the_pool(windowed):
    used, columns = windowed["longest"]
    assert used == 8 + 7 <= columns
    pool = windowed["pool"]
    assert pool["page"] == 64 * 8 * (2 * (64 + 16))
    assert pool["window"] == 7
    assert pool["longest"] == (16384 // 64 + 7) * pool["page"]
    assert pool["other"] == 0
    most, room = pool["most"]
    assert most <= room


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("prefix", "--no-enable-prefix-caching"),
        ("manager", "--no-enable-prefix-caching"),
        ("speculative", "speculative decoding"),
        ("transfer", "transfer of a cache"),
        ("kivi2", "kivi2: no kernel"),
        ("static", "int8_per_head needs calibrated scales"),
        ("small", "use a larger page"),
    ],
)
def test_what_a_window_cannot_have_is_refused_by_name(windowed, case, words):
    assert windowed["refusals"]["none"] == "PageSpec"
    assert words in windowed["refusals"][case]


OVERRIDDEN = {
    "vllm/v1/attention/backends/triton_attn.py": {
        "TritonAttentionBackend": ["get_kv_cache_shape", "get_kv_cache_stride_order", "get_builder_cls"],
        "TritonAttentionImpl": ["__init__", "forward", "do_kv_cache_update", "fused_output_quant_supported"],
    },
    "vllm/v1/attention/backend.py": {
        "AttentionBackend": ["get_preferred_block_size", "get_supported_kernel_block_sizes", "supports_attn_type"],
        "AttentionMetadataBuilder": ["__init__", "build", "_init_reorder_batch_threshold"],
    },
    "vllm/v1/kv_cache_interface.py": {"FullAttentionSpec": ["merge", "__post_init__"]},
    "vllm/model_executor/layers/attention/attention.py": {"Attention": ["get_kv_cache_spec"]},
    "vllm/v1/core/single_type_kv_cache_manager.py": {
        "SingleTypeKVCacheManager": ["get_num_blocks_to_allocate", "allocate_new_blocks"],
    },
    "vllm/v1/worker/block_table.py": {"BlockTable": ["__init__"]},
    "vllm/v1/worker/worker_base.py": {
        "WorkerBase": ["compile_or_warm_up_model"],
        "WorkerWrapperBase": ["__getattr__"],
    },
    "vllm/v1/worker/gpu_worker.py": {"Worker": ["determine_available_memory"]},
    "vllm/v1/worker/utils.py": {"AttentionGroup": ["get_metadata_builder"]},
}
"""What we override, call or replace, by file and class."""

EXPECTED = {
    "get_kv_cache_shape": ["num_blocks", "block_size", "num_kv_heads", "head_size", "cache_dtype_str"],
    "get_kv_cache_stride_order": ["include_num_layers_dimension"],
    "forward": ["self", "layer", "query", "key", "value", "kv_cache", "attn_metadata", "output", "output_scale",
                "output_block_scale"],
    "do_kv_cache_update": ["self", "layer", "key", "value", "kv_cache", "slot_mapping"],
    "build": ["self", "common_prefix_len", "common_attn_metadata", "fast_build"],
    "get_preferred_block_size": ["cls", "default_block_size"],
    "get_kv_cache_spec": ["self", "vllm_config"],
    "merge": ["cls", "specs"],
    "compile_or_warm_up_model": ["self"],
    "determine_available_memory": ["self"],
    "get_metadata_builder": ["self", "ubatch_id"],
}  # fmt: skip
"""Arguments that our versions of these assume."""


@pytest.mark.parametrize("file", OVERRIDDEN)
def test_everything_overridden_has_the_signature_that_we_assume(sources, file):
    tree = ast.parse((sources / file).read_text(encoding="utf-8"))
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    for name, methods in OVERRIDDEN[file].items():
        found = {node.name: node for node in classes[name].body if isinstance(node, ast.FunctionDef)}
        for method in methods:
            assert method in found, f"{name}.{method} is gone"
            arguments = [argument.arg for argument in found[method].args.args]
            assert arguments == EXPECTED.get(method, arguments), f"{name}.{method}"
