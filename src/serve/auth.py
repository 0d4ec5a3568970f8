"""The key that a server of ours asks for, as middleware of vLLM's API server (``vllm serve --middleware``).

Not by ``VLLM_API_KEY`` alone: it guards ``/v1`` only, here every path asks for the key. And vLLM (0.18 to 0.27,
``compile_factors`` in ``vllm/envs.py``) counts that variable among what compiled code depends on, and writes it into
``cache_key_factors.json`` beside that code. With a key of its own every start compiles its model anew.

On a CPU that is wanted, so there the variable holds the key as well: torch tries what instructions the processor has by
compiling and loading a small library, and takes one that was cut (a killed start, a full disk) for a processor without
them. What is compiled then serves, without vector instructions and with other last bits, and nothing tells. Kernels for
GPUs reach the caches of Triton and torch by a rename, so whole or not at all.
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
