"""Arms that need a feature of the CPU: served where it is there, tried and expected to refuse where it is not."""

from __future__ import annotations

import dataclasses

import pytest
from adrbench.config import host_cpu, jobs
from adrbench.config.load import load

VALUES = {"adrs": ["adr0010", "adr0011"]}
FP8 = ("fp8-e4m3", "fp8-e5m2")


def arms(monkeypatch, features, platform="cpu"):
    monkeypatch.setenv(host_cpu.VARIABLE, features)
    run = load(VALUES | {"platform": platform})
    return {arm.name: arm for arm in run.platform.arms}, {arm.name for arm in run.serving_arms()}


@pytest.mark.parametrize("features", ["avx512f", "sse avx2 amx_tile"])
@pytest.mark.parametrize("platform", ["cpu", "cpu-kv"])
def test_a_cpu_with_one_of_the_features_serves_them(monkeypatch, features, platform):
    declared, serving = arms(monkeypatch, features, platform)
    assert set(FP8) <= serving
    assert [declared[name].expect_failure for name in FP8] == [None, None]


@pytest.mark.parametrize("features", ["", "avx avx2 fma"])
@pytest.mark.parametrize("platform", ["cpu", "cpu-kv"])
def test_without_them_they_must_refuse_in_vllms_words(monkeypatch, features, platform):
    declared, serving = arms(monkeypatch, features, platform)
    assert not set(FP8) & serving
    assert "auto" in serving
    assert all("AVX-512" in declared[name].expect_failure for name in FP8)


def test_platforms_of_other_devices_have_none(monkeypatch):
    declared, serving = arms(monkeypatch, "", "h200-small")
    assert serving == set(declared)


@pytest.mark.parametrize(("features", "profiled"), [("avx512f", ["auto", "fp8-e4m3"]), ("avx2", ["auto"])])
def test_an_arm_that_this_cpu_cannot_serve_is_not_profiled(monkeypatch, features, profiled):
    monkeypatch.setenv(host_cpu.VARIABLE, features)
    platform = load(VALUES | {"platform": "cpu"}).platform
    declared = platform.model_copy(
        update={
            "arms": [arm.model_copy(update={"expect_failure": None}) for arm in platform.arms],
            "profile": platform.profile.model_copy(update={"arms": ["auto", "fp8-e4m3"]}),
        }
    )
    assert host_cpu.for_this_host(declared).profile.arms == profiled


@pytest.mark.parametrize(("env", "told"), [({}, None), ({"ADRBENCH_CPU_PRODUCTS": "torch"}, "torch")])
def test_ceilings_are_told_how_servers_multiply(env, told):
    run = load(VALUES | {"platform": "cpu"})
    serve = run.platform.serve.model_copy(update={"env": run.platform.serve.env | env})
    run = dataclasses.replace(run, platform=run.platform.model_copy(update={"serve": serve}))
    assert jobs.ceiling(run).get("cpu_products") == told


def test_flags_are_read_as_the_kernel_writes_them(tmp_path):
    for name, text, flags in (
        ("x86", "processor\t: 0\nflags\t\t: fpu avx2\nvmx flags\t: vnmi\n\nflags\t\t: fpu avx512f\n", {"fpu", "avx2"}),
        ("arm", "processor\t: 0\nFeatures\t: fp asimd\n", {"fp", "asimd"}),
        ("other", "cpu\t\t: POWER9\n", set()),
    ):
        path = tmp_path / name
        path.write_text(text)
        assert host_cpu.own_features(path) == flags
    assert host_cpu.own_features(tmp_path / "absent") == set()
