"""The serving stage's pure parts: ports, prompts, completeness, what is read back."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from adrbench.job import JobError
from adrbench.serve import bench
from adrbench.serve.answers import greedy_answers
from adrbench.serve.dtypes import kv_cache_dtypes, read_dtypes
from adrbench.serve.ports import check_sole_listener, claim_port
from adrbench.serve.prompts import make_prompts, write_prompts
from adrbench.serve.resolved import (
    check_resolved,
    check_warm_up,
    compiled_late,
    metric_labels,
    metric_sum,
    read_resolved,
)
from adrbench.serve.server import command, server_environment
from adrbench.serve.spec import ServerSpec

TIER = {"name": "short", "input_tokens": [8, 16], "output_tokens": 4, "prompts": 2, "concurrency": 2}


def result(**changes) -> dict:
    """A complete result of ``vllm bench serve --save-detailed`` for two requests."""
    percentiles = {f"p{p}_{m}_ms": 1.0 for p in bench.PERCENTILES for m in ("ttft", "tpot", "itl", "e2el")}
    means = {f"mean_{m}_ms": 1.0 for m in ("ttft", "tpot", "itl", "e2el")}
    base = {
        "completed": 2, "failed": 0, "duration": 2.0, "errors": ["", ""],
        "input_lens": [8, 16], "output_lens": [4, 4], "ttfts": [0.1, 0.2], "itls": [[0.1] * 3, [0.2] * 3],
        "request_throughput": 1.0, "output_throughput": 4.0, "total_token_throughput": 16.0, "request_goodput": 0.5,
    }  # fmt: skip
    return {**base, **percentiles, **means, **changes}


INCOMPLETE = {
    "no-success": ({"completed": 0, "errors": ["", ""]}, "0 of 2 requests completed"),
    "one-failed": ({"completed": 1, "failed": 1}, "1 of 2 requests completed, 1 failed"),
    "one-error": ({"errors": ["", "boom"]}, "boom"),
    "short-answer": ({"output_lens": [4, 3]}, "not 4 tokens long"),
    "other-prompts": ({"input_lens": [8, 15]}, "prompt lengths differ"),
}


@pytest.mark.parametrize("case", INCOMPLETE)
def test_incomplete_tier_is_refused(case):
    changes, text = INCOMPLETE[case]
    with pytest.raises(JobError, match=text) as caught:
        bench.measure(TIER, [8, 16], result(**changes), "", "", goodput=False)
    assert caught.value.reason == "incomplete"


def test_measurements_of_a_complete_tier():
    before = 'vllm:prompt_tokens_total{model_name="model"} 10\n'
    after = 'vllm:prompt_tokens_total{model_name="model"} 34\nvllm:prefix_cache_hits_total{model_name="model"} 0\n'
    measured = bench.measure(TIER, [8, 16], result(), before, after, goodput=True)
    assert measured["server_prompt_tokens"] == 24
    assert measured["goodput_requests_per_s"] == 0.5
    assert measured["per_request"]["e2el_ms"] == pytest.approx([400, 800])
    # TPOT = (E2EL - TTFT) / (output tokens - 1)
    assert measured["per_request"]["tpot_ms"] == pytest.approx([100, 200])


def test_a_chat_template_is_counted_by_server_and_client(tmp_path):
    """0.27's chat client reports the server's count: prompt and template. The offset must be the same everywhere."""
    bench.check_complete(TIER, [8, 16], result(input_lens=[38, 46]), chat=True)
    with pytest.raises(JobError, match="prompt lengths differ"):
        bench.check_complete(TIER, [8, 16], result(input_lens=[38, 16]), chat=True)
    with pytest.raises(JobError, match="prompt lengths differ"):
        bench.check_complete(TIER, [8, 16], result(input_lens=[38, 46]))


@pytest.mark.parametrize(
    ("counted", "good"), [(24, True), (40, True), (23, False), (31, False), (64, False), (None, True)]
)
def test_the_server_must_have_counted_what_was_sent(counted, good):
    """24 tokens were sent in two prompts of 8 and 16; warm-ups repeat the first."""
    measured = {"server_prompt_tokens": counted, "input_tokens": {"total": 24}, "first_input_tokens": 8}
    if good:
        bench.check_server_count(TIER, measured, warmups=2, chat=False)
    else:
        with pytest.raises(JobError, match="the server counted"):
            bench.check_server_count(TIER, measured, warmups=2, chat=False)


def test_goodput_is_absent_when_no_limits_are_set():
    assert bench.measure(TIER, [8, 16], result(), "", "", goodput=False)["goodput_requests_per_s"] is None


def test_a_client_that_is_the_bottleneck_is_refused():
    many = result(itls=[[1e-6] * 50_000, [1e-6] * 50_000], duration=1.0)
    with pytest.raises(JobError, match="of a core") as caught:
        bench.measure(TIER, [8, 16], many, "", "", goodput=False)
    assert caught.value.reason == "client-bound"


def test_answers_from_a_cache_that_is_off_are_refused():
    with pytest.raises(JobError, match="prefix cache"):
        bench.check_cache(TIER, {"prefix_cache_hits": 16.0}, "False")
    bench.check_cache(TIER, {"prefix_cache_hits": 16.0}, "True")


def test_chat_endpoint_and_completions():
    serve = {"endpoint": "chat", "warmup_requests": 1, "seed": 3, "goodput": {"ttft": 9.0}}
    argv = bench.bench_argv(TIER, serve, "http://127.0.0.1:1", "/m", Path("/p.jsonl"), Path("/o/bench.json"))
    assert argv[:4] == ["--backend", "openai-chat", "--endpoint", "/v1/chat/completions"]
    assert argv[-2:] == ["--goodput", "ttft:9.0"]


def test_prompts_have_exact_lengths_and_share_nothing(embedded_model):
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(embedded_model / "tokenizer.json"))
    rows = make_prompts(tokenizer, 100, 400, 12, "seed")
    assert [len(tokenizer.encode(row["prompt"]).ids) for row in rows] == [row["tokens"] for row in rows]
    assert min(r["tokens"] for r in rows) >= 100
    assert max(r["tokens"] for r in rows) <= 400
    assert len({row["prompt"][:24] for row in rows}) == 12
    assert make_prompts(tokenizer, 100, 400, 12, "seed") == rows
    assert make_prompts(tokenizer, 100, 400, 12, "other") != rows


def test_prompts_need_a_tokenizer(tmp_path):
    with pytest.raises(JobError, match=r"tokenizer.json does not exist"):
        write_prompts(tmp_path, TIER, 1, tmp_path / "prompts.jsonl")


def test_a_port_in_use_is_refused_even_when_it_is_shared():
    """vLLM listens with SO_REUSEPORT: a plain bind must still find the listener."""
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(JobError, match=f"{port}") as caught:
            claim_port(port)
        assert caught.value.reason == "port-taken"
        with pytest.raises(JobError, match="silently") as caught:
            check_sole_listener(port, root=1 << 22)
        assert caught.value.reason == "port-shared"


def test_a_free_port_is_found():
    assert 1024 <= claim_port(None) <= 65535


class Alike:
    """A server that gives every prompt the same answer; ``logprobs``: of a token, or the error that asking gives."""

    model, folder = "model", Path("server")

    def __init__(self, logprobs):
        self.logprobs, self.asked = logprobs, []

    def request(self, path, body, timeout_s):
        self.asked.append(body)
        if "logprobs" in body and isinstance(self.logprobs, Exception):
            raise self.logprobs
        return {"choices": [{"text": "!", "logprobs": {"token_logprobs": [self.logprobs]}}]}


@pytest.mark.parametrize("logprobs", [float("nan"), None, JobError("http", "answered 500: not JSON compliant")])
def test_logits_that_are_no_numbers_are_refused(logprobs):
    """Greedy sampling takes NaN for the largest: the token counts are right and the answers are worth nothing."""
    with pytest.raises(JobError, match=r"every prompt was answered by '!'.*server\.log") as caught:
        greedy_answers(Alike(logprobs))
    assert caught.value.reason == "nan-logits"


def test_a_model_that_says_one_thing_is_no_fault():
    server = Alike(-0.5)
    assert set(greedy_answers(server)) == {"!"}
    assert sum("logprobs" in body for body in server.asked) == 1


METRICS = """\
# HELP vllm:cache_config_info Information of the LLMEngine CacheConfig
vllm:cache_config_info{block_size="128",cache_dtype="fp8_e4m3",enable_prefix_caching="False",num_gpu_blocks="728"} 1.0
vllm:prompt_tokens_total{engine="0",model_name="a"} 5.0
vllm:prompt_tokens_total{engine="1",model_name="a"} 1.5e3
"""


def test_metrics_are_read():
    assert metric_labels(METRICS, "vllm:cache_config_info")["num_gpu_blocks"] == "728"
    assert metric_sum(METRICS, "vllm:prompt_tokens_total") == 1505
    assert metric_sum(METRICS, "vllm:nothing") is None


# One line of each wording of the three platforms and of both vLLM generations.
BACKEND_LINES = {
    "Using TRITON_ATTN attention backend out of potential backends: ['TRITON_ATTN'].": "TRITON_ATTN",
    "INFO [rocm.py:459] Using ROCM_AITER_FA backend.": "ROCM_AITER_FA",
    "INFO [cuda.py:310] Using AttentionBackendEnum.FLASH_ATTN backend.": "FLASH_ATTN",
    "INFO [selector.py:202] Using HND KV cache layout for CPU_ATTN backend.": "CPU_ATTN",
}


@pytest.mark.parametrize("line", BACKEND_LINES)
def test_backend_is_read_from_the_log(tmp_path, line):
    (tmp_path / "server.log").write_text(f"start\n{line}\nGPU KV cache size: 93,184 tokens\n")
    resolved = read_resolved(tmp_path, METRICS, "0.27.0")
    assert resolved["attention_backend"] == BACKEND_LINES[line]
    assert resolved["kv_pool_tokens"] == 93184
    assert resolved["block_size"] == 128


def test_the_engine_s_own_report_outranks_the_log(tmp_path):
    (tmp_path / "server.log").write_text("Using TRITON_ATTN backend.\n")
    (tmp_path / "plugin.jsonl").write_text('{"process": "EngineCore", "chosen": "CPU_ATTN", "path": "x"}\n')
    assert read_resolved(tmp_path, METRICS, "0.27.0")["attention_backend"] == "CPU_ATTN"


def test_a_setting_that_resolved_otherwise_is_refused(tmp_path):
    (tmp_path / "server.log").write_text("Using HND KV cache layout for CPU_ATTN backend.\n")
    resolved = read_resolved(tmp_path, METRICS, "0.27.0")
    spec = {"python": "python", "model": "m"}
    check_resolved(ServerSpec(**spec, expect={"attention_backend": "CPU_ATTN", "block_size": 128}), resolved)
    for expect, word in [
        ({"attention_backend": "TRITON_ATTN"}, "TRITON_ATTN"),
        ({"kv_cache_dtype": "auto"}, "fp8_e4m3"),
        ({"vllm_version": "0.18.1"}, "0.18.1"),
        ({"plugin": "L3"}, "not active in the engine"),
    ]:
        with pytest.raises(JobError, match=word):
            check_resolved(ServerSpec(**spec, expect=expect), resolved)


WARMED = {"engine": True, "warmup_steps": 12, "warmed": {"load_kernel": 1}}


@pytest.mark.parametrize("reports", [[], [{"mechanism": "L3", "engine": True}], [{**WARMED}]])
def test_only_a_backend_of_ours_needs_a_warm_up(reports):
    check_warm_up(reports)


@pytest.mark.parametrize("other", [{}, {**WARMED, "engine": False}, {**WARMED, "warmup_steps": 0}])
def test_a_backend_of_ours_that_was_not_warmed_up_is_refused(other):
    serves = {"mechanism": "L3", "scheme": "int8_per_token_head", "engine": True}
    check_warm_up([serves, WARMED])
    with pytest.raises(JobError, match="no engine process warmed") as caught:
        check_warm_up([serves, other])
    assert caught.value.reason == "not-warmed-up"


def test_kernels_that_came_late_are_listed_once():
    late = [{"compiled_late": name} for name in ("store", "load", "store")]
    assert compiled_late([WARMED, *late]) == ["load", "store"]


def test_key_is_in_the_environment_and_nowhere_in_argv():
    spec = ServerSpec(python="python", model="m", env={"A": "1"}, plugin={"mechanism": "L3", "backend": "CPU_ATTN"})
    environment = server_environment(spec, "s3cret", Path("/f"))
    assert environment["ADRBENCH_API_KEY"] == "s3cret"
    assert "s3cret" not in " ".join(command(spec, 1234))
    assert "/f/plugin.jsonl" in environment["ADRBENCH_PLUGIN"]


def test_kv_dtypes_come_from_the_installed_vllm(serve_python):
    assert {"auto", "fp8_e4m3"} <= set(kv_cache_dtypes(serve_python, "0.27.0"))
    assert "int8" not in kv_cache_dtypes(serve_python, "0.27.0")


def test_kv_dtypes_of_another_host_come_from_its_version():
    assert "fp8" in kv_cache_dtypes("/elsewhere/bin/python", "0.18.1+das.dtk2604")
    assert kv_cache_dtypes("/elsewhere/bin/python", "9.9.9") == ()


def test_a_literal_of_strings_is_read():
    assert read_dtypes('CacheDType = Literal["auto", "fp8"]\n') == ("auto", "fp8")
    assert read_dtypes("CacheDType: TypeAlias = str\n") == ()


@pytest.mark.parametrize(
    ("label", "blocks", "pool", "more", "expected"),
    [
        (16, 23927, "3,062,656", "", 128),  # CUSTOM prefers 128; the API server of vLLM 0.20.2 does not hear of it
        (16, 50842, "813,472", "", 16),
        (16, 50842, "813,473", "", 16),  # does not divide: the label
        (
            784,
            900,
            "352,800",
            "Setting attention block size to 784 tokens",
            784,
        ),  # a hybrid model's groups share a pool
    ],
)
def test_the_block_size_is_the_engines(tmp_path, label, blocks, pool, more, expected):
    (tmp_path / "server.log").write_text(f"GPU KV cache size: {pool} tokens\n{more}\n")
    metrics = f'vllm:cache_config_info{{block_size="{label}",num_gpu_blocks="{blocks}"}} 1.0\n'
    resolved = read_resolved(tmp_path, metrics, None)
    assert (resolved["block_size"], resolved["num_gpu_blocks"]) == (expected, blocks)
