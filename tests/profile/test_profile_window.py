"""The bounded load against a mock server that streams with injected delays and faults.

Cannot prove: that vLLM sends one chunk per step; the code refuses windows in which no stream shows that.
"""

import dataclasses
import json
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest
from adrbench.job import JobError
from adrbench.profile.window import (
    STEPS_PER_BLOCK,
    Stream,
    Window,
    Workload,
    decode_context_tokens,
    decode_steps,
    prefill_share,
    prompts,
    run_window,
)

LOAD = Workload(requests=2, input_tokens=5, output_tokens=20, timeout_s=60)


@contextmanager
def mock_server(fault=""):
    bodies = []

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            bodies.append((self.headers["Authorization"], body))
            if fault == "opener" and body["max_tokens"] == 1:
                self.send_error(500, "engine dead")
                return
            if fault == "http" and body["max_tokens"] > 1:
                self.send_error(500, "engine dead")
                return
            self.send_response(200)
            self.end_headers()
            count = body["max_tokens"] - (fault == "short" and body["max_tokens"] > 1)
            for number in range(count):
                time.sleep(0.002)
                if fault == "error" and number == 3:
                    self.event({"error": {"message": "boom"}})
                    return
                if fault == "cut" and number == 3:
                    return
                self.event({"choices": [{"text": "a"}]})
            self.event({"choices": [], "usage": {"prompt_tokens": len(body["prompt"]), "completion_tokens": count}})
            self.wfile.write(b"data: [DONE]\n\n")

        def event(self, value):
            self.wfile.write(b"data: " + json.dumps(value).encode() + b"\n\n")
            self.wfile.flush()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_port}"
        yield SimpleNamespace(base_url=url, api_key="secret", model="model"), bodies
    finally:
        server.shutdown()
        server.server_close()


def test_window_sends_what_was_asked_and_keeps_token_times():
    with mock_server() as (server, bodies):
        window = run_window(server, LOAD, seed=1, vocabulary=100)
    assert [len(s.token_s) for s in window.streams] == [20, 20]
    assert {key for key, _ in bodies} == {"Bearer secret"}
    assert bodies[0][1]["max_tokens"] == 1, "the opener goes ahead"
    assert [len(b["prompt"]) for _, b in bodies] == LOAD.prompt_lengths == [16, 5, 5]
    assert all(b["max_tokens"] == 20 and b["ignore_eos"] for _, b in bodies[1:])
    assert 0.04 < window.wall_s < 60
    assert window.start_s < min(stream.sent_s for stream in window.streams), "the opener's time counts as prefill"
    assert all(0.001 < step < window.wall_s for step in decode_steps(window))


@pytest.mark.parametrize("fault", ["http", "error", "cut", "short"])
def test_incomplete_window_is_refused(fault):
    with mock_server(fault) as (server, _), pytest.raises(JobError, match="request 1 of 2") as caught:
        run_window(server, LOAD, seed=1, vocabulary=100)
    assert caught.value.reason == "window-incomplete"


def test_processor_time_is_sampled_at_the_last_first_token():
    """Three samples: before, when both streams have a token, and after."""
    used = iter([{7: 1.0}, {7: 3.0}, {7: 4.0}])
    with mock_server() as (server, _):
        window = run_window(server, LOAD, seed=1, vocabulary=100, sampler=lambda: next(used))
    assert window.cpu_s == (2.0, 1.0)
    assert run_window_without_sampler() is None


def run_window_without_sampler():
    with mock_server() as (server, _):
        return run_window(server, LOAD, seed=1, vocabulary=100).cpu_s


def test_a_window_can_be_kept_as_json():
    with mock_server() as (server, _):
        window = run_window(server, LOAD, seed=1, vocabulary=100, sampler=lambda: {1: 1.0})
    assert json.loads(json.dumps(dataclasses.asdict(window)))["streams"][0]["output_tokens"] == 20


def test_a_failed_opener_is_refused():
    with mock_server("opener") as (server, _), pytest.raises(JobError, match=r"the opener: .*500"):
        run_window(server, LOAD, seed=1, vocabulary=100)


def test_share_of_prefill_is_up_to_the_last_first_token():
    window = Window(streams(1.0, 3.0, steps=8, step_s=0.5), 7.0, opened_s=-1.0)
    assert prefill_share(window) == pytest.approx((3.0 - -1.0) / (6.5 - -1.0))


def test_absent_server_is_refused():
    server = SimpleNamespace(base_url="http://127.0.0.1:1", api_key="k", model="m")
    with pytest.raises(JobError, match="ConnectionRefused"):
        run_window(server, LOAD, seed=1, vocabulary=100)


def test_prompts_differ_between_windows_and_stay_in_the_vocabulary():
    assert prompts(LOAD, 1, 60) != prompts(LOAD, 2, 60)
    assert prompts(LOAD, 1, 60) == prompts(LOAD, 1, 60)
    assert all(0 <= token < 60 for prompt in prompts(LOAD, 1, 60) for token in prompt)


def streams(*starts, steps, step_s, every=1):
    return tuple(Stream(0.0, [start + i * step_s for i in range(0, steps, every)], 5, steps) for start in starts)


def test_decode_steps_leave_out_the_time_before_the_last_prefill():
    """The first stream decodes slowly while the second one still prefills."""
    slow = [0.0, 1.0, 2.0]
    together = [3.0 + 0.01 * i for i in range(2 * STEPS_PER_BLOCK + 1)]
    window = Window((Stream(0, slow + together, 5, len(slow + together)), Stream(0, together, 5, len(together))), 1.0)
    assert decode_steps(window) == pytest.approx([0.01, 0.01])


def test_context_is_the_mean_over_the_stretch():
    window = Window(streams(1.0, 1.0, steps=21, step_s=0.01), 1.0)
    assert decode_context_tokens(window, LOAD) == pytest.approx(5 + 10)


def test_merged_chunks_are_refused_because_they_hide_steps():
    window = Window(streams(1.0, steps=40, step_s=0.01, every=2), 1.0)
    with pytest.raises(JobError) as caught:
        decode_steps(window)
    assert caught.value.reason == "client-slow"


def test_too_few_common_steps_are_refused():
    window = Window(streams(1.0, 1.35, steps=40, step_s=0.01), 1.0)
    with pytest.raises(JobError, match=r"raise workload\.output_tokens") as caught:
        decode_steps(window)
    assert caught.value.reason == "window-short"


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"requests": 0}, "requests"),
        ({"input_tokens": "512"}, "input_tokens"),
        ({"output_tokens": 15}, "output_tokens"),
        ({"concurrency": 2}, "concurrency"),
    ],
)
def test_bad_workload_names_the_key(change, key):
    spec = {"requests": 4, "input_tokens": 512, "output_tokens": 32, "concurrency": 4}
    assert Workload.from_spec(spec).requests == 4
    with pytest.raises(JobError, match=rf"workload\.{key}"):
        Workload.from_spec(spec | change)
