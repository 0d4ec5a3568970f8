"""The verdict as a document, on synthetic evidence: its tables, what it names, and what it refuses.

The numbers are the tests' own; nothing here says how vLLM behaves.
"""

import pytest
from adrbench.decide.spec import parse_spec
from adrbench.job import JobError
from decide_synthetic import FP8, fill, verdict


def test_the_same_evidence_gives_the_same_document(world):
    fill(world, rounds=2)
    assert verdict(world).model_dump_json() == verdict(world).model_dump_json()


def test_noise_table_shows_the_two_rounds_that_differ_most(world):
    for r, rate in ((1, 50.0), (2, 60.0), (3, 55.0)):
        world.server("auto", r, rate=rate, noise=1e-9)
    noise = verdict(world).noise["short"]["output_tokens_per_s"]
    assert (noise.a, noise.b, noise.rounds) == (pytest.approx(50), pytest.approx(60), 3)
    assert noise.ratio == pytest.approx(1.2)
    assert noise.floor > 0.2


def test_latency_table_leaves_p99_open(world):
    fill(world, rounds=1, requests=16)
    table = verdict(world).latency["auto"]["short"]
    assert table["ttft_ms"].p99_high is None
    assert table["ttft_ms"].p99_low < table["ttft_ms"].p99
    assert (table["itl_ms"].requests, table["itl_ms"].p99_low) == (None, None)


def test_confounded_settings_are_named(world):
    fill(world, rounds=1, resolved=FP8 | {"block_size": 64})
    found = verdict(world).confounded
    assert {(c.arm, c.factor, c.value) for c in found} == {
        ("fp8-e4m3", "kv_cache_dtype", "fp8_e4m3"),
        ("fp8-e4m3", "block_size", "64"),
    }
    assert {c.factor for c in found} != {"kv_cache_dtype"}


def test_a_process_number_is_no_difference(world):
    plugin = [{"chosen": "CPU_ATTN", "pid": 1, "process": "VllmWorker-0"}]
    other = [{"chosen": "CPU_ATTN", "pid": 2, "process": "VllmWorker-1"}]
    for r in (1, 2):
        world.server("auto", r, resolved={"plugin": plugin})
        world.server("fp8-e4m3", r, resolved=FP8 | {"plugin": other})
    assert verdict(world).confounded == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"blocked": {"nobody": {"en": "a", "zh": "b"}}}, "nobody"), ({"arms": [{"name": "auto"}]}, "baseline"),
     ({"decision": {}}, "decision"), ({"confidnce": 1}, "confidnce")],
)  # fmt: skip
def test_a_wrong_specification_names_the_key(world, changes, message):
    world.server("auto", 1)
    with pytest.raises(JobError, match=message):
        parse_spec(world.spec(**changes))
