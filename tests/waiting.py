"""Waiting for what a test asserts, with a limit that a busy host does not reach."""

from __future__ import annotations

import time
from collections.abc import Callable

# Reached only when the condition never holds: how long it takes is no test's subject.
LIMIT_S = 60.0


def until(condition: Callable[[], object], limit_s: float = LIMIT_S) -> bool:
    """Wait until ``condition()`` is true; whether it became true within ``limit_s`` seconds."""
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
