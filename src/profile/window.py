"""A small, bounded load on a running server: the window that is profiled, and its unprofiled twins.

All requests start together with prompts of equal length and the same number of output tokens, streamed,
so that after the last prefill every engine step decodes the whole batch. The time between tokens in
that stretch is the decode step time: it is measured without the profiler, which slows steps down.

A short opener goes ahead and generates one token: while the engine runs it, the others arrive, so that
the scheduler finds them all at once. Without it the first of them is prefilled alone or with some of the
rest, as the race goes, and the share of prefill and mixed steps changes from window to window.
"""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from adrbench.job import JobError
from adrbench.profile.cpu_time import Sample, Sampler, busiest

# Steps averaged into one sample: single steps of a shared host scatter, a window has few of them.
STEPS_PER_BLOCK = 8
LOWEST_TOKEN, TOKENS = 1000, 30_000
# The opener's prompt as a part of the others' length: long enough for them to arrive while it runs.
OPENER_PART, SHORTEST_OPENER = 4, 16
OPENER_LEAD_S = 0.02


@dataclass(frozen=True)
class Workload:
    """The bounded window: ``requests`` at once (= the decode batch), lengths in tokens."""

    requests: int
    input_tokens: int
    output_tokens: int
    timeout_s: float = 300.0

    @property
    def opener_tokens(self) -> int:
        """Prompt length of the short request that goes ahead."""
        return max(SHORTEST_OPENER, self.input_tokens // OPENER_PART)

    @property
    def prompt_lengths(self) -> list[int]:
        """Prompt lengths of all requests of a window, the opener first."""
        return [self.opener_tokens, *[self.input_tokens] * self.requests]

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> Workload:
        """From the job's ``workload``; ``concurrency`` must equal ``requests``.

        Raises:
            JobError: ``bad-spec`` naming the key.
        """
        values = {}
        for key in ("requests", "input_tokens", "output_tokens"):
            value = spec.get(key)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise JobError("bad-spec", f"spec: workload.{key} is {value!r}, expected a positive integer")
            values[key] = value
        if spec.get("concurrency", values["requests"]) != values["requests"]:
            raise JobError(
                "bad-spec",
                f"spec: workload.concurrency is {spec['concurrency']!r} but workload.requests is {values['requests']}: "
                "the profiled window sends all requests at once, so that every decode step has one batch size",
            )
        if values["output_tokens"] < 2 * STEPS_PER_BLOCK:
            raise JobError(
                "bad-spec",
                f"spec: workload.output_tokens is {values['output_tokens']}, expected at least {2 * STEPS_PER_BLOCK}: "
                "fewer decode steps give no step time",
            )
        return cls(**values)


@dataclass
class Stream:
    """One request as its client saw it: when it was sent and when each token arrived (perf_counter, s)."""

    sent_s: float = 0.0
    token_s: list[float] = field(default_factory=list)
    prompt_tokens: int = 0
    output_tokens: int = 0
    error: str = ""


@dataclass(frozen=True)
class Window:
    """All streams of one window but the opener's, its wall time, and when the opener was sent.

    ``cpu_s``: processor seconds of the server's busiest process up to the last first token, and after it.
    """

    streams: tuple[Stream, ...]
    wall_s: float
    opened_s: float | None = None
    cpu_s: tuple[float, float] | None = None

    @property
    def start_s(self) -> float:
        """When the first request was sent, the opener included."""
        first = min(stream.sent_s for stream in self.streams)
        return first if self.opened_s is None else min(first, self.opened_s)


def prompts(workload: Workload, seed: int, vocabulary: int) -> list[list[int]]:
    """Random token ids, the opener's first, new for each ``seed``: no window can hit another one's prefix cache."""
    choose = random.Random(seed)
    low = min(LOWEST_TOKEN, vocabulary // 2)
    high = min(low + TOKENS, vocabulary) - 1
    return [[choose.randint(low, high) for _ in range(length)] for length in workload.prompt_lengths]


def _read_events(answer: http.client.HTTPResponse, stream: Stream, on_first: Callable[[], None] | None = None) -> None:
    """Fill ``stream`` from the answer's events; ``on_first`` is called when the first token has arrived."""
    for raw in answer:
        line = raw.strip()
        if not line.startswith(b"data:") or line == b"data: [DONE]":
            continue
        arrived, event = time.perf_counter(), json.loads(line[5:])
        if event.get("error"):
            raise ValueError(str(event["error"])[:300])
        if event.get("choices"):
            stream.token_s.append(arrived)
            if len(stream.token_s) == 1 and on_first:
                on_first()
        if usage := event.get("usage"):
            stream.prompt_tokens, stream.output_tokens = usage["prompt_tokens"], usage["completion_tokens"]


def _send(
    server: Any,
    prompt: Sequence[int],
    output_tokens: int,
    timeout_s: float,
    stream: Stream,
    on_first: Callable[[], None] | None = None,
) -> None:
    address = urlsplit(server.base_url)
    body = {
        "model": server.model,
        "prompt": list(prompt),
        "max_tokens": output_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    headers = {"Authorization": f"Bearer {server.api_key}", "Content-Type": "application/json"}
    connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=timeout_s)
    try:
        stream.sent_s = time.perf_counter()
        connection.request("POST", "/v1/completions", json.dumps(body), headers)
        answer = connection.getresponse()
        if answer.status != 200:
            raise ValueError(f"HTTP {answer.status}: {answer.read(300).decode(errors='replace')}")
        _read_events(answer, stream, on_first)
    except (OSError, ValueError, KeyError, http.client.HTTPException) as error:
        stream.error = f"{type(error).__name__}: {error}"
    finally:
        connection.close()


class _LastFirstToken:
    """Samples processor time once, when the last of ``streams`` has got its first token."""

    def __init__(self, streams: int, sampler: Sampler):
        self.missing, self.sampler, self.lock = streams, sampler, threading.Lock()
        self.sample: Sample = {}

    def __call__(self) -> None:
        with self.lock:
            self.missing -= 1
            last = self.missing == 0
        if last:
            self.sample = self.sampler()


def _start(
    server: Any,
    prompt: Sequence[int],
    output_tokens: int,
    workload: Workload,
    on_first: Callable[[], None] | None = None,
) -> tuple[threading.Thread, Stream]:
    """A request under way in a thread of its own, and the stream that it fills."""
    stream = Stream()
    arguments = (server, prompt, output_tokens, workload.timeout_s, stream, on_first)
    thread = threading.Thread(target=_send, args=arguments, daemon=True)
    thread.start()
    return thread, stream


def run_window(server: Any, workload: Workload, seed: int, vocabulary: int, sampler: Sampler | None = None) -> Window:
    """Send the opener, then all requests at once, and wait for them.

    ``sampler`` reads the processor time of the server's processes; none: the window keeps no such times.

    Raises:
        JobError: ``window-incomplete`` when a request failed or its lengths are not those asked for.
    """
    opening, *texts = prompts(workload, seed, vocabulary)
    turn = _LastFirstToken(len(texts), sampler or dict)
    first = turn.sampler()
    began = time.perf_counter()
    opener = _start(server, opening, 1, workload)
    time.sleep(OPENER_LEAD_S)
    others = [_start(server, text, workload.output_tokens, workload, turn) for text in texts]
    for thread, _ in (opener, *others):
        thread.join(workload.timeout_s)
    wall_s = time.perf_counter() - began
    cpu_s = busiest(first, turn.sample, turn.sampler())
    _check("the opener", opener[1], (workload.opener_tokens, 1))
    for number, (_, stream) in enumerate(others, 1):
        _check(f"request {number} of {len(others)}", stream, (workload.input_tokens, workload.output_tokens))
    return Window(tuple(stream for _, stream in others), wall_s, opener[1].sent_s, cpu_s)


def _check(name: str, stream: Stream, asked: tuple[int, int]) -> None:
    reached = (stream.prompt_tokens, stream.output_tokens)
    if stream.error or reached != asked:
        told = stream.error or f"prompt and output tokens {reached}"
        raise JobError("window-incomplete", f"{name}: {told}, asked for {asked}")


def decode_stretch(window: Window) -> tuple[float, float]:
    """From the last first token to the first last token: every step in it decodes the whole batch."""
    return max(s.token_s[0] for s in window.streams), min(s.token_s[-1] for s in window.streams)


def decode_steps(window: Window) -> list[float]:
    """Seconds per decode step, one value per block of :data:`STEPS_PER_BLOCK` steps of the whole batch.

    Raises:
        JobError: ``client-slow`` when no stream got one chunk per token (vLLM merges tokens for a client
            that lags, so the chunks no longer mark steps), ``window-short`` when no whole block is left.
    """
    begin, end = decode_stretch(window)
    whole = [s.token_s for s in window.streams if len(s.token_s) == s.output_tokens]
    if not whole:
        raise JobError("client-slow", "no stream brought one chunk per token: the client lagged behind the server")
    times = [t for t in whole[0] if begin <= t <= end]
    starts = range(0, len(times) - STEPS_PER_BLOCK, STEPS_PER_BLOCK)
    if not starts:
        raise JobError(
            "window-short",
            f"only {max(0, len(times) - 1)} steps decode the whole batch, {STEPS_PER_BLOCK} are needed; "
            "raise workload.output_tokens or lower workload.input_tokens",
        )
    return [(times[i + STEPS_PER_BLOCK] - times[i]) / STEPS_PER_BLOCK for i in starts]


def decode_context_tokens(window: Window, workload: Workload) -> float:
    """Mean context length, in tokens, of the batch over the decode stretch."""
    begin, end = decode_stretch(window)
    means = []
    for stream in window.streams:
        inside = [i for i, t in enumerate(stream.token_s) if begin <= t <= end]
        means.append(workload.input_tokens + sum(inside) / len(inside))
    return sum(means) / len(means)


def prefill_stretch_s(window: Window) -> float:
    """Seconds from the first request sent to the last first token: all prefill, and whatever ran beside it."""
    return decode_stretch(window)[0] - window.start_s


def prefill_share(window: Window) -> float:
    """Share of a window, from the first request sent to the last token, in which something prefilled."""
    last = max(stream.token_s[-1] for stream in window.streams)
    return prefill_stretch_s(window) / (last - window.start_s)


def tokens_decoded_beside_prefill(window: Window) -> int:
    """Tokens after the first that streams got while others still prefilled."""
    begin = decode_stretch(window)[0]
    return sum(sum(t <= begin for t in stream.token_s) - 1 for stream in window.streams)
