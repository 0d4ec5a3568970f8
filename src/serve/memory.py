"""Device memory around a server: what it took must be free again before the next one starts.

A driver frees a killed process's memory some seconds later; a server started meanwhile would find less,
size its KV pool by it, and be measured as another arm.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Literal

from adrbench.device.telemetry import DeviceSource, Unavailable, visible
from adrbench.job import JobError

Kind = Literal["cpu", "nvidia", "amd", "hygon"]
# Contexts and fragmentation of others move by less than this.
SLACK_BYTES = 512 << 20
LIMIT_S = 60.0


def used_bytes(kind: Kind) -> float | None:
    """Memory in use on the visible devices in bytes; None on a CPU, or where no tool tells."""
    if kind == "cpu":
        return None
    try:
        return DeviceSource(kind, visible(kind), Path("/")).read().get("memory_used_bytes")
    except (Unavailable, OSError, ValueError):
        return None


def wait_free(kind: Kind, before: float | None, limit_s: float = LIMIT_S) -> None:
    """Wait until the devices use no more memory than ``before`` the server started.

    Raises:
        JobError: ``device-memory`` after ``limit_s``, with both figures.
    """
    deadline = time.monotonic() + limit_s
    while before is not None:
        now = used_bytes(kind)
        if now is None or now <= before + SLACK_BYTES:
            return
        if time.monotonic() > deadline:
            raise JobError(
                "device-memory",
                f"{now / 2**30:.1f} GiB of device memory are in use {limit_s:.0f} s after the server ended, "
                f"{before / 2**30:.1f} GiB were before it started: another process took it, or the driver lost it",
            )
        time.sleep(1)
