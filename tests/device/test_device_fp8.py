"""Gate G24: the definition of both formats, and that each way of being wrong is caught."""

from __future__ import annotations

import json
import math
import subprocess
from typing import Any

import pytest
from adrbench.device import fp8
from device_fakes import ROOT, device_fp8

FN, FNUZ = "float8_e4m3fn", "float8_e4m3fnuz"

TORCH_TABLE = """
import json, torch
codes = torch.arange(256, dtype=torch.uint8)
table = {}
for name in ("float8_e4m3fn", "float8_e4m3fnuz"):
    values = codes.view(getattr(torch, name)).float().tolist()
    table[name] = ["nan" if v != v else v.hex() for v in values] + [torch.finfo(getattr(torch, name)).max]
print(json.dumps(table))
"""


def test_the_definition_equals_torch_for_all_codes() -> None:
    """Torch's CPU conversion is the independent reference; a device's own conversion is what the gate checks."""
    python = ROOT / ".envs/serve/bin/python"
    said = subprocess.run([python, "-c", TORCH_TABLE], capture_output=True, text=True, check=True, timeout=120).stdout
    for dtype, values in json.loads(said).items():
        *decoded, maximum = values
        ours = [fp8.decode(code, dtype) for code in range(256)]
        assert ["nan" if math.isnan(value) else value.hex() for value in ours] == decoded
        assert fp8.FORMATS[dtype].maximum == maximum


def test_the_codes_that_tell_the_formats_apart() -> None:
    assert math.isnan(fp8.decode(0x7F, FN))
    assert fp8.decode(0x7F, FNUZ) == 240
    assert math.copysign(1, fp8.decode(0x80, FN)) == -1
    assert math.isnan(fp8.decode(0x80, FNUZ))
    assert fp8.decode(0x7E, FN) == 448
    finite = [code for code in range(256) if code not in (0x7F, 0x80, 0xFF)]
    assert all(fp8.decode(code, FN) == 2 * fp8.decode(code, FNUZ) for code in finite)


@pytest.mark.parametrize(
    ("arch", "dtype"),
    [("x86_64", FN), ("sm_90", FN), ("gfx90a", FN), ("gfx928", FN), ("gfx936", FN), ("gfx950", FN), ("gfx942", FNUZ)],
)
def test_the_right_format_passes_and_the_other_fails(arch: str, dtype: str) -> None:
    verdict = fp8.check(arch, device_fp8(dtype))
    assert (verdict["status"], verdict["codes_compared"], verdict["problems"]) == ("passed", 256, [])
    other = FNUZ if dtype == FN else FN
    wrong = fp8.check(arch, device_fp8(other))
    assert wrong["status"] == "failed"
    assert f"vLLM resolves {other}, but {arch} implies {dtype}" in wrong["problems"][0]


def change(dtype: str, /, **changes: Any) -> dict[str, Any]:
    return {**device_fp8(dtype), **changes}


def replaced(values: list[Any], code: int, value: Any) -> list[Any]:
    return [*values[:code], value, *values[code + 1 :]]


@pytest.mark.parametrize(
    ("observed", "problem"),
    [
        (
            change(FN, decoded=device_fp8(FNUZ)["decoded"]),
            "code 0x01 decodes to 0.000976562, float8_e4m3fn says 0.00195312",
        ),
        (
            change(FN, decoded=replaced(device_fp8(FN)["decoded"], 0x7F, 480.0)),
            "code 0x7f decodes to 480, float8_e4m3fn says nan",
        ),
        (
            change(FN, decoded=replaced(device_fp8(FN)["decoded"], 0x80, 0.0)),
            "code 0x80 decodes to 0, float8_e4m3fn says -0",
        ),
        (
            change(FN, encoded=replaced(device_fp8(FN)["encoded"], 0x38, 0x39)),
            "1 encodes to 0x39, float8_e4m3fn says 0x38",
        ),
        (change(FN, decoded=[]), "0 codes decoded and 256 encoded"),
        (change(FN, maximum=240.0), "a maximum of 240"),
        (change(FN, scale_maximum=224.0), "vLLM scales to 224"),
        (change(FN, dtype="float8_e5m2"), "no FP8 format that this check knows"),
        ({"problem": "RuntimeError: HIP error"}, "the check broke: RuntimeError: HIP error"),
    ],
    ids=["halved", "nan lost", "sign lost", "encodes wrong", "nothing", "maximum", "scale", "e5m2", "broke"],
)
def test_a_device_that_computes_otherwise_fails(observed: dict[str, Any], problem: str) -> None:
    verdict = fp8.check("gfx936", observed)
    assert verdict["status"] == "failed"
    assert problem in " ".join(verdict["problems"])


def test_a_scale_that_vllm_does_not_tell_is_no_failure_but_is_said() -> None:
    verdict = fp8.check("gfx942", change(FNUZ, scale_maximum=None, scale_problem="ImportError: moved"))
    assert (verdict["status"], verdict["scale_maximum"], verdict["scale_problem"]) == (
        "passed",
        None,
        "ImportError: moved",
    )


def test_not_run_says_why() -> None:
    assert fp8.check("sm_90", None)["status"] == "not_run"
    assert fp8.check("sm_90", None)["problems"] == ["the serving interpreter has no vLLM"]
