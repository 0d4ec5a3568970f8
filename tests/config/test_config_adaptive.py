"""What an adaptive decision measures: its arms, their rounds, and the specification of a look."""

from __future__ import annotations

import copy

import pytest
import yaml
from adrbench.config import adaptive
from adrbench.config.files import ConfigError
from adrbench.config.load import load
from adrbench.paths import ROOT

MAIN = yaml.safe_load((ROOT / "config/config.yaml").read_text())
CPU = yaml.safe_load((ROOT / "config/platforms/cpu.yaml").read_text())


@pytest.fixture
def run(tmp_path):
    """Load the shipped configuration with changes to the platform and to ADR 0011."""

    def made(platform=None, decision=None, **main):
        (tmp_path / "platforms").mkdir(exist_ok=True)
        (tmp_path / "decisions").mkdir(exist_ok=True)
        changed = copy.deepcopy(CPU)
        if platform:
            platform(changed)
        (tmp_path / "platforms/cpu.yaml").write_text(yaml.safe_dump(changed, allow_unicode=True))
        for adr in ("adr0010", "adr0011"):
            content = yaml.safe_load((ROOT / f"config/decisions/{adr}.yaml").read_text())
            content |= (decision or {}) if adr == "adr0011" else {}
            (tmp_path / f"decisions/{adr}.yaml").write_text(yaml.safe_dump(content, allow_unicode=True))
        folders = {"platforms": str(tmp_path / "platforms"), "decisions": str(tmp_path / "decisions")}
        return load(MAIN | folders | {"adrs": ["adr0010", "adr0011"]} | main)

    return made


def test_arms_are_those_of_the_options_that_can_run(run):
    assert adaptive.option_arms(run(), "adr0011") == ["auto", "fp8-e4m3", "fp8-e5m2"]
    assert adaptive.option_arms(run(), "adr0010") == []  # one backend on a CPU: nothing to compare


def test_an_arm_outside_the_policy_or_not_served_is_not_measured(run):
    def outside(platform):
        platform["arms"][1] |= {"args": ["--max-num-seqs", "4"], "outside_policy": True}

    def refusing(platform):
        platform["arms"][2]["expect_failure"] = "no"

    assert adaptive.option_arms(run(outside), "adr0011") == ["auto", "fp8-e5m2"]
    assert adaptive.option_arms(run(refusing), "adr0011") == ["auto", "fp8-e4m3"]


def test_the_baseline_starts_as_often_as_the_platform_repeats_it(run):
    assert adaptive.starts_per_round(run(), "adr0011")["auto"] == 2
    once = run(lambda p: p["serve"].update(rounds=3, baseline_rounds=None))
    assert set(adaptive.starts_per_round(once, "adr0011").values()) == {1}


def test_rounds_grow_for_the_arms_that_a_look_asks_for_only(run):
    made = run()
    first = adaptive.rounds(made, "adr0011", 2, None)
    assert first == {"auto": 4, "fp8-e4m3": 2, "fp8-e5m2": 2}
    before = {"rounds": first, "next": ["auto", "fp8-e5m2"]}
    assert adaptive.rounds(made, "adr0011", 3, before) == {"auto": 6, "fp8-e4m3": 2, "fp8-e5m2": 3}


def test_the_command_lines_budget_goes_before_the_decisions(run):
    plan = {"adaptive": {"first": 2, "most": 4, "budget_minutes": 30}}
    assert adaptive.spec(run(decision=plan), "adr0011", 2, {}, None)["budget_minutes"] == 30
    assert adaptive.spec(run(decision=plan, budget_minutes=5), "adr0011", 2, {}, None)["budget_minutes"] == 5
    found = adaptive.spec(run(decision=plan), "adr0011", 3, {}, "look2.json")
    assert (found["decide"]["looks"], found["previous"], found["devices"]["auto"]) == ([2, 3, 4], "look2.json", 1)


@pytest.mark.parametrize(
    ("section", "said"),
    [({"first": 5, "most": 4}, "most (4) is less than first (5)"), ({"first": 1}, "adaptive.first"),
     ({"budget_minutes": 0}, "adaptive.budget_minutes"), ({"budget": 3}, "unknown key")],
)  # fmt: skip
def test_a_plan_that_is_none_is_refused_with_file_and_key(run, section, said):
    with pytest.raises(ConfigError) as error:
        run(decision={"adaptive": section})
    assert said in str(error.value)
    assert "adr0011.yaml: adaptive" in str(error.value)
