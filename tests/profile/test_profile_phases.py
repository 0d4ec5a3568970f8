"""Phase split and self time on hand-made traces whose answer is known by construction."""

import json

import pytest
from adrbench.profile.op_classes import CLASSES, HOST, OTHER, PATTERNS, class_times, op_class
from adrbench.profile.phases import (
    between_steps_s,
    phase_table,
    read_phases,
    split,
)
from adrbench.profile.step import Step, parse_step
from adrbench.profile.trace import TraceError


def span(name, start, duration, category="cpu_op", pid="1", tid="1"):
    return (category.encode(), name.encode(), pid.encode(), tid.encode(), str(start).encode(), str(duration).encode())


def step(context, tokens, generation, start, duration, **thread):
    name = f"execute_context_{context}({tokens})_generation_{generation}({generation})"
    return span(name, start, duration, "user_annotation", **thread)


PREFILL = [step(1, 100, 0, 0, 1000), span("aten::linear", 10, 700), span("aten::mm", 20, 600)]
DECODE = [step(0, 0, 4, 2000, 500), span("_C::cpu_attention_with_kv_cache", 2010, 300)]
MIXED = [step(1, 50, 3, 3000, 1500), span("aten::argmax", 3100, 400)]


def test_each_phase_gets_its_own_time_steps_and_tokens():
    table = phase_table(split([PREFILL + DECODE + MIXED]))
    assert {p: (row["seconds"], row["steps"], row["tokens"]) for p, row in table.items()} == {
        "prefill": (pytest.approx(1000e-6), 1, 100),
        "decode": (pytest.approx(500e-6), 1, 4),
        "mixed": (pytest.approx(1500e-6), 1, 53),
    }
    assert [table[p]["share"] for p in ("prefill", "decode", "mixed")] == pytest.approx([1 / 3, 1 / 6, 1 / 2])


def test_self_time_excludes_children_and_the_rest_is_host():
    table = phase_table(split([PREFILL + DECODE + MIXED]))
    assert table["prefill"]["classes"] == pytest.approx({"gemm": 700e-6, "host": 300e-6})
    assert table["decode"]["classes"] == pytest.approx({"attention": 300e-6, "host": 200e-6})
    assert table["mixed"]["classes"] == pytest.approx({"sampling": 400e-6, "host": 1100e-6})


def test_classes_add_up_to_the_phase():
    for row in phase_table(split([PREFILL + DECODE + MIXED])).values():
        assert sum(row["classes"].values()) == pytest.approx(row["seconds"])


def test_operations_of_a_step_are_counted_without_the_step_itself():
    noise = span("elsewhere", 25, 1, tid="9")
    result = split([[*PREFILL, noise, *DECODE, span("aten::mm", 9000, 1)]])
    assert result.operations == {"prefill": 2, "decode": 1, "mixed": 0}


def test_batches_may_cut_anywhere():
    spans = PREFILL + DECODE + MIXED
    assert phase_table(split([[s] for s in spans])) == phase_table(split([spans]))


def test_operations_outside_a_step_belong_to_no_phase():
    result = split([[*DECODE, span("aten::mm", 2600, 100)]])
    assert result.outside_us == {b"aten::mm": 100.0}
    assert "gemm" not in phase_table(result)["decode"]["classes"]


def test_empty_step_counts_for_nothing():
    table = phase_table(split([[*DECODE, step(0, 0, 0, 5000, 9000), span("aten::mm", 5100, 10)]]))
    assert set(table) == {"decode"}
    assert table["decode"]["share"] == 1.0


def test_runtime_calls_and_python_frames_do_not_nest():
    late = span("cudaLaunchKernel", 15, 5, "cuda_runtime")
    frame = span("forward", 1, 90, "python_function")
    result = split([[step(0, 0, 1, 0, 100), frame, span("aten::mm", 10, 50), late, span("aten::mm", 70, 10)]])
    assert result.out_of_order == 0
    assert phase_table(result)["decode"]["classes"] == pytest.approx({"gemm": 60e-6, "host": 40e-6})


def test_other_threads_do_not_disturb_nesting():
    spans = [step(0, 0, 1, 0, 100), span("other", 1, 1000, tid="2"), span("aten::mm", 10, 50)]
    assert phase_table(split([spans]))["decode"]["classes"] == pytest.approx({"gemm": 50e-6, "host": 50e-6})


def test_ranks_of_a_merged_trace_are_not_added_up():
    other = [step(0, 0, 4, 2001, 480, pid="2"), span("aten::mm", 2011, 200, pid="2")]
    merged = split([DECODE + other])
    assert merged.other_worker_steps == 1
    assert phase_table(merged) == phase_table(split([DECODE]))


def test_out_of_order_spans_are_counted():
    assert split([[span("a", 10, 1), span("b", 5, 1), span("c", 20, 1)]]).out_of_order == 1


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("execute_context_2(2048)_generation_0(0)", "prefill"),
        ("execute_context_0(0)_generation_8(8)", "decode"),
        ("execute_context_1(512)_generation_3(3)", "mixed"),
        ("execute_context_0(0)_generation_0(0)", None),
        ("execute_515_context_1(sq512sk512sqsq262144sqsk262144)_generation_3(sq3sk99sqsq3sqsk99)", "mixed"),
    ],
)
def test_step_names(name, phase):
    assert parse_step(name, 0, 1).phase == phase


@pytest.mark.parametrize("name", ["execute_model", "xexecute_context_1(1)_generation_0(0)", ""])
def test_other_annotations_are_not_steps(name):
    assert parse_step(name, 0, 1) is None


@pytest.mark.parametrize(
    ("name", "cls"),
    [
        ("_C::onednn_mm", "gemm"),
        ("aten::addmm", "gemm"),
        ("nvjet_tst_128x64_h_bz_coopA_TNT", "gemm"),
        ("Cijk_Alik_Bljk_HHS_BH_MT128x128x32", "gemm"),
        ("_C::cpu_attention_with_kv_cache", "attention"),
        ("void flash::flash_fwd_splitkv_kernel<...>", "attention"),
        ("kernel_unified_attention_2d", "attention"),
        ("vllm::unified_kv_cache_update", "kv_write"),
        ("reshape_and_cache_flash_kernel", "kv_write"),
        ("chunk_gated_delta_rule_fwd_kernel_h", "linear_attention"),
        ("_causal_conv1d_update_kernel", "linear_attention"),
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "communication"),
        ("_C::rotary_embedding", "norm_rope_activation"),
        ("_C::rms_norm", "norm_rope_activation"),
        ("aten::argmax", "sampling"),
        ("aten::_to_copy", "copy"),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7", "attention"),
        ("void at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add>", "norm_rope_activation"),
        (
            "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<c10::BFloat16, at::native::ArgMaxOps",
            "sampling",
        ),
        ("Memcpy HtoD (Pinned -> Device)", "copy"),
        ("aten::empty_strided", "other"),
        # Of a served Qwen3-8B shape on an H200, vLLM 0.20.2 with TRITON_ATTN.
        ("reduce_segments", "attention"),
        ("_compute_slot_mapping_kernel", "kv_write"),
        ("triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_2", "norm_rope_activation"),
        ("triton_red_fused__to_copy_embedding_rms_norm_0", "norm_rope_activation"),
        ("triton_poi_fused_mul_silu_slice_1", "norm_rope_activation"),
        ("void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*, int, long, long)", "copy"),
        ("void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel<at::native::index", "copy"),
        ("void at::native::unrolled_elementwise_kernel<at::native::FillFunctor<long>, std::array<char*, 1ul>", "copy"),
        ("void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIterat", "copy"),
        ("fused_moe_kernel", "gemm"),
    ],
)
def test_operation_classes(name, cls):
    assert op_class(name) == cls
    assert cls in CLASSES


def test_every_pattern_names_a_class():
    assert {name for name, _ in PATTERNS} == set(CLASSES) - {HOST, OTHER}


def test_biggest_other_names_are_listed_largest_first():
    seconds, others = class_times({b"aten::empty": 5.0, b'odd\\"name': 9.0})
    assert seconds == pytest.approx({"other": 14e-6})
    assert [name for name, _ in others] == ['odd"name', "aten::empty"]


def test_gaps_between_steps():
    steps = [Step(0, 100, 0, 0, 1, 1), Step(150, 100, 0, 0, 1, 1), Step(240, 60, 0, 0, 1, 1)]
    assert between_steps_s(steps) == pytest.approx(50e-6)
    assert between_steps_s([]) == 0.0


def test_trace_without_steps_is_refused(tmp_path):
    file = tmp_path / "frontend.json"
    event = {"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 1}
    file.write_text(json.dumps({"traceEvents": [event]}))
    with pytest.raises(TraceError, match=r"frontend\.json: 1 events but no execute_context"):
        read_phases(file)
