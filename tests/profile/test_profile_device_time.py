"""Device time by phase on hand-made kernels whose answer is known by construction.

One recorded H200 trace shows what a CUDA tracer writes; a ROCm trace has not been seen (unverified on DCU).
"""

import gzip
import json
from pathlib import Path

import pytest
from adrbench.profile.phases import phase_table, read_phases, split


def span(category, name, start, duration, pid="0", tid="7"):
    text = (category, name, pid, tid, str(start), str(duration))
    return tuple(part.encode() for part in text)


def kernel(name, start, duration, **place):
    return span("kernel", name, start, duration, **place)


def mirror(context, generation, start, duration, **place):
    name = f"execute_context_{context}({64 * context})_generation_{generation}({generation})"
    return span("gpu_user_annotation", name, start, duration, **place)


def host(context, generation, start, duration):
    name = f"execute_context_{context}({64 * context})_generation_{generation}({generation})"
    return span("user_annotation", name, start, duration, pid="99", tid="99")


# The host launches the decode step (at 20) long before the device runs it (at 300).
PREFILL = [mirror(1, 0, 100, 100), kernel("nvjet_gemm", 100, 60), kernel("flash_fwd", 170, 30)]
DECODE = [mirror(0, 4, 300, 50), kernel("nvjet_gemm", 300, 10), kernel("reshape_and_cache_flash", 340, 10)]
HOST = [host(1, 0, 0, 10), host(0, 4, 20, 10)]


def test_seconds_are_those_of_the_device_not_of_the_launch():
    table = phase_table(split([HOST + PREFILL + DECODE]))
    assert table["prefill"]["seconds"] == pytest.approx(100e-6)
    assert table["decode"]["seconds"] == pytest.approx(50e-6)
    assert table["decode"]["share"] == pytest.approx(1 / 3)
    assert table["decode"]["device"]["assigned_by"] == "device annotation"


def test_busy_gaps_kernels_and_classes():
    row = phase_table(split([HOST + PREFILL + DECODE]))["prefill"]["device"]
    assert (row["busy_s"], row["gap_s"], row["kernels"]) == (pytest.approx(90e-6), pytest.approx(10e-6), 2)
    assert row["busy_share"] == pytest.approx(0.9)
    assert row["classes"] == pytest.approx({"gemm": 60e-6, "attention": 30e-6})


def test_order_in_the_file_does_not_matter():
    spans = HOST + PREFILL + DECODE
    assert phase_table(split([spans])) == phase_table(split([HOST + list(reversed(PREFILL + DECODE))]))


def test_overlapping_streams_are_busy_once():
    other = kernel("nccl_all_reduce", 110, 80, tid="8")
    row = phase_table(split([[*HOST, *PREFILL, other]]))["prefill"]["device"]
    assert row["busy_s"] == pytest.approx(100e-6)
    assert row["classes"]["communication"] == pytest.approx(80e-6)


def test_a_step_mirrored_on_two_streams_counts_once():
    """The side stream's mirror may lie anywhere, even within the next step of the same name."""
    side = mirror(1, 0, 310, 5, tid="8")
    table = phase_table(split([[*HOST, *PREFILL, side, *DECODE]]))
    assert table["prefill"]["steps"] == 1
    assert table["prefill"]["seconds"] == pytest.approx(100e-6)


def test_consecutive_steps_of_one_name_stay_apart():
    spans = [mirror(0, 4, 0, 10), mirror(0, 4, 10, 10), kernel("gemm", 1, 1), kernel("gemm", 11, 1)]
    assert phase_table(split([spans]))["decode"]["steps"] == 2


def test_kernels_between_device_steps_belong_to_no_phase():
    result = phase_table(split([[*HOST, *PREFILL, kernel("stray", 250, 10)]]))
    assert result["prefill"]["device"]["kernels"] == 2


def test_without_device_annotations_the_host_step_decides_and_says_so():
    spans = [*HOST, kernel("nvjet_gemm", 5, 3), kernel("nvjet_gemm", 35, 4)]
    table = phase_table(split([spans]))
    assert table["prefill"]["device"]["kernels"] == table["decode"]["device"]["kernels"] == 1
    assert table["decode"]["device"]["assigned_by"] == "host step"


def test_further_devices_are_counted_not_added():
    result = split([[*HOST, *PREFILL, kernel("nvjet_gemm", 100, 60, pid="1")]])
    assert result.device.other_device_spans == 1
    assert phase_table(result)["prefill"]["device"]["kernels"] == 2


def test_cpu_traces_have_no_device_rows():
    assert "device" not in phase_table(split([HOST]))["prefill"]


def call(name, start, category="cuda_runtime", **place):
    return span(category, name, start, 1, **({"pid": "99", "tid": "99"} | place))


def test_launching_calls_count_in_the_hosts_step_that_made_them():
    """A graph of any number of kernels is one call; other calls of the runtime launch nothing."""
    calls = [call("cudaLaunchKernel", 1), call("cuLaunchKernelEx", 2, "cuda_driver"), call("cudaMemcpyAsync", 3)]
    calls += [call("cudaGraphLaunch", 25), call("cudaLaunchKernel", 55), call("hipGraphLaunch", 26, pid="98")]
    table = phase_table(split([[*HOST, *PREFILL, *DECODE, *calls]]))
    assert table["prefill"]["device"]["launches"] == {"single": 2, "graph": 0}
    assert table["decode"]["device"]["launches"] == {"single": 0, "graph": 1}


def test_a_cycle_ends_where_the_next_step_begins():
    """Steps at 100, 300; sampling at 210 for 40: of the first cycle 130 busy, 10 idle within, 60 between."""
    spans = [*HOST, *PREFILL, kernel("argmax", 210, 40), *DECODE]
    cycle = phase_table(split([spans]))["prefill"]["device"]["cycle"]
    assert cycle.pop("classes") == pytest.approx({"gemm": 60e-6, "attention": 30e-6, "sampling": 40e-6})
    assert cycle == pytest.approx(
        {"steps": 1, "seconds": 200e-6, "busy_s": 130e-6, "gap_s": 10e-6, "between_idle_s": 60e-6}
    )


def test_a_decode_cycle_is_of_the_whole_batch():
    spans = [mirror(0, batch, 100 * i, 80) for i, batch in enumerate((4, 4, 3, 2))]
    spans += [kernel("gemm", 100 * i, 10 * batch) for i, batch in enumerate((4, 4, 3, 2))]
    cycle = phase_table(split([spans]))["decode"]["device"]["cycle"]
    assert (cycle["steps"], cycle["busy_s"]) == (2, pytest.approx(80e-6))


def test_the_last_step_of_a_trace_and_a_trace_without_mirrors_have_no_cycle():
    assert phase_table(split([HOST + PREFILL + DECODE]))["decode"]["device"]["cycle"] is None
    assert phase_table(split([[*HOST, kernel("gemm", 5, 3)]]))["prefill"]["device"]["cycle"] is None


RECORDED = Path(__file__).parent / "data" / "h200_steps.pt.trace.json.gz"


NAMED = {
    "execute_context_2(4096)_generation_0(0)": "prefill",
    "execute_context_1(2048)_generation_2(2)": "mixed",
    "execute_context_0(0)_generation_4(4)": "decode",
}


@pytest.fixture(scope="module")
def recorded():
    """Five steps (prefill, mixed, three decode) of a small bf16 network that a real H200 ran under Kineto."""
    return json.loads(gzip.decompress(RECORDED.read_bytes()))["traceEvents"]


def test_recorded_trace_is_read_by_the_quick_path(recorded):
    result, reader = read_phases(RECORDED)
    assert reader.events == len(recorded)
    assert result.spans == sum(event["ph"] == "X" for event in recorded)
    assert not reader.loss.any


def test_recorded_kernels_fall_into_the_steps_that_ran_them(recorded):
    """Against a search over all pairs. The host was up to 6 ms ahead, so host times would be wrong here."""
    mirrors = [e for e in recorded if e.get("cat") == "gpu_user_annotation" and e["tid"] == 7]
    wanted = {"prefill": 0, "mixed": 0, "decode": 0}
    for event in recorded:
        if event.get("cat") in ("kernel", "gpu_memset", "gpu_memcpy"):
            (step,) = [m for m in mirrors if m["ts"] - 5e-4 <= event["ts"] < m["ts"] + m["dur"]]
            phase = (
                "prefill" if "generation_0" in step["name"] else "mixed" if "context_1" in step["name"] else "decode"
            )
            wanted[phase] += 1
    table = phase_table(read_phases(RECORDED)[0])
    assert {phase: row["device"]["kernels"] for phase, row in table.items()} == wanted
    assert {phase: row["steps"] for phase, row in table.items()} == {"prefill": 1, "mixed": 1, "decode": 3}


def test_recorded_classes_name_the_products_and_the_attention():
    classes = phase_table(read_phases(RECORDED)[0])["prefill"]["device"]["classes"]
    assert classes["attention"] > classes["gemm"] > 10 * classes["sampling"] > 0
    assert classes.get("other", 0.0) < 0.02 * sum(classes.values())
