"""Which device would serve, and whether it is the declared one: recorded hosts through the whole job."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from adrbench import evidence
from adrbench.device import __main__ as job
from adrbench.job import JobError
from device_fakes import HOSTS, RECORDED, ROOT, FakeHost, device_fp8
from waiting import until

Build = Callable[[str | None], FakeHost]

DECLARED = {name: json.loads((RECORDED / name / "serving.json").read_text())["test"]["declared"] for name in HOSTS}


def run(host: FakeHost, tmp_path: Path, **changes: Any) -> evidence.Evidence:
    output = tmp_path / "results/p/device.json"
    job.work(host.spec(**changes), output)
    assert evidence.verify_files(output) == []
    return evidence.read(output)


def refused(host: FakeHost, tmp_path: Path, **changes: Any) -> JobError:
    with pytest.raises(JobError) as caught:
        run(host, tmp_path, **changes)
    assert not (tmp_path / "results/p/device.json").exists()
    return caught.value


@pytest.mark.parametrize("name", HOSTS)
def test_each_host_is_what_it_declares(fake_host: Build, tmp_path: Path, name: str) -> None:
    found = run(fake_host(name), tmp_path)
    assert (found.resolved["vendor"], found.resolved["arch"]) == (DECLARED[name]["vendor"], DECLARED[name]["arch"])
    assert found.measured["fp8"]["status"] == "passed"
    assert len(found.measured["devices"]) == 1
    answered = [one for one in found.measured["probes"] if one["command"] and one["status"] in ("ok", "malformed")]
    assert len(found.files) == len(answered) >= 4
    assert ("unverified on DCU" in " ".join(found.notes)) == (DECLARED[name]["vendor"] == "hygon")


@pytest.mark.parametrize("name", HOSTS)
@pytest.mark.parametrize("other", HOSTS)
def test_no_host_passes_for_another(fake_host: Build, tmp_path: Path, name: str, other: str) -> None:
    if name == other:
        return
    error = refused(fake_host(name), tmp_path, declared=DECLARED[other], platform=other)
    key = "arch" if DECLARED[name]["vendor"] == DECLARED[other]["vendor"] else "vendor"
    assert error.reason == "wrong-device"
    assert (
        f"config/platforms/{other}.yaml: device.{key}: declared {DECLARED[other][key]}, found {DECLARED[name][key]}"
        in str(error)
    )
    assert "remedy:" in str(error)


def test_the_name_of_a_card_decides_nothing(fake_host: Build, tmp_path: Path) -> None:
    host = fake_host("k100ai")
    host.serving["torch"]["devices"][0]["name"] = "AMD Instinct MI300X"
    host.answer(host.serving)
    assert run(host, tmp_path).resolved["vendor"] == "hygon"


def test_gfx906_is_amd_or_hygon_by_the_host(fake_host: Build, tmp_path: Path) -> None:
    """An MI50 and a Z100 report one architecture; only driver and PCI tell them apart."""
    for name, vendor in (("mi300x", "amd"), ("bw", "hygon")):
        host = fake_host(name)
        host.program("rocminfo", "echo 'Name: amdgcn-amd-amdhsa--gfx906:sramecc+:xnack-'")
        host.serving["torch"].update(
            version="2.10.0", devices=[{**host.serving["torch"]["devices"][0], "arch": "gfx906"}]
        )
        host.answer(host.serving)
        error = refused(host, tmp_path, declared={**host.declared, "vendor": "nvidia", "arch": "sm_90"})
        assert f"found {vendor} (gfx906" in str(error)


def test_one_die_of_a_two_die_module(fake_host: Build, tmp_path: Path) -> None:
    host = fake_host("mi250x")
    error = refused(host, tmp_path, declared={**host.declared, "memory_gib": 128})
    assert "device.memory_gib: declared 128 GiB, found 64.0 GiB" in str(error)


def test_a_larger_card_of_the_same_architecture(fake_host: Build, tmp_path: Path) -> None:
    host = fake_host("mi300x")
    host.serving["torch"]["devices"][0]["memory_bytes"] = 256 << 30
    host.answer(host.serving)
    assert "device.memory_gib: declared 192 GiB, found 256.0 GiB" in str(refused(host, tmp_path))


def test_fewer_devices_than_declared(fake_host: Build, tmp_path: Path) -> None:
    host = fake_host("h200")
    assert "device.devices: declared 2, found 1" in str(
        refused(host, tmp_path, declared={**host.declared, "devices": 2})
    )


def test_runtime_and_tools_that_contradict_each_other(fake_host: Build, tmp_path: Path) -> None:
    host = fake_host("mi250x")
    host.serving["torch"]["devices"][0]["arch"] = "gfx942"
    host.answer(host.serving)
    error = refused(host, tmp_path, declared={**host.declared, "arch": "gfx942"})
    assert error.reason == "device-conflict"
    assert "torch reports gfx942, rocminfo gfx90a" in str(error)


def test_identity_survives_without_any_host_tool(fake_host: Build, tmp_path: Path) -> None:
    host = fake_host("bw")
    for program in list(host.bin.iterdir()):
        program.unlink()
    found = run(host, tmp_path)
    assert found.resolved["arch"] == "gfx936"
    assert found.resolved["driver"] is None


def test_fp8_of_the_wrong_kind_blocks(fake_host: Build, tmp_path: Path) -> None:
    host = fake_host("mi300x")
    host.serving["fp8"]["dtype"] = "float8_e4m3fn"
    host.answer(host.serving)
    error = refused(host, tmp_path)
    assert error.reason == "fp8-self-check"
    assert "vLLM resolves float8_e4m3fn, but gfx942 implies float8_e4m3fnuz" in str(error)


def test_an_fp8_check_that_did_not_run_blocks_serving(fake_host: Build, tmp_path: Path) -> None:
    """The interpreter died in it: everything before was said, nothing about FP8."""
    host = fake_host("mi300x")
    host.serving.pop("fp8")
    host.answer(host.serving)
    error = refused(host, tmp_path)
    assert (error.reason, "not_run" in str(error)) == ("fp8-self-check", True)


@pytest.mark.parametrize("vendor_host", ["h200", "mi300x"])
def test_a_cpu_build_may_serve_on_an_accelerator_host(fake_host: Build, tmp_path: Path, vendor_host: str) -> None:
    host = fake_host(vendor_host)
    vllm = {"version": "0.27.0", "platform": "cpu", "platform_class": "vllm.platforms.cpu.CpuPlatform", "aiter": False}
    torch = {"version": "2.13.0+cpu", "hip": None, "cuda": None, "devices": []}
    host.answer({**host.serving, "torch": torch, "vllm": vllm, "fp8": device_fp8("float8_e4m3fn")})
    found = run(host, tmp_path, declared={"vendor": "cpu", "arch": os.uname().machine})
    assert found.resolved["vendor"] == "cpu"
    assert [note for note in found.notes if "the host also has" in note]


def test_an_accelerator_build_does_not_serve_as_cpu(fake_host: Build, tmp_path: Path) -> None:
    host = fake_host("h200")
    error = refused(host, tmp_path, declared={"vendor": "cpu", "arch": "x86_64"})
    assert "device.vendor: declared cpu, found nvidia" in str(error)


def test_without_vllm_the_host_can_be_described_but_nothing_serves(fake_host: Build, tmp_path: Path) -> None:
    host = fake_host("h200")
    host.serving.update(vllm=None)
    host.serving.pop("fp8")
    host.answer(host.serving)
    assert refused(host, tmp_path).reason == "no-vllm"
    found = run(host, tmp_path, needs_vllm=False)
    assert (found.resolved["vllm"], found.resolved["arch"]) == (None, "sm_90")
    assert found.measured["fp8"]["status"] == "not_run"
    assert any("FP8 self-check not run" in note for note in found.notes)


def test_without_torch_the_tools_identify_the_card(fake_host: Build, tmp_path: Path) -> None:
    for name in ("h200", "mi300x", "k100ai"):
        host = fake_host(name)
        host.serving.update(vllm=None, torch=None)
        host.serving.pop("fp8")
        host.answer(host.serving)
        assert refused(host, tmp_path).reason == "no-torch"
        found = run(host, tmp_path, needs_vllm=False)
        assert found.resolved["arch"] == DECLARED[name]["arch"]
        (tmp_path / "results/p/device.json").unlink()


def test_the_missing_toolkit_environment_is_named(fake_host: Build, tmp_path: Path) -> None:
    host = fake_host("bw")
    trouble = {"version": "2.9.0", "problem": "ImportError: libgalaxyhip.so.5: cannot open shared object file"}
    host.answer({**host.serving, "torch": trouble, "vllm": None})
    error = refused(host, tmp_path)
    assert error.reason == "no-torch"
    assert "env.sh" in str(error)


def test_vllm_that_sees_no_device_on_the_right_host(fake_host: Build, tmp_path: Path) -> None:
    host = fake_host("h200")
    host.serving["vllm"].update(platform="none", platform_class="vllm.platforms.interface.UnspecifiedPlatform")
    host.answer(host.serving)
    assert refused(host, tmp_path).reason == "vllm-platform"


@pytest.mark.parametrize(
    ("body", "status", "limit_s"),
    [("exit 1", "failed", 60.0), ("exec /bin/sleep 600", "timeout", 0.5)],
    ids=["broken", "hanging"],
)
def test_a_serving_interpreter_that_does_not_answer(
    fake_host: Build, tmp_path: Path, body: str, status: str, limit_s: float
) -> None:
    host = fake_host("h200")
    host.python.write_text(f"#!/bin/sh\n{body}\n")
    error = refused(host, tmp_path, limit_s=limit_s)
    assert error.reason == "no-serving-python"
    assert "serve.python" in str(error)
    assert status in str(error)
    host.python.unlink()
    assert refused(host, tmp_path).reason == "no-serving-python"


def test_an_import_of_vllm_that_hangs_leaves_what_torch_said(fake_host: Build, tmp_path: Path) -> None:
    host = fake_host("h200")
    host.answer({key: host.serving[key] for key in ("python", "packages", "torch")} | {"stage": "vllm"})
    host.python.write_text(host.python.read_text().replace("exec ", "") + "exec /bin/sleep 600\n")
    error = refused(host, tmp_path, limit_s=5.0)
    assert (error.reason, "while reading vllm" in str(error)) == ("no-vllm", True)


def test_the_declared_release_of_vllm(fake_host: Build, tmp_path: Path) -> None:
    host = fake_host("bw")
    assert run(host, tmp_path, vllm_version="0.18.1").resolved["vllm"] == "0.18.1+das.dtk2604"
    (tmp_path / "results/p/device.json").unlink()
    error = refused(host, tmp_path, vllm_version="0.18")
    assert error.reason == "wrong-vllm"
    assert "serve.vllm_version: declared 0.18, found 0.18.1+das.dtk2604" in str(error)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"declared": {"vendor": "amd", "arch": "MI300X"}}, "declared.arch"),
        ({"declared": {"vendor": "intel", "arch": "x86_64"}}, "declared.vendor"),
        ({"declared": {"vendor": "cpu", "arch": "x86_64", "devices": 0}}, "declared.devices"),
        ({"extra": 1}, "extra"),
    ],
)
def test_a_bad_specification_names_its_key(fake_host: Build, tmp_path: Path, change: dict[str, Any], key: str) -> None:
    error = refused(fake_host("bw"), tmp_path, **change)
    assert error.reason == "bad-spec"
    assert key in str(error)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_interrupted_job_leaves_no_process(fake_host: Build, tmp_path: Path, number: signal.Signals) -> None:
    host = fake_host("h200")
    pid_file = tmp_path / "pid"
    host.python.write_text(
        f"#!/bin/sh\necho $$ > {pid_file}.part; /bin/mv {pid_file}.part {pid_file}\nexec /bin/sleep 600\n"
    )
    command = [
        sys.executable,
        "-m",
        "adrbench.device",
        "--spec",
        json.dumps(host.spec()),
        "--output",
        str(tmp_path / "d.json"),
    ]
    job_process = subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": str(ROOT / "pythonpath")}, stderr=subprocess.PIPE
    )
    assert until(pid_file.exists)
    child = int(pid_file.read_text())
    job_process.send_signal(number)
    _, said = job_process.communicate(timeout=60)
    assert job_process.returncode == 130
    assert b"interrupted" in said
    assert until(lambda: not Path(f"/proc/{child}").exists())
    assert not (tmp_path / "d.json").exists()
