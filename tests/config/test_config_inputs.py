"""Which arms and evidence belong to a decision: an arm that one ADR compares is not measured for another."""

from __future__ import annotations

import pytest
import yaml
from adrbench.config import inputs, load
from adrbench.config.files import ConfigError
from adrbench.config.targets import of_another_platform
from adrbench.paths import ROOT

MAIN = yaml.safe_load((ROOT / "config/config.yaml").read_text())
ARMS = {
    "adr0001": ["auto"],
    "adr0003": ["auto"],
    "adr0007": ["auto", "block-16", "block-64"],
    "adr0008": ["auto", "block-16", "block-64"],
    "adr0010": ["auto"],
    "adr0011": ["auto", "fp8-e4m3", "fp8-e5m2"],
    "adr0013": ["auto", "compiled"],
}
EVERYTHING = {
    "device": "device.json",
    "model": "model.json",
    "kernels": "kernels.json",
    "ceiling": "ceiling.json",
    "claims": "claims.json",
    "serve": {arm: {"1": {"short": f"serve/{arm}.json"}} for arm in ("auto", "block-16", "fp8-e4m3", "compiled")},
    "eval": {arm: f"eval/{arm}.json" for arm in ("auto", "block-16", "fp8-e4m3", "compiled")},
    "integrate": {"L1": "L1.json", "refusal-block-16": "refusal.json"},
    "profile": {"auto": "profile.json"},
}


@pytest.mark.parametrize("adr", ARMS)
def test_arms_of_a_decision_on_cpu(adr: str) -> None:
    run = load(MAIN)
    assert [arm.name for arm in inputs.arms(run.decisions[adr], run.platform)] == ARMS[adr]


@pytest.mark.parametrize(
    ("adr", "serve", "evaluated", "integrate", "none"),
    [
        ("adr0011", ["auto", "fp8-e4m3"], ["auto", "fp8-e4m3"], ["L1"], []),
        ("adr0007", ["auto", "block-16"], [], ["refusal-block-16"], ["ceiling"]),
        ("adr0003", ["auto"], [], [], ["ceiling"]),
        ("adr0001", ["auto"], [], [], []),
        ("adr0013", ["auto", "compiled"], ["auto", "compiled"], [], ["ceiling"]),
    ],
)
def test_evidence_of_a_decision(adr, serve, evaluated, integrate, none) -> None:
    run = load(MAIN)
    found = inputs.evidence(run.decisions[adr], run.platform, EVERYTHING)
    assert sorted(found["serve"]) == serve
    assert sorted(found["eval"]) == evaluated
    assert sorted(found["integrate"]) == integrate
    assert [stage for stage in ("kernels", "ceiling", "claims") if found[stage] is None] == none
    assert set(found) == set(EVERYTHING)


def test_an_id_that_is_not_the_file_s_name_is_refused(tmp_path) -> None:
    folder = tmp_path / "decisions"
    folder.mkdir()
    (folder / "adr0012.yaml").write_text((ROOT / "config/decisions/adr0013.yaml").read_text())
    with pytest.raises(ConfigError, match=r"adr0012.yaml: id: 'adr0013' must equal the file's name 'adr0012'"):
        load(MAIN | {"decisions": str(folder), "adrs": ["adr0012"]})


def test_a_simulated_scheme_stands_for_nothing_in_a_comparison() -> None:
    """ADR 0011 compares speeds; ADR 0009 takes the simulation."""
    run = load(MAIN | {"platform": "cpu-kv"})
    arms = [
        arm.model_copy(update={"name": "int8-token-head"}) if arm.name == "sim-int8-token-head" else arm
        for arm in run.platform.arms
    ]
    platform = run.platform.model_copy(update={"arms": arms})
    of = {adr: [arm.name for arm in inputs.arms(run.decisions[adr], platform)] for adr in ("adr0009", "adr0011")}
    assert "int8-token-head" in of["adr0009"]
    assert "int8-token-head" not in of["adr0011"]


@pytest.mark.parametrize(
    ("argv", "wrong"),
    [
        ("reports/h200/adr0011.md", True),
        ("--cores 1 -n results/h200/serve/x/r1/a.json", True),
        ("--config platform=cpu -- all reports/h200/adr0011.md", True),
        ("-- reports/h200/adr0011.md", True),
        ("--report reports/h200/report.html", False),
        ("results/cpu/device.json", False),
        ("reports/adr0011.md", False),
        ("reports/h200", False),
        ("results/elsewhere/device.json", False),
        ("docs/h200/x.md", False),
        ("results/h200/merged.json", False),
        ("", False),
    ],
)
def test_a_target_of_another_platform_is_told(argv, wrong, tmp_path, monkeypatch):
    """But for one that is there: evidence that was merged needs no rule."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results/h200").mkdir(parents=True)
    (tmp_path / "results/h200/merged.json").touch()
    assert bool(of_another_platform(argv.split(), "cpu", ["cpu", "h200"])) is wrong
