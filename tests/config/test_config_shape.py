"""Platforms of a shape: what they may declare, and what their jobs are told."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import yaml
from adrbench.config import ConfigError, jobs, load, records, servers
from adrbench.paths import ROOT

MAIN = {"platform": "h200-8b", "adrs": ["adr0003", "adr0009", "adr0010", "adr0011"]}
PLATFORM = yaml.safe_load((ROOT / "config/platforms/h200-8b.yaml").read_text())
CPU = yaml.safe_load((ROOT / "config/platforms/cpu.yaml").read_text())
AGREEMENT = {"segments": 2, "tokens": 512}


@pytest.fixture
def project(tmp_path):
    for folder in ("decisions", "platforms"):
        (tmp_path / "config" / folder).mkdir(parents=True)
        for file in (ROOT / "config" / folder).glob("*.yaml"):
            (tmp_path / "config" / folder / file.name).write_text(file.read_text())
    (tmp_path / "config/policies.yaml").write_text((ROOT / "config/policies.yaml").read_text())

    def run(platform):
        file = tmp_path / f"config/platforms/{platform['name']}.yaml"
        file.write_text(yaml.safe_dump(platform, allow_unicode=True))
        return load({**MAIN, "platform": platform["name"]}, root=tmp_path)

    return run


def changed(platform=PLATFORM, **changes):
    return copy.deepcopy(platform) | changes


ARM, ARGS = PLATFORM["arms"][0], PLATFORM["serve"]["args"]
REFUSED = {
    "unknown": (changed(model={"source": "shape", "shape": "qwen9"}),
                ["h200-8b.yaml", "model.shape", "'qwen9'", "smollm2-135m, qwen3-8b, qwen3.5-27b"]),
    "no-shape": (changed(model={"source": "shape"}), ["model", "`shape` is needed"]),
    "not-a-shape": (changed(CPU, model={"source": "embedded", "shape": "qwen3-8b"}), ["`shape` is needed", "only"]),
    "accuracy": (changed(eval=CPU["eval"]), ["eval.tasks", "random", "model.path"]),
    "agreement": (changed(agreement=AGREEMENT), ["agreement", "random", "remove the section"]),
    "calibrate": (changed(calibrate={}), ["calibrate", "random"]),
    "simulation": (changed(arms=[ARM, {"name": "sim", "kv_simulation": {"scheme": "int8_per_token_head"}}]),
                   ["arms[sim].kv_simulation", "random"]),
    "its-own-load-format": (changed(serve=PLATFORM["serve"] | {"args": [*ARGS, "--load-format", "dummy"]}),
                            ["--load-format", "belongs to the job", "remove it"]),
    "no-task-of-a-real-model": (changed(CPU, eval={}), ["eval.tasks", "at least one"]),
    "other-platform": (changed(accuracy_platform="h300"), ["accuracy_platform", "'h300'", "h200-small"]),
    "accuracy-of-a-real-model": (changed(CPU, accuracy_platform="h200-small"), ["accuracy_platform", "only for"]),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused_with_a_remedy(project, case):
    platform, words = REFUSED[case]
    with pytest.raises(ConfigError) as refused:
        project(platform)
    assert [word for word in words if word not in str(refused.value)] == [], str(refused.value)


def test_the_product_adds_the_load_format_to_every_server(project):
    run = project(PLATFORM)
    for arm in run.serving_arms():
        assert servers.server(run, arm, "/m", "python3")["args"][:2] == ["--load-format", "dummy"]
    assert run.platform.random_weights


def test_no_other_platform_gets_it(project):
    run = project(CPU)
    assert "--load-format" not in servers.server(run, run.platform.baseline, "/m", "python3")["args"]
    assert not run.platform.random_weights
    assert "shape" not in jobs.model(run, "/m", "python3")
    assert "random_weights" not in records.decide(run, "adr0010", {})


def test_a_folder_served_with_dummy_weights_is_random_too(project):
    run = project(changed(CPU, serve=CPU["serve"] | {"args": [*CPU["serve"]["args"], "--load-format=dummy"]}))
    assert run.platform.random_weights
    assert records.decide(run, "adr0009", {})["random_weights"]


def test_the_model_job_is_told_the_shape_and_its_code(project):
    spec = jobs.model(project(PLATFORM), "/m", "python3")
    assert spec["shape"] == "qwen3-8b"
    assert spec["dummy_allowed"]
    assert len(spec["shape_code"]) > 10


def measured_elsewhere(*arms):
    folder = Path("results/h200-small/eval")
    folder.mkdir(parents=True, exist_ok=True)
    for arm in arms:
        (folder / f"{arm}.json").write_text("{}")


def test_another_models_accuracy_is_named_as_far_as_it_was_measured(project, tmp_path, monkeypatch):
    """Arms that both platforms declare alike are told; another platform's evidence is never asked for."""
    monkeypatch.chdir(tmp_path)
    run = project(PLATFORM)
    assert "elsewhere" not in records.decide(run, "adr0011", {})
    measured_elsewhere("custom-int8", "custom-int4")
    assert records.accuracy_elsewhere(run, "adr0011") == {}  # nothing to compare with
    measured_elsewhere("triton-attn")
    found = records.decide(run, "adr0011", {})["elsewhere"]
    assert set(found["eval"]) == {"triton-attn", "custom-int8", "custom-int4"}
    assert found["same"] == ["triton-attn", "custom-int8"]
    assert (found["platform"], found["baseline"], found["several_hosts"]) == ("h200-small", "triton-attn", True)
    assert found["titles"]["custom-int4"]["en"] == "CUSTOM, INT4 per (token, head)"


def test_an_arm_of_the_same_name_that_serves_otherwise_is_not_the_same(project, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    measured_elsewhere("triton-attn", "flash-attn")
    arms = [dict(arm) for arm in PLATFORM["arms"]]
    arms[1] |= {"attention_backend": "FLEX_ATTENTION", "expect": {}}
    run = project(changed(arms=arms))
    assert records.decide(run, "adr0010", {})["elsewhere"]["same"] == ["triton-attn"]


def test_records_without_a_gate_on_accuracy_show_none_of_it(project, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    measured_elsewhere("triton-attn", "flash-attn")
    run = project(PLATFORM)
    assert records.accuracy_elsewhere(run, "adr0010")
    assert records.accuracy_elsewhere(run, "adr0009") == {}
    assert records.accuracy_elsewhere(project(CPU), "adr0010") == {}


def test_a_record_of_the_baseline_gets_its_title(project):
    run = project(PLATFORM)
    assert records.facts(run, run.decisions["adr0003"], {})["baseline_title"]["en"] == "TRITON_ATTN"
