"""What limits a phase, from phase rows whose answer is plain: CPU, a device launched one by one, and by graphs."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from adrbench.profile.bound import interval
from adrbench.profile.class_limits import Work, class_rows, class_work, told
from adrbench.profile.limits import bound_section, graphs_replay
from adrbench.profile.model_flops import decode_flops, prefill_flops
from adrbench.profile.model_shape import parse_config
from adrbench.profile.sections import Inputs, Run, decode_section
from adrbench.profile.window import Stream, Window, Workload

TINY = {
    "model_type": "llama",
    "torch_dtype": "bfloat16",
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 40,
    "tie_word_embeddings": True,
}


def certain(value):
    return interval(value, value, value)


REQUESTS, STEPS, STEP_S = 2, 40, 0.01
# So quick that neither operations nor bytes take any time: what is left is launching and the host.
MEASURED = {
    "read_bytes_per_s": certain(1e12),
    "by_size": [{"bytes": 8192, "read": certain(1e12)}],
    "matmul_flop_per_s": {"bfloat16": certain(1e15)},
    "launch_s": certain(4e-6),
}


def device(busy, gap, between=0.0, kernels=STEPS, graph=0, mirrored=True):
    """Device's row of a decode phase of :data:`STEPS` steps of :data:`STEP_S`; shares of its time."""
    lasted = STEPS * STEP_S
    cycle = {
        "steps": STEPS,
        "seconds": lasted,
        "busy_s": busy * lasted,
        "gap_s": gap * lasted,
        "between_idle_s": between * lasted,
        "classes": {"gemm": 0.6 * busy * lasted, "attention": 0.4 * busy * lasted},
    }
    return {
        "busy_s": busy * lasted,
        "gap_s": gap * lasted,
        "busy_share": busy,
        "kernels": kernels,
        "launches": {"single": 0 if graph else kernels, "graph": graph},
        "cycle": cycle if mirrored else None,
    }


def decode_verdict(**row):
    """Decode's verdict for one row of the phase table."""
    load = Workload(REQUESTS, 100, 41)
    times = [0.02 + STEP_S * i for i in range(load.output_tokens)]
    window = Window(tuple(Stream(0.0, list(times), 100, 41) for _ in range(REQUESTS)), 0.5)
    shape = parse_config(TINY, Path("config.json"))
    inputs = Inputs(shape, {}, SimpleNamespace(measured=MEASURED), load, 1)
    taken = Run((window,), window, {}, (Path("trace"),), {})
    phases = {"decode": {"steps": STEPS, "operations": STEPS, "classes": {"gemm": 0.39, "host": 0.01}} | row}
    return bound_section(inputs, taken, phases, decode_section(inputs, taken, "auto"))["decode"]


def test_graphs_hide_launches_that_latency_times_kernels_would_blame():
    """1000 kernels a step at 4 us are 40 % of it; the device idles 3 % (as an H200 did, told as 35 %)."""
    found = decode_verdict(device=device(0.97, 0.03, kernels=1000 * STEPS, graph=STEPS))
    assert found["shares"]["launch"]["high"] == pytest.approx(0.03)
    assert (found["bound"], found["overheads_by"]) == ("none", "device idle")


def test_eager_launches_that_leave_the_device_idle_are_the_verdict():
    found = decode_verdict(device=device(0.3, 0.65, 0.05, kernels=1000 * STEPS))
    assert found["bound"] == "launch"
    assert found["shares"]["host"]["median"] == pytest.approx(0.05)


def test_a_device_that_waits_between_steps_is_bound_by_the_host():
    assert decode_verdict(device=device(0.3, 0.05, 0.65))["bound"] == "host"


@pytest.mark.parametrize(("kernels", "graph", "launch"), [(500, 0, 0.2), (1000, 0, 0.3), (1000, STEPS, 0.0004)])
def test_without_mirrors_calls_at_their_latency_explain_idle_time(kernels, graph, launch):
    """500 launches a step at 4 us are 20 % of it, 1000 more than the device idled, one graph nearly nothing."""
    found = decode_verdict(device=device(0.7, 0.3, kernels=kernels * STEPS, graph=graph, mirrored=False))
    assert found["shares"]["launch"]["median"] == pytest.approx(launch)
    assert found["shares"]["host"]["median"] == pytest.approx(0.3 - launch)
    assert (found["overheads_by"], found["classes"]) == ("latency", [])


def test_cpu_dispatch_is_operators_at_the_cost_of_a_smallest_one():
    found = decode_verdict(operations=250 * STEPS)
    assert found["shares"]["launch"]["median"] == pytest.approx(0.1)
    assert found["overheads_by"] == "dispatch"


def test_bytes_are_held_against_the_quickest_that_memory_was_seen_to_do(monkeypatch):
    """TINY's step moves the same bytes; memory that writes twice as fast as it reads leaves half the share."""
    before = decode_verdict()["shares"]["bandwidth"]["median"]
    monkeypatch.setitem(MEASURED, "write_bytes_per_s", certain(2e12))
    assert decode_verdict()["shares"]["bandwidth"]["median"] == pytest.approx(before / 2)


def test_graphs_replay_where_every_decode_step_launched_one():
    row = {"steps": STEPS, "device": device(1, 0, graph=STEPS)}
    assert graphs_replay({"decode": row})
    assert not graphs_replay({"decode": row | {"steps": STEPS + 1}})
    assert not graphs_replay({"decode": {"steps": STEPS}})
    assert not graphs_replay({})


def test_classes_split_the_models_operations():
    shape = parse_config(TINY, Path("config.json"))
    prefill = class_work(shape, 7, 7 * 8 / 2, 1, 100.0, 10.0, 1)
    assert sum(part.flops for part in prefill.values()) == pytest.approx(prefill_flops(shape, [7]))
    decode = class_work(shape, 2, 10 + 20, 2, 100.0, 10.0, 2)
    assert sum(part.flops for part in decode.values()) == pytest.approx(decode_flops(shape, [10, 20]) / 2)
    assert (decode["gemm"].bytes, decode["attention"].bytes) == (50.0, 5.0)


def rows():
    """20 s for 2 steps: attention needs 2 s of its 5 at the memory's ceiling, products 4 of 4 at the matrix rate."""
    classes = {"attention": 10.0, "gemm": 8.0, "copy": 1.0, "sampling": 0.1}
    work = {"attention": Work(1.0, 200.0), "gemm": Work(4000.0, 1.0)}
    return class_rows({"seconds": 20.0, "classes": classes}, 2, work, certain(1000.0), interval(90.0, 100.0, 110.0))


def test_each_class_is_held_against_its_own_ceiling():
    found = {row["class"]: row for row in rows()}
    assert list(found) == ["attention", "gemm", "copy"], "what takes less than a hundredth is left out"
    assert {name: row["limit"] for name, row in found.items()} == {
        "attention": "bandwidth",
        "gemm": "compute",
        "copy": None,
    }
    assert found["attention"]["reached"] == pytest.approx(interval(2 / 5 / 1.1, 2 / 5, 2 / 5 / 0.9))
    assert {name: row["left"] for name, row in found.items()} == pytest.approx(
        {"attention": 0.5 * 0.6, "gemm": 0.0, "copy": 0.05}
    )


def test_a_verdict_says_where_the_time_goes_and_what_could_be_done():
    text = told(rows())
    assert "attention 50% at 40% of the memory bandwidth, gemm 40% at 100% of the matrix rate" in text
    assert text.endswith("attention, at most 30% of the phase: another attention backend or kernel")
    assert told([]) == ""
