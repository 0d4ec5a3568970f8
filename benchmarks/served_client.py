"""A streaming client that keeps the arrival time of every token, and what a window without prefill says."""

from __future__ import annotations

import http.client
import json
import random
import statistics
import threading
import time
from itertools import pairwise
from typing import Any
from urllib.parse import urlparse


class Stream(threading.Thread):
    """One request; ``times`` holds the arrival of each token in seconds on a common clock."""

    def __init__(self, url: str, api_key: str, body: dict[str, Any], timeout_s: float):
        super().__init__(daemon=True)
        self.url, self.api_key, self.body, self.timeout_s = url, api_key, body, timeout_s
        self.sent, self.times, self.error = 0.0, [], ""  # type: float, list[float], str

    def run(self) -> None:
        where = urlparse(self.url)
        connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=self.timeout_s)
        headers = {"Authorization": f"Bearer {self.api_key}", "Content-Type": "application/json"}
        try:
            # One event may carry several tokens, when they were ready together: the running count tells.
            options = {"include_usage": True, "continuous_usage_stats": True}
            body = json.dumps(self.body | {"stream": True, "stream_options": options})
            self.sent = time.perf_counter()
            connection.request("POST", where.path, body, headers)
            answer = connection.getresponse()
            if answer.status != 200:
                self.error = f"HTTP {answer.status}: {answer.read(400).decode(errors='replace')}"
                return
            while line := answer.readline():
                if line.startswith(b"data: {"):
                    now, event = time.perf_counter(), json.loads(line[6:])
                    tokens = (event.get("usage") or {}).get("completion_tokens", 0)
                    self.times += [now] * (tokens - len(self.times))
                    if "error" in event:
                        self.error = line.decode(errors="replace")[:400]
        except OSError as problem:
            self.error = f"{type(problem).__name__}: {problem}"
        finally:
            connection.close()


def prompts(count: int, tokens: int, vocabulary: int, seed: int) -> list[list[int]]:
    """Random token ids: no two prompts share a prefix."""
    generator = random.Random(seed)
    top = min(vocabulary, 150000)
    return [[generator.randrange(1000, top) for _ in range(tokens)] for _ in range(count)]


def run(
    url: str, api_key: str, model: str, asked: list[list[int]], output_tokens: int, timeout_s: float
) -> list[Stream]:
    """Send all requests at once and wait for all.

    Raises:
        RuntimeError: a request failed or came back short, with the first reason.
    """
    body = {"model": model, "max_tokens": output_tokens, "ignore_eos": True, "temperature": 0}
    streams = [Stream(f"{url}/v1/completions", api_key, body | {"prompt": ids}, timeout_s) for ids in asked]
    for stream in streams:
        stream.start()
    deadline = time.monotonic() + timeout_s
    for stream in streams:
        stream.join(max(0.0, deadline - time.monotonic()))
    short = [stream for stream in streams if stream.error or len(stream.times) < output_tokens]
    if short:
        first = short[0]
        raise RuntimeError(
            f"{len(short)} of {len(streams)} requests failed; the first: {first.error or 'incomplete'}, "
            f"{len(first.times)} of {output_tokens} tokens"
        )
    return streams


def window(streams: list[Stream], skip: int = 4) -> dict[str, Any]:
    """Times between tokens while every request decodes and none is in prefill, in milliseconds.

    The window runs from the last request's first token (``skip`` tokens later, so that the step that
    finished the prefill is outside) to the first request's last token.

    Raises:
        RuntimeError: the window holds fewer than 8 tokens a request: generate more.
    """
    begin = max(stream.times[skip] for stream in streams)
    end = min(stream.times[-1] for stream in streams)
    gaps, means = [], []
    for stream in streams:
        inside = [t for t in stream.times if begin <= t <= end]
        if len(inside) < 8:
            raise RuntimeError(f"only {len(inside)} tokens of a request lie in the window of {end - begin:.2f} s")
        gaps += [(b - a) * 1e3 for a, b in pairwise(inside)]
        means.append((inside[-1] - inside[0]) / (len(inside) - 1) * 1e3)
    ttft = sorted((stream.times[0] - stream.sent) * 1e3 for stream in streams)
    means.sort()
    return {
        "tpot_p50_ms": statistics.median(means), "tpot_low_ms": means[0], "tpot_high_ms": means[-1],
        "itl_p50_ms": statistics.median(gaps), "itl_p99_ms": sorted(gaps)[int(0.99 * (len(gaps) - 1))],
        "tokens_in_window": len(gaps) + len(streams), "window_s": end - begin,
        "ttft_p50_ms": statistics.median(ttft), "ttft_first_ms": ttft[0], "ttft_last_ms": ttft[-1],
    }  # fmt: skip
