"""A fake vLLM for injected faults: echoes the prompt, counts requests like vLLM's /metrics.

Usage: fake_vllm.py PORT_FILE SETTINGS_JSON. Settings: ``fail_on``: answer HTTP 500 to prompts that
contain this text; ``abort_on``: answer 200 but count the request as aborted; ``die_after``: exit at this request.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

SETTINGS = json.loads(sys.argv[2])
COUNTS = {"stop": 0, "abort": 0, "tokens": 0, "requests": 0}
LOCK = threading.Lock()


class Handler(BaseHTTPRequestHandler):
    def reply(self, code: int, body: str, kind: str = "application/json") -> None:
        data = body.encode()
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        lines = [f'vllm:request_success_total{{finished_reason="{k}"}} {COUNTS[k]}.0' for k in ("stop", "abort")]
        self.reply(
            200, "\n".join([*lines, f'vllm:prompt_tokens_total{{engine="0"}} {COUNTS["tokens"]}.0', ""]), "text/plain"
        )

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompt = request["messages"][0]["content"]
        assert isinstance(prompt, str), "content must be a string"
        assert self.headers["Authorization"] == "Bearer test-key"
        assert request["temperature"] == 0
        with LOCK:
            COUNTS["requests"] += 1
            if COUNTS["requests"] == SETTINGS.get("die_after"):
                os._exit(1)
        if (text := SETTINGS.get("fail_on")) and text in prompt:
            return self.reply(500, '{"error": {"message": "injected failure"}}')
        aborted = (text := SETTINGS.get("abort_on")) and text in prompt
        with LOCK:
            COUNTS["abort" if aborted else "stop"] += 1
            COUNTS["tokens"] += len(prompt)
        message = {"role": "assistant", "content": prompt}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        answer = {
            "id": "x",
            "object": "chat.completion",
            "created": 0,
            "model": "model",
            "choices": [choice],
            "usage": usage,
        }
        return self.reply(200, json.dumps(answer))

    def log_message(self, *_: object) -> None:
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
partial = Path(sys.argv[1] + ".new")
partial.write_text(str(server.server_address[1]))
partial.rename(sys.argv[1])
server.serve_forever()
