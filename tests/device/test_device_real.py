"""The job on this machine, as the workflow runs it, with the real serving interpreter: one import of vLLM in all.

Proves the CPU platform only, and the wrong-device refusal on a host that really is not the declared one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from adrbench import evidence
from device_fakes import ROOT

SERVE = ROOT / ".envs/serve/bin/python"


def run(spec: dict[str, object], output: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "pythonpath"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "adrbench.device", "--spec", json.dumps(spec), "--output", str(output)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, cwd=output.parent)


@pytest.fixture(scope="session")
def cpu_evidence(tmp_path_factory: pytest.TempPathFactory) -> evidence.Evidence:
    folder = tmp_path_factory.mktemp("device")
    declared = {"vendor": "cpu", "arch": os.uname().machine, "devices": 1, "memory_gib": 1}
    done = run({"platform": "cpu", "declared": declared, "serve_python": str(SERVE)}, folder / "device.json")
    assert done.returncode == 0, done.stderr
    assert evidence.verify_files(folder / "device.json") == []
    return evidence.read(folder / "device.json")


def test_what_serves_here(cpu_evidence: evidence.Evidence) -> None:
    resolved = cpu_evidence.resolved
    assert (resolved["vendor"], resolved["arch"], resolved["vllm_platform"]) == ("cpu", os.uname().machine, "cpu")
    assert resolved["vllm"]
    assert resolved["torch"]
    assert resolved["python"]
    assert "auto" in resolved["kv_cache_dtypes"]
    assert "CPU_ATTN" in resolved["attention_backends"]
    assert resolved["candidate_backends"] == ["CPU_ATTN"]


def test_the_fp8_self_check_ran_on_this_device(cpu_evidence: evidence.Evidence) -> None:
    check = cpu_evidence.measured["fp8"]
    assert (check["status"], check["codes_compared"], check["resolved_dtype"]) == ("passed", 256, "float8_e4m3fn")
    assert check["codes"] == {"0x7e": "448", "0x7f": "nan", "0x80": "-0", "0xff": "nan"}


def test_processor_and_probes(cpu_evidence: evidence.Evidence) -> None:
    assert cpu_evidence.measured["cpu"]["cores_usable"] == len(os.sched_getaffinity(0))
    assert cpu_evidence.measured["devices"][0]["memory_bytes"] > 1 << 30
    assert [one["name"] for one in cpu_evidence.measured["probes"]][-1] == "serving interpreter"


def test_a_platform_that_this_host_is_not(tmp_path: Path) -> None:
    """A serving interpreter without torch and vLLM, to keep this quick: the host alone refuses the declaration."""
    declared = {"vendor": "hygon", "arch": "gfx936", "devices": 1, "memory_gib": 64}
    spec = {"platform": "dcu-bw", "declared": declared, "serve_python": sys.executable, "needs_vllm": False}
    if Path("/dev/kfd").exists() or Path("/dev/nvidiactl").exists():
        pytest.skip("this host has an accelerator")
    done = run(spec, tmp_path / "device.json")
    assert done.returncode == 1
    assert "config/platforms/dcu-bw.yaml: device.vendor: declared hygon, found cpu" in done.stderr
    assert not (tmp_path / "device.json").exists()
    (record,) = (tmp_path / "rejected").glob("device-*.json")
    assert json.loads(record.read_text())["reason"] == "wrong-device"
