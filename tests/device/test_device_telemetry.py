"""Sampling beside a measurement: values by hand, faults that must not reach the measurement."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from adrbench.device import neighbours as who
from adrbench.device import telemetry
from adrbench.device.telemetry import Sampler
from device_fakes import FakeHost
from waiting import until

Build = Callable[[str | None], FakeHost]
MIB = 1 << 20


def wait_for(sampler: Sampler, samples: int) -> None:
    assert until(lambda: len(sampler.samples) >= samples), sampler.problems


def test_summary_by_hand() -> None:
    samples = [
        {"power_w": 10.0, "memory_used_bytes": 4.0},
        {"power_w": 30.0},
        {"power_w": 11.0, "memory_used_bytes": 7.0},
    ]
    assert telemetry.summarise(samples) == {
        "memory_used_bytes": {"min": 4, "median": 6, "max": 7, "samples": 2},
        "power_w": {"min": 10.0, "median": 11.0, "max": 30.0, "samples": 3},
    }


def test_two_devices_add_power_and_keep_the_slower_clock() -> None:
    devices = [
        {"power_w": 100.0, "memory_used_bytes": 1.0, "clock_core_mhz": 1500.0, "utilisation_percent": 100.0},
        {"power_w": 50.0, "memory_used_bytes": 2.0, "clock_core_mhz": 1400.0, "utilisation_percent": 0.0},
    ]
    assert telemetry.combine(devices) == {
        "power_w": 150.0, "memory_used_bytes": 3.0, "clock_core_mhz": 1400.0, "utilisation_percent": 50.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("host", "kind", "expected"),
    [
        (
            "h200",
            "nvidia",
            {"power_w": 350.12, "memory_used_bytes": 1024 * MIB, "clock_core_mhz": 1800, "utilisation_percent": 75},
        ),
        (
            "mi300x",
            "amd",
            {"power_w": 138, "memory_used_bytes": 297287680, "clock_core_mhz": 132, "clock_memory_mhz": 900},
        ),
        (
            "bw",
            "hygon",
            {"power_w": 91, "memory_used_bytes": 9703 * MIB, "clock_core_mhz": 1350, "utilisation_percent": 0},
        ),
    ],
)
def test_recorded_tools(fake_host: Build, host: str, kind: telemetry.Kind, expected: dict[str, float]) -> None:
    fake = fake_host(host)
    with Sampler(kind, interval_s=0.01, root=fake.root) as sampler:
        wait_for(sampler, 2)
    summary = sampler.summary()
    for name, value in expected.items():
        assert summary[name]["median"] == pytest.approx(value), name
        assert summary[name]["samples"] >= 2
    assert not [reason for reason in summary["absent"] if any(reason.startswith(name) for name in expected)]


def test_a_tool_that_refuses_the_options_is_asked_for_its_table(fake_host: Build) -> None:
    fake = fake_host("bw")
    table = Path(__file__).parent / "recorded/bw/hy-smi.txt"
    fake.program("hy-smi", f'[ $# = 0 ] || {{ echo "unrecognized arguments" >&2; exit 2; }}\nexec /bin/cat {table}')
    with Sampler("hygon", interval_s=0.01, root=fake.root) as sampler:
        wait_for(sampler, 1)
    assert sampler.summary()["power_w"]["median"] == 157
    assert any(reason.startswith("memory_used_bytes") for reason in sampler.summary()["absent"])


def test_only_the_visible_devices_are_sampled(fake_host: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = fake_host("h200")
    rows = ["0, 100, 1, 1, 1, 1, 1", "1, 700, 1, 1, 1, 1, 1"]
    cases = [("1", rows[1:]), ("0,1", rows), ("GPU-b", rows[1:])]
    text = "".join(f"*--id={ids}) printf '%s\\n' {' '.join(repr(row) for row in said)};;\n" for ids, said in cases)
    fake.program("nvidia-smi", f'case "$*" in\n{text}*) exit 1;; esac')
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    with Sampler("nvidia", root=fake.root) as sampler:
        wait_for(sampler, 1)
    assert sampler.summary()["power_w"]["max"] == 700
    with Sampler("nvidia", indices=(0, 1), root=fake.root) as sampler:
        wait_for(sampler, 1)
    assert sampler.summary()["power_w"]["max"] == 800
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-b")
    with Sampler("nvidia", root=fake.root) as sampler:
        wait_for(sampler, 1)
    assert sampler.summary()["power_w"]["max"] == 700


def test_only_the_visible_cards_of_a_tool_without_a_filter(fake_host: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = fake_host(None)
    text = (
        '{"card0": {"Average Graphics Package Power (W)": "1"}, "card1": {"Average Graphics Package Power (W)": "2"}}'
    )
    fake.program("rocm-smi", f"echo '{text}'")
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "1")
    with Sampler("amd", root=fake.root) as sampler:
        wait_for(sampler, 1)
    assert sampler.summary()["power_w"]["max"] == 2


@pytest.mark.parametrize(
    "body", ["exit 1", "echo nonsense", "echo '0, [N/A], [N/A], [N/A], [N/A], [N/A], [N/A]'", None],
    ids=["fails", "prose", "no values", "absent"],
)  # fmt: skip
def test_no_fault_of_a_tool_reaches_the_measurement(fake_host: Build, body: str | None) -> None:
    fake = fake_host(None)
    if body:
        fake.program("nvidia-smi", body)
    with Sampler("nvidia", interval_s=0.01, root=fake.root) as sampler:
        assert until(lambda: sampler.problems or sampler.samples)
    summary = sampler.summary()
    assert set(summary) == {"absent"}
    assert "nvidia-smi" in " ".join(summary["absent"])


def test_a_hanging_tool_ends_with_the_block(fake_host: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "TOOL_LIMIT_S", 0.3)
    fake = fake_host(None)
    fake.program("hy-smi", "exec /bin/sleep 600")
    started = time.monotonic()
    with Sampler("hygon", root=fake.root) as sampler:
        pass
    assert time.monotonic() - started < 60
    assert until(lambda: sampler.problems)
    assert "hy-smi: timeout" in " ".join(sampler.summary()["absent"])
    assert until(lambda: not [thread for thread in threading.enumerate() if thread.name == "telemetry"])


def test_an_error_of_the_measurement_passes_through_unchanged() -> None:
    with pytest.raises(ZeroDivisionError), Sampler("cpu"):
        _ = 1 / 0


def test_an_impossible_kind_is_absent_not_an_error() -> None:
    with Sampler("abacus") as sampler:  # type: ignore[arg-type]
        pass
    assert "sampling did not start" in sampler.summary()["absent"][0]


def test_cpu_power_and_load_by_hand(tmp_path: Path) -> None:
    for name, text in {
        "proc/loadavg": "1.50 1 1 2/300 1\n",
        "proc/meminfo": "MemTotal: 1000 kB\nMemAvailable: 400 kB\n",
        "proc/cpuinfo": "cpu MHz : 2000.0\n\ncpu MHz : 3000.0\n",
        "proc/stat": "cpu 100 0 0 100 0 0 0 0 0 0\n",
        "sys/class/powercap/intel-rapl:0/energy_uj": "1000000\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    source = telemetry.CpuSource(tmp_path)
    (tmp_path / "proc/stat").write_text("cpu 130 0 0 105 5 0 0 0 0 0\n")
    (tmp_path / "sys/class/powercap/intel-rapl:0/energy_uj").write_text("2001000000\n")
    source.energy = (1.0, time.monotonic() - 500)
    reading = source.read()
    assert reading["load_average_1min"] == 1.5
    assert reading["memory_used_bytes"] == 600 * 1024
    assert reading["clock_core_mhz"] == 2500
    assert reading["utilisation_percent"] == pytest.approx(75)
    assert reading["power_w"] == pytest.approx(4, rel=0.1)


def test_this_machine_for_real() -> None:
    with Sampler("cpu", interval_s=0.05) as sampler:
        wait_for(sampler, 3)
    summary = sampler.summary()
    assert summary["memory_used_bytes"]["min"] > 0
    assert summary["load_average_1min"]["samples"] >= 3
    assert ("power_w" in summary) != any(reason.startswith("power_w") for reason in summary["absent"])


def test_a_busy_stranger_is_a_neighbour_and_our_own_child_is_not() -> None:
    """The stranger is a grandchild whose parent has gone, so it descends from this process no more."""
    spin = "while :; do :; done"
    child = subprocess.Popen(["/bin/sh", "-c", spin])
    out = subprocess.run(
        ["/bin/sh", "-c", f"setsid /bin/sh -c '{spin}' >/dev/null 2>&1 & echo $!"], capture_output=True, text=True
    )
    assert until(lambda: _spinning(int(out.stdout), spin))
    (stranger,) = _spinning(int(out.stdout), spin)
    found: dict[int, dict] = {}

    def seen() -> bool:
        found.update({one["pid"]: one for one in who.neighbours("cpu", window_s=0.5)["processes"]})
        return stranger in found

    try:
        assert until(seen)
    finally:
        child.kill()
        child.wait()
        os.kill(stranger, 9)
    assert child.pid not in found
    assert found[stranger]["cores"] >= who.LEAST_CORES


def _spinning(first: int, code: str) -> list[int]:
    """The process that ``setsid`` became, once it is the shell that spins: ``first`` or its child."""
    table = who.processes(Path("/"))
    below = [pid for pid, (_, parent, _) in table.items() if first in (pid, parent)]
    argv = f"/bin/sh\0-c\0{code}\0".encode()
    return [pid for pid in below if Path(f"/proc/{pid}/cmdline").read_bytes() == argv]


@pytest.mark.parametrize(
    ("host", "kind", "expected"),
    [
        ("h200", "nvidia", {"pid": 4242, "name": "/usr/bin/python3", "memory_bytes": 512 * MIB}),
        ("mi300x", "amd", {"pid": 9399, "name": "VLLM::EngineCor", "memory_bytes": 329576448}),
        ("bw", "hygon", {"pid": 2004092, "name": None, "memory_bytes": 9649 * MIB}),
    ],
)
def test_processes_on_a_device(fake_host: Build, host: str, kind: str, expected: dict[str, object]) -> None:
    fake = fake_host(host)
    said = who.neighbours(kind, root=fake.root)
    assert said["processes"] == [expected]
    assert said["load_average_1min"] is not None


def test_no_processes_and_no_tool_are_different_answers(fake_host: Build) -> None:
    fake = fake_host(None)
    assert who.neighbours("hygon", root=fake.root)["absent"] != []
    fake.program("hy-smi", "echo 'No KFD PIDs currently running'")
    assert who.neighbours("hygon", root=fake.root) | {"load_average_1min": 0} == {
        "processes": [], "load_average_1min": 0, "absent": [],
    }  # fmt: skip


def test_neighbours_are_asked_of_the_leased_card_only(fake_host: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another job of the same run serves on the other card: no neighbour of this measurement."""
    host = fake_host("h200")
    host.program("nvidia-smi", 'case "$*" in *--id=1*) echo "11, python, 100";; *) echo "22, python, 100";; esac')
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert [one["pid"] for one in who.neighbours("nvidia", host.root)["processes"]] == [11]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert [one["pid"] for one in who.neighbours("nvidia", host.root)["processes"]] == [22]
