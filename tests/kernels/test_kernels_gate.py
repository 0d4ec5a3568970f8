"""The compile gate on this machine: real compilation for each target, and faults that it must name.

Cannot prove: that the binaries run, or how fast (docs/evidence holds what an H200 measured; AMD
targets are compiled only, and Hygon's are refused by upstream Triton).
"""

import json
import os
import subprocess
from pathlib import Path

import pytest
from adrbench import evidence
from adrbench.kernels.gate import __main__ as gate
from adrbench.kernels.gate import inspect
from adrbench.kernels.gate.variants import TARGETS, VARIANTS, Variant, limits, not_served

ROOT = Path(__file__).parents[2]
SERVE = ROOT / ".envs/serve/bin/python"
GOOD = {
    "registers": 120,
    "spills": 0,
    "byte_loads": 0,
    "wide_loads": 4,
    "matrix": {"v_mfma_i32_16x16x32_i8": 8},
    "per_element": 2.0,
    "loads": {"global_load_dwordx4": 4},
}


@pytest.mark.skipif(not SERVE.exists(), reason="the serving environment is not set up")
def test_kernels_compile_for_every_target_within_their_limits(tmp_path):
    # Qwen3.5-27B's shape in INT8 on vLLM's 784-token page, INT4, KIVI-4, and the stores, whose 16-bit path the
    # interpreter runs but no compiler would otherwise see here.
    wanted = [
        VARIANTS.index(variant)
        for variant in (
            Variant("int8_per_token_head", 6, 256, 784),
            Variant("int4_per_token_head", 4, 128, 64),
            Variant("kivi4", 6, 256, 64, tile=32, kernel="unpacked"),
            Variant("bf16", 1, 128, 64, kernel="store scattered"),
        )
    ]
    spec = {"platform": "cpu", "variants": wanted}
    output = tmp_path / "cpu/gate.json"
    command = [str(SERVE), "-m", "adrbench.kernels.gate", "--spec", json.dumps(spec), "--output", str(output)]
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    env = {**os.environ, "PYTHONPATH": str(ROOT / "pythonpath"), "OMP_NUM_THREADS": "1", "TMPDIR": str(temporary)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(temporary.glob("adrbench*")) == []
    rows = evidence.read(output).measured["rows"]
    assert {(row["target"], row["variant"]) for row in rows} == {
        (target, VARIANTS[index].name) for target in TARGETS for index in wanted
    }
    for row in rows:
        assert row["status"] == "passed"
        assert row["spills"] == 0
        if row["variant"].startswith("decode"):
            assert row["wide_loads"] > 0
            assert row["matrix"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"spills": 8}, "spills"),
        ({"float_to_byte": 16}, "floating point to bytes"),
        ({"byte_loads": 3}, "not 16 bytes"),
        ({"wide_loads": 0}, "not 16 bytes"),
        ({"matrix": {}}, "no matrix"),
        ({"per_element": 9.0}, "per element"),
        ({"registers": 600}, "registers"),
    ],
)
def test_a_fault_is_named(change, words):
    assert gate.judge(GOOD, 0, "gfx942") == []
    assert words in " ".join(gate.judge(GOOD | change, 0, "gfx942"))


def test_a_kernel_that_amd_is_not_offered_says_what_is_used_instead():
    variant = Variant("int4_g32", 4, 128, 64, tile=32, kernel="unpacked")
    assert variant in VARIANTS
    assert "the scheme's own kernel is used" in not_served(variant, "gfx942")
    assert not_served(variant, "sm_90") is None
    assert not_served(Variant("kivi4", 4, 128, 64, tile=32, kernel="unpacked"), "gfx90a") is None


def test_the_budget_halves_with_the_bits():
    budgets = {v.scheme: limits(v, "gfx942").per_element for v in VARIANTS if v.kernel == "decode"}
    assert budgets["bf16"] == 2 * budgets["int8_per_token_head"]
    assert budgets["int8_per_token_head"] < 8


def test_a_compiler_that_dies_costs_one_variant(monkeypatch):
    calls = []

    def run(command, **_):
        calls.append(command[4:])
        first = command[4]
        if first == "1":  # dies while compiling variant 1
            return subprocess.CompletedProcess(command, -6, '{"start": 1}\n', "LLVM ERROR: Cannot select\n")
        lines = "".join(f'{{"start": {i}}}\n{{"index": {i}, "registers": 1}}\n' for i in command[4:])
        return subprocess.CompletedProcess(command, 0, lines, "")

    monkeypatch.setattr(gate.subprocess, "run", run)
    rows = gate.compile_target("gfx942", [1, 2])
    assert [row["index"] for row in rows] == [1, 2]
    assert "SIGABRT" in rows[0]["error"]
    assert "Cannot select" in rows[0]["error"]
    assert calls == [["1", "2"], ["2"]]


def test_the_hot_loop_is_the_largest_backward_branch():
    import re

    lines = ["a:", " x", "b:", " y", " z", " w", " br b", " br a_forward", "c:", " v", " br c"]
    loop = inspect.hot_loop(lines, re.compile(r"(\w+):"), re.compile(r"br (\w+)"))
    assert loop == ["b:", " y", " z", " w", " br b"]


@pytest.mark.parametrize(
    ("registers", "shared_bytes", "warps", "programs"),
    [
        (72, 53256, 4, 4),  # shared memory
        (128, 128, 4, 4),  # registers
        (84, 20488, 4, 5),  # registers are given by eights: 88
        (20, 128, 4, 16),  # warps
    ],
)
def test_programs_of_a_multiprocessor(registers, shared_bytes, warps, programs):
    assert inspect.programs_per_unit(registers, shared_bytes, warps) == programs


def test_amd_assembly_is_read():
    assembly = "\n".join(
        [
            ".LBB0_1:",
            "\tglobal_load_dwordx4 v[0:3], v4, s[0:1]",
            "\tv_mfma_i32_16x16x32_i8 a[0:3], v[0:1], v[2:3], a[0:3]",
            "\tv_add_f32 v1, v2, v3",
            "\tglobal_load_ubyte v9, v8, s[0:1]",
            "\ts_cbranch_scc1 .LBB0_1",
            "    .vgpr_count:     120",
            "    .vgpr_spill_count: 2",
        ]
    )
    row = inspect.amd(assembly, 16384, 4, 256, "gfx942")
    assert row["registers"] == 120
    assert row["spills"] == 2
    assert row["wide_loads"] == 1
    assert row["byte_loads"] == 1
    assert row["matrix"] == {"v_mfma_i32_16x16x32_i8": 1}
    assert row["per_element"] == 64 * 4 / 256
