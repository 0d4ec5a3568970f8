"""Leases of devices: exclusive, complete, and gone with their holder, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from adrbench.device import lease as leases
from adrbench.device.lease import LeaseError, _by_queue, granted, lease, numbers, on_host
from adrbench.paths import ROOT

# A number must mean the same card to CUDA and to nvidia-smi.
ORDER = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}

HOLD = """
import os, sys, time
from pathlib import Path
from adrbench.device.lease import lease
say = lambda text: print(text, flush=True)
found = lease("nvidia", int(sys.argv[2]), {}, Path(sys.argv[1]), Path(sys.argv[3]), say)
print(",".join(found.devices), flush=True)
time.sleep(float(sys.argv[4]))
"""


@pytest.fixture
def host(tmp_path):
    """A host with four NVIDIA devices."""
    (tmp_path / "dev").mkdir()
    for name in ("nvidia0", "nvidia1", "nvidia2", "nvidia10", "nvidiactl", "nvidia-uvm"):
        (tmp_path / "dev" / name).touch()
    return tmp_path


def holder(host, wanted: int, seconds: float) -> subprocess.Popen:
    argv = [sys.executable, "-c", HOLD, str(host / "leases"), str(wanted), str(host), str(seconds)]
    env = os.environ | {"PYTHONPATH": str(ROOT / "pythonpath")}
    return subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True)


def test_devices_of_a_host(host):
    assert on_host("nvidia", host) == ["0", "1", "2", "10"]


@pytest.mark.parametrize(
    ("tool", "expected"),
    [
        ("echo 0", ["0"]),
        ("printf '0\\n1\\n'", ["0", "1"]),
        ("echo 'No devices were found'; exit 6", None),
        ("echo 'Failed to initialize NVML'", None),
    ],
)
def test_devices_are_counted_as_the_driver_counts_them(tool, expected, tmp_path, monkeypatch):
    """A container that was given /dev/nvidia5 alone has device 0; without an answer device files are what is left."""
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{tool}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    by_files = sorted((p.name.removeprefix("nvidia") for p in Path("/dev").glob("nvidia[0-9]*")), key=int)
    assert on_host("nvidia") == (by_files if expected is None else expected)


def test_a_run_that_sees_one_card_leases_that_one(host):
    """CUDA_VISIBLE_DEVICES=1 of the workflow: its jobs get card 1 and ask their tools for it, none gets card 0."""
    code = """
import os, sys
from pathlib import Path
from adrbench.device.lease import lease
from adrbench.device.telemetry import visible
from adrbench.serve.process import job_environment
lease("nvidia", 1, folder=Path(sys.argv[1]), root=Path(sys.argv[2]))
child = job_environment()
print(child["CUDA_VISIBLE_DEVICES"], child["CUDA_DEVICE_ORDER"], visible("nvidia"))
"""
    env = os.environ | {"PYTHONPATH": str(ROOT / "pythonpath"), "CUDA_VISIBLE_DEVICES": "1"}
    env.pop("SLURM_JOB_ID", None)
    done = subprocess.run(
        [sys.executable, "-c", code, str(host / "leases"), str(host)], env=env, capture_output=True, text=True
    )
    assert done.stdout.split("\n")[0] == "1 PCI_BUS_ID ('1',)", done.stderr
    other = lease("nvidia", 1, {"CUDA_VISIBLE_DEVICES": "0"}, host / "leases", host)
    assert other.devices == ("0",)
    other.release()


def test_gpu_nodes_of_amd_and_hygon(tmp_path):
    for node, gpu in enumerate(["0", "51234", "777"]):
        folder = tmp_path / f"sys/class/kfd/kfd/topology/nodes/{node}"
        folder.mkdir(parents=True)
        (folder / "gpu_id").write_text(gpu + "\n")
    assert on_host("hygon", tmp_path) == ["0", "1"]


def test_cpu_leases_nothing(tmp_path):
    assert lease("cpu", 1, {}, tmp_path / "leases") is None
    assert not (tmp_path / "leases").exists()


def test_leases_are_exclusive_and_end_with_release(host):
    first_env, second_env = {}, {}
    first = lease("nvidia", 3, first_env, host / "leases", host)
    second = lease("nvidia", 1, second_env, host / "leases", host)
    try:
        assert first_env == {"CUDA_VISIBLE_DEVICES": "0,1,2", **ORDER}
        assert second_env == {"CUDA_VISIBLE_DEVICES": "10", **ORDER}
        assert set(leases.held) >= {*first.descriptors, *second.descriptors}
    finally:
        first.release()
    third = lease("nvidia", 3, {}, host / "leases", host)
    assert third.devices == ("0", "1", "2")
    third.release()
    second.release()


def test_a_set_variable_limits_the_choice(host):
    environment = {"CUDA_VISIBLE_DEVICES": "2,10"}
    found = lease("nvidia", 1, environment, host / "leases", host)
    assert environment["CUDA_VISIBLE_DEVICES"] == "2"
    found.release()


@pytest.mark.parametrize(
    ("environment", "words"),
    [({}, "this host has 4"), ({"CUDA_VISIBLE_DEVICES": "1"}, "CUDA_VISIBLE_DEVICES=1 allows 1")],
)
def test_too_few_devices_are_refused_at_once(host, environment, words):
    with pytest.raises(LeaseError, match=words):
        lease("nvidia", 5, environment, host / "leases", host)


def test_kill_of_a_holder_frees_its_device(host):
    process = holder(host, 4, 60)
    assert process.stdout.readline().strip() == "0,1,2,10"
    process.send_signal(signal.SIGKILL)
    process.wait()
    found = lease("nvidia", 4, {}, host / "leases", host)
    assert len(found.devices) == 4
    found.release()


def test_a_job_waits_and_says_so(host):
    process, said = holder(host, 3, 600), []
    process.stdout.readline()

    def say(text: str) -> None:
        said.append((text, process.poll()))
        process.kill()

    found = lease("nvidia", 2, {}, host / "leases", host, say=say)
    assert "waiting for 2 of the nvidia devices" in said[0][0]
    assert said[0][1] is None, "it waited while the devices were held"
    assert len(found.devices) == 2
    found.release()
    process.wait()


def test_a_waiting_job_keeps_nothing(host):
    """A job that waits for two devices must not keep the one that is free."""
    one = holder(host, 3, 600)
    one.stdout.readline()
    two = holder(host, 2, 0)
    assert "waiting for 2" in two.stdout.readline()
    last = holder(host, 1, 0)
    assert last.stdout.readline().strip() == "10"
    for process in (one, two, last):
        process.kill()
        process.wait()


def test_the_guardian_keeps_the_lease_of_a_killed_job(host):
    """The device of a killed job is free only when its server is gone."""
    code = f"""
import os, signal, sys
from pathlib import Path
from adrbench.device.lease import lease
from adrbench.serve.process import Guarded, job_environment
lease("nvidia", 4, {{}}, Path({str(host / "leases")!r}), Path({str(host)!r}))
code = "import os, signal, time; signal.signal(15, signal.SIG_IGN); print(os.getpid(), flush=True); time.sleep(600)"
stubborn = [sys.executable, "-c", code]
Guarded(stubborn, Path({str(host / "log")!r}), job_environment(), grace_s=1.5)
while not (said := open({str(host / "log")!r}).read()).endswith("\\n"):
    pass
print(said, end="", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    env = os.environ | {"PYTHONPATH": str(ROOT / "pythonpath")}
    process = subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, text=True)
    server = int(process.stdout.readline())
    process.wait()
    found = lease("nvidia", 4, {}, host / "leases", host)
    assert not Path(f"/proc/{server}").exists(), "the lease was free before the server had ended"
    found.release()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("   Nodes=dcu01 CPU_IDs=0-7 Mem=300 GRES=dcu:2(IDX:0-1)\n", ["0", "1"]),
        ("   Nodes=dcu01 CPU_IDs=0 Mem=300 GRES=gpu:h200:1(IDX:3)\n", ["3"]),
        ("   Nodes=dcu01 CPU_IDs=0 Mem=300 GRES=dcu:3(IDX:0,2-3)\n", ["0", "2", "3"]),
        ("   Nodes=dcu01 CPU_IDs=0 Mem=300 GRES=\n", None),
    ],
)
def test_what_the_queue_granted(text, expected):
    assert granted(text) == expected


def test_what_the_queue_granted_to_a_job_of_any_name(tmp_path, monkeypatch):
    (tmp_path / "job").write_bytes(b"JobName=\xce\xc4\n     Nodes=a CPU_IDs=0 Mem=0 GRES=dcu:1(IDX:3)\n")
    program = tmp_path / "scontrol"
    program.write_text(f"#!/bin/sh\ncat {tmp_path}/job\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert _by_queue({"SLURM_JOB_ID": "12"}) == granted((tmp_path / "job").read_text(errors="replace")) == ["3"]


def test_in_a_queued_job_nothing_is_leased(host):
    """With constrained devices each job sees a number 0: a lease on it would make them wait for each other."""
    environment = {"SLURM_JOB_ID": "1", "CUDA_VISIBLE_DEVICES": "0"}
    found = lease("nvidia", 1, environment, host / "leases", host)
    assert found.descriptors == ()
    assert not (host / "leases").exists()


def test_ranges():
    assert numbers("0-2,5") == ["0", "1", "2", "5"]
