"""The whole profile job against a fake server: what it asks, what it refuses, what it writes.

Cannot prove: anything about vLLM; a real server and trace are the end-to-end run's business.
"""

import gzip
import json
import time
from contextlib import contextmanager

import pytest
from adrbench.evidence import Evidence, read, verify_files, write
from adrbench.job import JobError
from adrbench.profile import __main__ as job
from adrbench.profile.sections import busy_note, busy_share
from adrbench.profile.window import Stream, Window

CONFIG = {
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
STEP_S, BATCH, OUTPUT = 0.010, 2, 33


def events():
    """One prefill step of 20 ms and 32 decode steps of 10 ms without gaps, in us, one operator in each."""
    spans = [("execute_context_2(200)_generation_0(0)", 0.0, 20_000.0)]
    spans += [(f"execute_context_0(0)_generation_{BATCH}({BATCH})", 20_000.0 + 10_000 * i, 10_000.0) for i in range(32)]
    result = []
    for name, ts, dur in spans:
        place = {"ph": "X", "pid": 1, "tid": 1}
        result.append({**place, "cat": "user_annotation", "name": name, "ts": ts, "dur": dur})
        result.append({**place, "cat": "cpu_op", "name": "aten::mm", "ts": ts + 1, "dur": dur / 2})
    return result


class FakeServer:
    """Counters and a trace of one window; ``fault`` spoils one of them."""

    base_url, api_key, model = "http://x", "k", "model"

    def __init__(self, traces, fault):
        self.resolved = {"kv_cache_dtype": "auto", "kv_pool_tokens": 1000}
        self.traces, self.fault, self.calls, self.windows = traces, fault, [], 0

    def metrics(self):
        spent = 0.0 if "/start_profile" not in self.calls else 1.0
        decode = spent * BATCH * 0.32 * (1.5 if self.fault == "counters" else 1.0)
        return (
            f'vllm:request_prefill_time_seconds_sum{{engine="0"}} {5 + spent * 0.04}\n'
            f'vllm:request_decode_time_seconds_sum{{engine="0"}} {7 + decode}\n'
        )

    def request(self, path, body=None, timeout_s=60.0):
        self.calls.append(path)
        if path == "/stop_profile" and self.fault != "no-trace":
            packed = gzip.compress(json.dumps({"traceEvents": events()}).encode())
            cut = len(packed) // 2 if self.fault == "cut-trace" else len(packed)
            (self.traces / "123-rank-0.456.pt.trace.json.gz").write_bytes(packed[:cut])

    def window(self, _server, load, seed, _vocabulary):
        self.windows += 1
        slow = 1.3 if "/start_profile" in self.calls else 1.0
        times = [0.02 + STEP_S * slow * i for i in range(load.output_tokens)]
        streams = tuple(Stream(0.0, list(times), load.input_tokens, load.output_tokens) for _ in range(load.requests))
        return Window(streams, 0.35 * slow)


@pytest.fixture
def bench(tmp_path, monkeypatch):
    """A runner of the job: ``bench(fault, **changes)`` gives (evidence, fake server)."""
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(CONFIG))
    check = {"computed_bytes": 1, "on_disk_bytes": 1, "other_on_disk_bytes": 0, "ratio": 1.0}
    monkeypatch.setattr(job, "check_weights", lambda shape, folder: check)  # no weights in this folder
    monkeypatch.setattr(job, "TRACE_WAIT_S", 0.1)
    monkeypatch.setattr(job.time, "sleep", lambda s: None)
    summary = {"median": 1e6, "low": 0.9e6, "high": 1.1e6, "samples": 9}
    measured = {
        "read_bytes_per_s": summary,
        "by_size": [{"bytes": 8192, "read": summary}],
        "last_level_cache_bytes": 0,
        "matmul_flop_per_s": {
            "bfloat16": {"median": 1e7, "low": 0.9e7, "high": 1.1e7},
            "float16": {"unsupported": "x"},
        },
        "launch_s": {"median": 1e-3, "low": 0.9e-3, "high": 1.1e-3},
    }
    ceiling = tmp_path / "results" / "cpu" / "ceiling.json"
    stamp = "2026-01-01T00:00:00+00:00"
    write(ceiling, Evidence(stage="profile", platform="cpu", measured=measured, started_at=stamp, finished_at=stamp))
    output = tmp_path / "results" / "cpu" / "profile" / "base.json"
    made = []

    def run(fault="", **changes):
        @contextmanager
        def serving(spec, folder, extra_args=()):
            settings = json.loads(extra_args[1])
            assert extra_args[0] == "--profiler-config"
            assert settings["profiler"] == "torch"
            made.append(FakeServer(output.with_suffix("") / "trace", fault))
            yield made[-1]

        monkeypatch.setattr(job, "serving", serving)
        monkeypatch.setattr(job, "run_window", lambda *args: made[-1].window(*args))
        workload = {"requests": BATCH, "input_tokens": 100, "output_tokens": OUTPUT, "concurrency": BATCH, "windows": 3}
        spec = {
            "platform": "cpu",
            "arm": {"name": "base"},
            "server": {"env": {"VLLM_CPU_KVCACHE_SPACE": "0.00006"}},
            "model": str(model),
            "ceiling": str(ceiling),
            "workload": workload,
        }
        job.work(spec | changes, output)
        return read(output), made[-1]

    run.output, run.made = output, made
    return run


def test_evidence_of_a_run_whose_answer_is_known(bench):
    evidence, server = bench()
    measured = evidence.measured
    assert (evidence.stage, evidence.platform, evidence.arm) == ("profile", "cpu", "base")
    assert measured["phases"]["prefill"]["seconds"] == pytest.approx(0.020)
    assert measured["phases"]["decode"]["seconds"] == pytest.approx(0.320)
    assert measured["phases"]["decode"]["share"] == pytest.approx(0.32 / 0.34)
    assert measured["phases"]["decode"]["classes"] == pytest.approx({"gemm": 0.16, "host": 0.16})
    assert measured["counters"]["decode"]["ratio"] == pytest.approx(1.0)
    assert not measured["counters"]["prefill"]["disagrees"]
    assert measured["trace"]["events"] == 66
    assert server.windows == 1 + 3 + 1
    assert server.calls == ["/start_profile", "/stop_profile"]
    assert verify_files(bench.output) == []
    assert sorted(evidence.files) == ["trace/123-rank-0.456.pt.trace.json.gz", "windows.json"]


def test_decode_uses_the_unprofiled_step_time(bench):
    decode = bench()[0].measured["decode"]
    weights = 2 * (40 * 16 + 2 * (16 * 16 * 2 + 2 * 16 * 8 + 3 * 16 * 24) + 5 * 16)
    moved = weights + BATCH * (100 + 16) * 64 + BATCH * 64
    assert decode["step_seconds"]["median"] == pytest.approx(STEP_S)
    assert decode["context_tokens"] == pytest.approx(100 + 16)
    assert decode["bytes_per_step"] == pytest.approx(moved)
    assert decode["utilisation"]["median"] == pytest.approx(moved / STEP_S / 1e6)


def test_overhead_of_the_profiler_is_stated(bench):
    overhead = bench()[0].measured["overhead"]
    assert overhead["ratio"] == pytest.approx(1.3)
    assert overhead["decode_step_ratio"] == pytest.approx(1.3)


def test_bounds_by_hand(bench):
    """Decode: one operator of a 1 ms launch in a 10 ms step; host between operators is half of the profiled step."""
    bounds = bench()[0].measured["bounds"]
    shares = bounds["decode"]["shares"]
    assert shares["launch"]["median"] == pytest.approx(0.1)
    assert (shares["host"]["low"], shares["host"]["high"]) == (pytest.approx(0.5), pytest.approx(0.5))
    assert shares["bandwidth"]["median"] == pytest.approx(bounds["decode"]["bytes"] / STEP_S / 1e6)
    assert shares["compute"]["median"] == pytest.approx(bounds["decode"]["flops"] / STEP_S / 1e7)
    assert bounds["prefill"]["seconds"]["median"] == pytest.approx(0.02)
    assert bounds["prefill"]["bound"] == "compute"


def test_levers_are_stated(bench):
    found = bench()[0].measured["levers"]
    assert [row["lever"] for row in found] == ["kv_8bit", "weights_8bit", "compile_or_graphs", "double_batch"]
    assert all(0 <= row["saves_at_most"] <= 1 for row in found)


def test_pool_is_compared_with_the_memory_given_to_it(bench):
    pool = bench()[0].measured["pool"]
    assert pool["computed_bytes"] == 1000 * 64
    assert pool["ratio"] == pytest.approx(64_000 / (0.00006 * 2**30))


def test_disagreement_with_the_counters_is_flagged(bench):
    evidence, _ = bench("counters")
    assert evidence.measured["counters"]["decode"]["disagrees"]
    assert any("decode: trace" in note for note in evidence.notes)


@pytest.mark.parametrize(("busy", "flagged"), [(None, False), (0.1, False), (0.9, True)])
def test_busy_host_is_flagged(busy, flagged):
    assert bool(busy_note(busy)) is flagged


def test_busy_share_is_what_was_neither_idle_nor_waiting():
    before, after = "cpu  10 0 10 100 5 0 0 0 0 0\ncpu0 x", "cpu  40 0 20 150 15 0 0 0 0 0\ncpu0 x"
    assert busy_share(before, after) == pytest.approx(0.4)
    assert busy_share(before, before) is None
    assert busy_share("", "") is None


@pytest.mark.parametrize(("fault", "reason"), [("no-trace", "no-trace"), ("cut-trace", "trace-incomplete")])
def test_missing_or_cut_trace_is_refused(bench, fault, reason):
    with pytest.raises(JobError) as caught:
        bench(fault)
    assert caught.value.reason == reason
    assert not bench.output.exists()


def test_traces_of_an_earlier_run_are_not_mixed_in(bench):
    stale = bench.output.with_suffix("") / "trace" / "999-rank-0.1.pt.trace.json.gz"
    stale.parent.mkdir(parents=True)
    stale.write_bytes(b"old")
    evidence, _ = bench()
    assert not stale.exists()
    assert [name for name in evidence.files if "trace" in name] == ["trace/123-rank-0.456.pt.trace.json.gz"]


@pytest.mark.parametrize(
    ("changes", "reason", "message"),
    [
        ({"ceiling": "/nowhere/ceiling.json"}, "no-ceiling", "no such evidence file"),
        ({"model": "/nowhere"}, "model-config", "/nowhere/config.json"),
        ({"model": ""}, "bad-spec", "model is missing"),
        ({"workload": {"requests": 2}}, "bad-spec", "workload.input_tokens"),
        ({"workload": {"windows": 0}}, "bad-spec", "workload.windows"),
        ({"kv_dtype": "int3"}, "model-config", "int3"),
    ],
    ids=["ceiling", "model", "missing", "workload", "windows", "kv"],
)
def test_bad_input_is_refused_before_a_server_starts(bench, changes, reason, message):
    with pytest.raises(JobError, match=message) as caught:
        bench(**changes)
    assert caught.value.reason == reason
    assert bench.made == []


def test_waiting_for_traces_sees_one_that_is_still_being_written(tmp_path, monkeypatch):
    file = tmp_path / "1-rank-0.2.pt.trace.json.gz"
    whole = gzip.compress(json.dumps({"traceEvents": events()}).encode())
    file.write_bytes(whole[:50])
    monkeypatch.setattr(time, "sleep", lambda s: file.write_bytes(whole))
    assert job.wait_for_traces(tmp_path, 5) == [file]


def test_ranks_come_in_order(tmp_path):
    whole = gzip.compress(json.dumps({"traceEvents": events()}).encode())
    for rank in (10, 2, 0):
        (tmp_path / f"a-rank-{rank}.7.pt.trace.json.gz").write_bytes(whole)
    assert [job.trace_rank(f) for f in job.wait_for_traces(tmp_path, 5)] == [0, 2, 10]
