"""What a report is told of the host: the device that computes, not what its torch could have used."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from adrbench.device.__main__ import resolved

RECORD = {
    "torch": {"version": "2.10.0+cu128", "cuda": "12.8"},
    "vllm": {"version": "0.18.1"},
    "python": {"version": "3.11"},
}


@pytest.mark.parametrize(("vendor", "arch", "runtime"), [("cpu", "x86_64", "CPU"), ("nvidia", "sm_90", "CUDA 12.8")])
def test_runtime_is_that_of_the_device(vendor, arch, runtime):
    """A CUDA build of torch on a host without a GPU was once reported as CUDA."""
    found = SimpleNamespace(vendor=vendor, arch=arch, name="x", host_vendors=(), driver=None)
    assert resolved(found, RECORD, {"status": "passed"})["runtime"] == runtime
