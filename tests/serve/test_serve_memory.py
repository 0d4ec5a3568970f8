"""Waiting for device memory, against stand-ins for a driver: its delay, and a leak.

Cannot prove what a real driver does; unverified on DCU.
"""

from __future__ import annotations

import sys

import pytest
from adrbench.job import JobError
from adrbench.serve import memory

GIB = 2**30


@pytest.fixture
def readings(monkeypatch):
    """Replace the device's readings by a list of bytes, the last one repeated."""

    def install(values: list[float | None]) -> None:
        left = list(values)
        monkeypatch.setattr(memory, "used_bytes", lambda _kind: left.pop(0) if len(left) > 1 else left[0])
        monkeypatch.setattr(memory.time, "sleep", lambda _seconds: None)

    return install


def test_memory_that_is_freed_late_is_waited_for(readings):
    readings([60 * GIB, 30 * GIB, 1 * GIB])
    memory.wait_free("nvidia", 1 * GIB)


def test_memory_that_stays_taken_is_an_error(readings):
    readings([60 * GIB])
    with pytest.raises(JobError, match=r"60.0 GiB of device memory are in use") as caught:
        memory.wait_free("nvidia", 1 * GIB, limit_s=0.01)
    assert caught.value.reason == "device-memory"


def test_a_cpu_has_nothing_to_wait_for():
    assert memory.used_bytes("cpu") is None
    memory.wait_free("cpu", None)


def test_the_tool_is_asked(tmp_path, monkeypatch):
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!{sys.executable}\nprint('0, 120.5, 1024, 1980, 3201, 97, 40')\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert memory.used_bytes("nvidia") == 1024 * 2**20
