"""The key that a server of ours asks for, as middleware of vLLM's API server (``vllm serve --middleware``).

Not by ``VLLM_API_KEY``: vLLM (0.18 to 0.27, ``compile_factors`` in ``vllm/envs.py``) counts that variable among what
compiled code depends on. A key of its own would make every start compile its model anew, and vLLM writes the key into
``cache_key_factors.json`` beside the compiled code. It also guards ``/v1`` only; here every path asks for the key.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

VARIABLE = "ADRBENCH_API_KEY"
MIDDLEWARE = f"{__name__}.KeyRequired"
UNAUTHORIZED = json.dumps({"error": "Unauthorized"}).encode()

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]


class KeyRequired:
    """ASGI middleware: requests without ``Authorization: Bearer <key>`` get 401 and reach nothing.

    Raises:
        RuntimeError: the environment names no key; the server does not start.
    """

    def __init__(self, app: Application) -> None:
        if not (key := os.environ.get(VARIABLE)):
            raise RuntimeError(f"{VARIABLE} is not set: this server would answer everybody")
        self.app, self.expected = app, f"Bearer {key}".encode()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or self._allowed(scope):
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            headers = [(b"content-type", b"application/json"), (b"content-length", str(len(UNAUTHORIZED)).encode())]
            await send({"type": "http.response.start", "status": 401, "headers": headers})
            await send({"type": "http.response.body", "body": UNAUTHORIZED})
        else:
            await send({"type": "websocket.close", "code": 1008})

    def _allowed(self, scope: Message) -> bool:
        given = [value for name, value in scope.get("headers", ()) if name.lower() == b"authorization"]
        return len(given) == 1 and secrets.compare_digest(given[0], self.expected)
