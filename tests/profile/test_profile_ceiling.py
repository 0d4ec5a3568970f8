"""Ceilings: the pure parts here, and one tiny real measurement in the serving interpreter.

Cannot prove: that a kernel reaches what the memory can do, nor anything on an accelerator.
"""

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from adrbench.evidence import read
from adrbench.job import JobError
from adrbench.profile import ceiling
from adrbench.profile.ceiling_bandwidth import working_set_sizes
from adrbench.profile.ceiling_device import Device, last_level_cache_bytes, summary

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".envs/serve/bin/python"


def measure(tmp_path, **spec):
    output = tmp_path / "results" / "cpu" / "ceiling.json"
    text = json.dumps({"platform": "cpu", "device": "cpu", "threads": 1, "rounds": 6, "matrix_size": 64, **spec})
    command = [str(PYTHON), "-m", "adrbench.profile.ceiling", "--spec", text, "--output", str(output)]
    environment = {"PYTHONPATH": str(ROOT / "pythonpath"), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    return done, output


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    if not PYTHON.exists():
        pytest.skip("no serving interpreter")
    done, output = measure(tmp_path_factory.mktemp("c"), sizes_bytes=[65536, 8 << 20], datasheet_bytes_per_s=1e12)
    assert done.returncode == 0, done.stderr
    return read(output)


def test_evidence_names_what_was_measured(tiny):
    assert (tiny.stage, tiny.tier, tiny.platform) == ("profile", "ceiling", "cpu")
    assert tiny.resolved["threads"] == 1
    assert tiny.resolved["torch"]


@pytest.mark.parametrize(("products", "widened"), [("fp32", True), ("torch", False)])
def test_16_bit_products_are_made_as_the_platforms_servers_make_them(tmp_path, products, widened):
    """What the specification says, whatever the shell that starts the job has in its environment."""
    if not PYTHON.exists():
        pytest.skip("no serving interpreter")
    script = (
        "import sys, torch; from adrbench.profile import ceiling; from adrbench.profile.ceiling_device import Device; "
        "from adrbench.serve import cpu_products; made = []; "
        "cpu_products.product = lambda *given: made.append(given[0].dtype); "
        "kernels = ceiling.matrix_kernels(Device(torch, 'cpu'), 8, sys.argv[1]); "
        "[kernels[name]()() for name in ('bfloat16', 'float32')]; print(made == [torch.bfloat16])"
    )
    other = {"fp32": "torch", "torch": "fp32"}[products]
    environment = {"PYTHONPATH": str(ROOT / "pythonpath"), "PATH": "/usr/bin:/bin", "ADRBENCH_CPU_PRODUCTS": other}
    command = [str(PYTHON), "-c", script, products]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == str(widened), done.stderr


@pytest.mark.parametrize("kind", ["read", "copy", "write"])
def test_bandwidth_is_plausible_at_each_size(tiny, kind):
    for row in tiny.measured["by_size"]:
        value = row[kind]
        assert 1e8 < value["smallest"] <= value["low"] <= value["median"] <= value["high"] <= value["largest"] < 1e13
        assert value["samples"] + value["preempted"] >= 6


def test_ceiling_is_that_of_the_largest_size_and_says_it_is_not_memory(tiny):
    largest = tiny.measured["by_size"][-1]
    assert largest["bytes"] == 8 << 20
    assert tiny.measured["read_bytes_per_s"]["median"] == pytest.approx(largest["read"]["median"])
    assert not tiny.measured["beyond_cache"]
    assert "not those of memory" in tiny.notes[0]


def test_fraction_of_the_datasheet(tiny):
    read_rate = tiny.measured["read_bytes_per_s"]["median"]
    assert tiny.measured["fraction_of_datasheet"] == pytest.approx(read_rate / 1e12)


def test_matrix_rates_and_launch_time(tiny):
    for kind in ("bfloat16", "float32"):
        assert 1e8 < tiny.measured["matmul_flop_per_s"][kind]["median"] < 1e15
    assert 1e-8 < tiny.measured["launch_s"]["median"] < 1e-3


@pytest.mark.skipif(not PYTHON.exists(), reason="no serving interpreter")
def test_absent_accelerator_is_refused_with_its_reason(tmp_path):
    done, output = measure(tmp_path, device="cuda")
    assert done.returncode == 1
    assert "sees no accelerator" in done.stderr
    assert "Traceback" not in done.stderr
    assert not output.exists()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"device": "npu"}, "device is 'npu'"),
        ({"threads": 0}, "threads is 0"),
        ({"rounds": True}, "rounds is True"),
        ({"matrix_size": "1"}, "matrix_size is '1'"),
        ({"sizes_bytes": [10]}, r"sizes_bytes is \[10\]"),
        ({"sizes_bytes": 65536}, "sizes_bytes is 65536"),
        ({"datasheet_bytes_per_s": 0}, "datasheet_bytes_per_s is 0"),
        ({"datasheet_bytes_per_s": "fast"}, "datasheet_bytes_per_s is 'fast'"),
    ],
)
def test_bad_specification_names_the_key(spec, message):
    ceiling.check_spec({"platform": "cpu"})
    with pytest.raises(JobError, match=message) as caught:
        ceiling.check_spec(spec)
    assert caught.value.reason == "bad-spec"


@pytest.mark.parametrize(
    ("spec", "kind"),
    [
        ({}, "cpu"),
        ({"vendor": "cpu"}, "cpu"),
        ({"vendor": "amd"}, "cuda"),
        ({"vendor": "hygon", "device": "cpu"}, "cpu"),
    ],
)
def test_device_by_vendor_or_by_name(spec, kind):
    assert ceiling.device_kind(spec) == kind


def test_sizes_show_the_caches_and_end_well_beyond_them():
    sizes = working_set_sizes(32 << 20, 16 << 30)
    assert sizes[0] == 16 << 10
    assert sizes == sorted(set(sizes))
    assert sizes[-1] >= 1 << 30
    big = working_set_sizes(480 << 20, 16 << 30)
    assert big[-2:] == [1 << 30, 2 << 30]
    assert working_set_sizes(1 << 30, 16 << 30)[-2:] == [2 << 30, 4 << 30]
    assert working_set_sizes(480 << 20, 256 << 20)[-1] == 256 << 20


def test_last_level_cache_from_what_linux_states(tmp_path):
    for index, text in enumerate(["48K", "2048K", "491520K\n"]):
        (tmp_path / f"index{index}").mkdir()
        (tmp_path / f"index{index}" / "size").write_text(text)
    assert last_level_cache_bytes(tmp_path) == 480 << 20
    assert last_level_cache_bytes(tmp_path / "absent") == 0


def test_preempted_samples_are_counted_and_left_out():
    samples = [(1.0, True)] * 6 + [(100.0, False)] * 3
    result = summary(samples)
    assert (result["median"], result["largest"], result["samples"], result["preempted"]) == (1.0, 1.0, 6, 3)


def test_a_host_that_always_preempts_still_gets_numbers():
    result = summary([(2.0, False)] * 5 + [(1.0, True)] * 2, 10.0)
    assert (result["median"], result["samples"], result["preempted"]) == (5.0, 7, 5)


@pytest.mark.parametrize(
    ("stated", "hip", "cache"),
    [(60 << 20, None, 60 << 20), (0, None, 256 << 20), (4 << 20, "7.0", 256 << 20), (512 << 20, "7.0", 512 << 20)],
    ids=["CUDA states its L2", "an old torch", "ROCm leaves a level out", "ROCm states more"],
)
def test_an_accelerators_cache_is_the_one_stated_where_the_driver_states_all(stated, hip, cache):
    properties = SimpleNamespace(**({"L2_cache_size": stated} if stated else {}))
    cuda = SimpleNamespace(get_device_properties=lambda index: properties)
    assert Device(SimpleNamespace(cuda=cuda, version=SimpleNamespace(hip=hip)), "cuda").cache_bytes == cache
