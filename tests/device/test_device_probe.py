"""Probing a host through its programs: recorded outputs, and every way in which a program can disappoint."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from adrbench.device.tools import Probe, call
from device_fakes import HOSTS, FakeHost
from waiting import until

Build = Callable[[str | None], FakeHost]


def by_name(probes: list[Probe]) -> dict[str, Probe]:
    return {one.name: one for one in probes}


def test_order_is_cheapest_first(fake_host: Build) -> None:
    names = [one.name for one in fake_host(None).probes()]
    assert names == [
        "/dev/kfd", "/dev/mkfd", "/opt/hyhal", "/opt/dtk", "lsmod", "lspci", "rocminfo", "hy-smi", "rocm-smi",
        "nvidia-smi", "/proc/cpuinfo",
    ]  # fmt: skip


def test_a_host_without_anything_is_a_processor(fake_host: Build) -> None:
    probes = by_name(fake_host(None).probes())
    assert {name for name, one in probes.items() if one.status == "ok"} == {"/proc/cpuinfo"}
    assert {one.status for name, one in probes.items() if name != "/proc/cpuinfo"} == {"absent"}
    assert probes["/proc/cpuinfo"].facts["cores_usable"] == len(os.sched_getaffinity(0))


def test_bw_with_malformed_json(fake_host: Build) -> None:
    probes = by_name(fake_host("bw").probes())
    smi = probes["hy-smi"]
    assert smi.status == "malformed"
    assert smi.facts["problems"] == ["2 missing comma(s) added", "blank key dropped"]
    card = smi.facts["cards"][0]
    assert (card["power_w"], card["clock_core_mhz"], card["clock_memory_mhz"]) == (91.0, 1350.0, 1800.0)
    assert (card["memory_bytes"], card["memory_used_bytes"]) == (65520 << 20, 9703 << 20)
    assert probes["rocminfo"].facts["agents"][0]["arch"] == "gfx936"
    assert probes["rocminfo"].facts["hygon"]
    assert [d["id"] for d in probes["lspci"].facts["accelerators"]] == ["1d94:6370"]
    assert probes["lsmod"].facts["modules"] == {"hycu": "hygon"}
    assert probes["/dev/mkfd"].status == "ok"


def test_json_beyond_repair_falls_back_to_the_table(fake_host: Build, tmp_path: Path) -> None:
    host = fake_host("bw")
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut/hy-smi.json").write_text('{"card0": {"Card Series": "BW", "vram To')
    (tmp_path / "cut/hy-smi.txt").write_text((Path(__file__).parent / "recorded/bw/hy-smi.txt").read_text())
    host.replay("hy-smi", tmp_path / "cut")
    smi = by_name(host.probes())["hy-smi"]
    assert smi.status == "malformed"
    assert smi.facts["cards"] == [
        {"index": 0, "power_w": 157.0, "utilisation_percent": 0.0, "memory_used_percent": 0.0, "temperature_c": 40.0}
    ]
    assert "unexpected text" in smi.summary or "no JSON object" in smi.summary


def test_rocm_smi_that_is_an_alias_of_hy_smi(fake_host: Build, tmp_path: Path) -> None:
    host = fake_host("k100ai")
    host.program("rocm-smi", f'exec {host.bin}/hy-smi "$@"')
    assert by_name(host.probes())["rocm-smi"].facts["hygon"]


def test_a_hanging_tool_costs_its_limit_and_nothing_else(fake_host: Build, tmp_path: Path) -> None:
    host = fake_host("k100ai")
    pid_file = tmp_path / "pid"
    host.program("hy-smi", f"/bin/sleep 600 & echo $! > {pid_file}\nwait")
    started = time.monotonic()
    probes = by_name(host.probes(limit_s=0.5))
    assert time.monotonic() - started < 60
    assert (probes["hy-smi"].status, probes["hy-smi"].summary) == ("timeout", "no end within 0.5 s")
    assert probes["rocminfo"].status == "ok", "the other probes still ran"
    assert until(lambda: not _alive(int(pid_file.read_text()))), "the hanging program's child is gone as well"


def _alive(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def test_a_background_child_that_keeps_the_output_open_does_not_hold_the_caller() -> None:
    output = call(["/bin/sh", "-c", "/bin/sleep 600 & echo $!"], limit_s=60)
    child = int(output.text)
    try:
        assert (output.status, _alive(child)) == ("ok", True)
    finally:
        os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("echo 'cannot open driver' >&2; exit 9", "failed"),
        ("exit 1", "failed"),
        ("kill -SEGV $$", "failed"),
        ("echo something else entirely", "malformed"),
        ("printf '\\377\\376\\000'", "malformed"),
        (":", "malformed"),
    ],
    ids=["message", "silent", "crash", "prose", "binary", "nothing"],
)
@pytest.mark.parametrize("tool", ["hy-smi", "rocm-smi", "nvidia-smi", "rocminfo"])
def test_every_way_to_disappoint_is_recorded(fake_host: Build, tool: str, body: str, status: str) -> None:
    host = fake_host(None)
    host.program(tool, body)
    probe = by_name(host.probes())[tool]
    assert probe.status == status
    assert probe.summary


def test_a_program_without_the_right_to_run_is_not_found(fake_host: Build) -> None:
    host = fake_host(None)
    host.program("nvidia-smi", ":").chmod(0o644)
    assert by_name(host.probes())["nvidia-smi"].status == "absent"


def test_a_tool_outside_path_is_found_in_the_vendor_folder(fake_host: Build) -> None:
    host = fake_host("bw")
    folder = host.root / "opt/dtk/bin"
    folder.mkdir(parents=True)
    (host.bin / "rocminfo").rename(folder / "rocminfo")
    assert by_name(host.probes())["rocminfo"].status == "ok"


def test_pci_and_modules_without_programs(fake_host: Build) -> None:
    host = fake_host(None)
    (host.root / "proc/modules").write_text("amdgpu 17997824 0 - Live 0x0\n")
    function = host.root / "sys/bus/pci/devices/0000:05:00.0"
    function.mkdir(parents=True)
    for name, text in (("class", "0x120000\n"), ("vendor", "0x1002\n"), ("device", "0x74a1\n")):
        (function / name).write_text(text)
    probes = by_name(host.probes())
    assert probes["lsmod"].facts["modules"] == {"amdgpu": "amd"}
    assert [d["vendor"] for d in probes["lspci"].facts["accelerators"]] == ["amd"]


@pytest.mark.parametrize("name", HOSTS)
def test_raw_text_is_kept_for_every_program_that_answered(fake_host: Build, name: str) -> None:
    for one in fake_host(name).probes():
        if one.command and one.status in ("ok", "malformed"):
            assert one.raw, one.name
