"""The job in the serving interpreter, faults that it must catch, and deaths that it must survive.

Cannot prove: anything about a device; the interpreter's own faults hide the kernels' fp8 and bf16 stores.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from adrbench import evidence
from adrbench.kernels.checks import run_checks

ROOT = Path(__file__).parents[2]
SERVE = ROOT / ".envs/serve/bin/python"
HERE = Path(__file__).parent

pytestmark = pytest.mark.skipif(not SERVE.exists(), reason="the serving environment is not set up")


def serve(*arguments: str, expect: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
    path = f"{ROOT / 'pythonpath'}{os.pathsep}{HERE}"
    env = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **environment}
    done = subprocess.run([str(SERVE), *arguments], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == expect, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    output = tmp_path_factory.mktemp("cpu") / "kernels.json"
    spec = {"platform": "cpu", "arch": "x86_64", "mode": "interpreter", "seed": 7}
    serve("-m", "adrbench.kernels", "--spec", json.dumps(spec), "--output", str(output))
    return evidence.read(output).measured


def test_evidence_says_what_is_proved_and_what_the_interpreter_cannot_prove(measured):
    assert measured["mode"] == "interpreter"
    assert measured["device"]
    assert measured["triton"]
    assert set(measured["proved"]) == {"fp16", "fp32", "int32", "int4", "int8"}
    assert set(measured["not_proved"]) == {"bf16", "fp8_e4m3fn", "fp8_e4m3fnuz", "fp8_e5m2"}
    assert "interpreter computes it wrongly" in measured["not_proved"]["fp8_e4m3fn"]
    assert "load" in measured["not_proved"]["fp8_e4m3fn"].partition("; proved: ")[2]


def test_every_operation_has_cases_of_every_format_it_serves(measured):
    seen = {(case["op"], case["format"]) for case in measured["cases"]}
    for name in ("int8", "bf16", "fp8_e4m3fn", "fp8_e4m3fnuz", "fp8_e5m2"):
        assert {("store", name), ("dot_scaled", name), ("decode", name)} <= seen
    for name in ("fp32", "fp16", "int32"):
        assert ("atomics", name) in seen
    assert all(case["reason"] for case in measured["cases"] if case["status"] != "proved")


@pytest.fixture(scope="module")
def faults():
    return json.loads(serve(str(HERE / "faults.py")).stdout)


@pytest.mark.parametrize(
    ("fault", "part"),
    [
        ("truncate", "store int8_per_token_head"),
        ("scale", "store int8_per_token_head"),
        ("skip", "store int8_per_head"),
        ("load", "load fp8_per_head"),
        ("dot", "scaled product"),
        ("sum", "scaled sum"),
        ("max", "per-head scale"),
        ("decode", "decode int4_per_token_head"),
        ("window", "decode kivi4"),
        ("ring", "store kivi4"),
    ],
)
def test_a_fault_fails_its_cases(faults, fault, part):
    hit = [status for case, status in faults[fault] if case.startswith(part)]
    assert hit
    assert set(hit) == {"failed"}


def test_the_job_refuses_a_failed_case_and_names_it(tmp_path):
    script = (
        "import sys\n"
        "from adrbench.kernels import checks\n"
        "checks.run_checks.__defaults__ = (checks.CASE_TIMEOUT_S, 'broken_worker')\n"
        "sys.argv = ['kernels', '--spec', '{\"platform\": \"cpu\"}', '--output', sys.argv[1]]\n"
        "import runpy; runpy.run_module('adrbench.kernels', run_name='__main__')\n"
    )
    (tmp_path / "broken_worker.py").write_text(
        "from adrbench.kernels import worker\nfrom adrbench.kernels.case import Case\n"
        "worker.all_cases = lambda: [Case('store', 'int8', 'off', lambda device: 0.25, 0.1)]\n"
        "worker.main()\n"
    )
    path = f"{ROOT / 'pythonpath'}{os.pathsep}{tmp_path}"
    done = serve("-c", script, str(tmp_path / "cpu/kernels.json"), expect=1, PYTHONPATH=path)
    assert "kernel-failed" in done.stderr
    assert "store, int8, off: error 0.25 is above the tolerance 0.1" in done.stderr
    assert not (tmp_path / "cpu/kernels.json").exists()
    assert len(list((tmp_path / "cpu/rejected").glob("kernels-*.json"))) == 1


def test_a_death_and_a_hang_cost_their_cases_only(monkeypatch):
    monkeypatch.setattr(sys, "executable", str(SERVE))
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'pythonpath'}{os.pathsep}{HERE}")
    checked = run_checks("interpreter", 0, lambda line: None, timeout_s=24.0, worker="dying_worker")
    status = {outcome.case: (outcome.status, outcome.reason) for outcome in checked.outcomes.values()}
    assert status["good"][0] == status["after"][0] == "proved"
    assert status["aborts"][0] == "failed"
    assert "SIGABRT" in status["aborts"][1]
    assert status["hangs"][0] == "not-provable"
    assert "killed" in status["hangs"][1]
    assert status["rests on the hanging one"][0] == "not-provable"


def test_torch_and_triton_agree_with_the_definitions():
    script = """
import torch
from adrbench.kernels.formats import VALUES, scheme
for name in ("fp8_e4m3fn", "fp8_e4m3fnuz", "fp8_e5m2"):
    values = VALUES[name]
    codes = torch.arange(256, dtype=torch.int32).to(torch.uint8).view(values.torch_dtype).float()
    finite = values.finite_values()
    assert {c for c in range(256) if torch.isfinite(codes[c])} == set(finite)
    assert all(codes[c].item() == v for c, v in finite.items())
    assert values.encode(torch.tensor([1e9, -1e9])).float().tolist() == [values.maximum, -values.maximum]
assert VALUES["int8"].encode(torch.tensor([2.5, 3.5, -2.5, 0.6, -200.])).tolist() == [2, 4, -2, 1, -127]

torch.manual_seed(3)
x = torch.randn(101, 2, 64)
for name, low, high in (("int8_per_token_head", .004, .008), ("fp8_per_token_head", .02, .03),
                        ("int4_per_token_head", .08, .14), ("int4_g32", .05, .09), ("kivi4", 0, 0.0001)):
    plane = scheme(name).key
    error = (plane.round_trip(x) - x).norm() / x.norm()
    assert low <= error < high, (name, error)
kivi = scheme("kivi4").key
long = torch.randn(300, 2, 64)
back = kivi.round_trip(long)
# 300 tokens: keys leave the window 128 at a time, so that 256 are quantised and 44 are as they were.
assert torch.equal(back[256:], long[256:])
assert (back[:256] - long[:256]).flatten(1).abs().amax(1).min() > 0.02
print("ok")
"""
    assert serve("-c", script).stdout.strip() == "ok"
