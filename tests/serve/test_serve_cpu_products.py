"""Products of 16-bit matrices widened to fp32: their accuracy, under torch.compile, and in a layer of the real vLLM.

Cannot prove: how much faster they are (that depends on the CPU), and that a CPU with the instructions never widens: the
tests run on one of the two kinds.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from adrbench.config.load import PLUGIN_CHOICES


@pytest.fixture(scope="module")
def facts(serve_python: str, root: Path) -> Any:
    env = {**os.environ, "PYTHONPATH": str(root / "pythonpath"), "OMP_NUM_THREADS": "1"}
    command = [serve_python, str(Path(__file__).with_name("cpu_products_facts.py"))]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_no_result_is_farther_from_fp64_than_rounding_and_torchs_own(facts: Any) -> None:
    assert len(facts["accuracy"]) == 40
    for ours, torchs in facts["accuracy"]:
        assert ours <= max(1.5 * torchs, 2**-9)


def test_weights_in_blocks_give_one_result(facts: Any) -> None:
    assert facts["blocks"] == [True, True]


def test_torch_compile_takes_the_operator_whole_in_any_number_of_rows(facts: Any) -> None:
    assert all(error < 2**-7 for error in facts["compiled"])


def test_a_layer_of_vllm_multiplies_so_and_says_it_once(facts: Any) -> None:
    assert facts["fp32"]["ours"]
    assert (facts["torch"]["reports"], facts["fp32"]["reports"]) == (0, 1)
    assert facts["reports"] == [{"cpu_products": "fp32 products", "dtype": "bfloat16", "asked": True}]
    assert facts["fp32"]["error"] < 2**-7


def test_vllm_is_left_as_it_is_where_that_is_asked_for(facts: Any) -> None:
    assert not facts["torch"]["ours"]
    assert facts["torch"]["error"] < 2**-7


def test_unset_the_cpu_decides(facts: Any) -> None:
    assert facts["left"]["ours"] == facts["lacks"]["bfloat16"][""]


def test_only_16_bit_products_are_widened(facts: Any) -> None:
    assert facts["lacks"]["float32"] == {"fp32": False, "torch": False, "": False}
    for name in ("bfloat16", "float16"):
        assert (facts["lacks"][name]["fp32"], facts["lacks"][name]["torch"]) == (True, False)


def test_what_vllm_packed_for_a_layer_that_keeps_its_weights_stays(facts: Any) -> None:
    assert facts["kept"]


def test_another_value_is_refused(facts: Any) -> None:
    assert facts["refused"] == "ADRBENCH_CPU_PRODUCTS is 'bf16'; use torch or fp32, or leave it unset"


def test_the_configuration_knows_the_same_values(facts: Any) -> None:
    name, values = facts["choices"]
    assert {name: tuple(values)} == PLUGIN_CHOICES
