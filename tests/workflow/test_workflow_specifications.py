"""A decision on 3,000 evidence files: its specification is longer than a shell line may be.

The evidence is synthetic; Snakemake and the decide job are real. The measurements before it count as made because their
files are there.
"""

from __future__ import annotations

import json
import re
import sys

import pytest
import yaml
from adrbench.paths import ROOT

sys.path.append(str(ROOT / "tests/decide"))
from decide_synthetic import World

ARMS, ROUNDS, TIERS = 60, 25, 2
NAMES = ["auto", *(f"arm-{k}" for k in range(1, ARMS))]


def platform() -> dict:
    found = yaml.safe_load((ROOT / "config/platforms/cpu.yaml").read_text())
    arms = [{"name": name, "args": ["--max-logprobs", str(k)]} for k, name in enumerate(NAMES)]
    arms[0] |= {"baseline": True, "args": []}
    tiers = [tier for tier in found["tiers"] if tier["name"] in ("short", "long")]
    serve = found["serve"] | {"rounds": ROUNDS, "baseline_rounds": ROUNDS}
    return found | {"arms": arms, "tiers": tiers, "serve": serve}


def decision(minimum_gain: float) -> dict:
    found = yaml.safe_load((ROOT / "config/decisions/adr0011.yaml").read_text())
    del found["delta"]
    return found | {
        "id": "adrwide",
        "stages": ["serve"],
        "together": [],
        "options": [{"name": name, "title": name, "arms": [name]} for name in NAMES],
        "gates": [gate for gate in found["gates"] if gate["metric"] == "completion"],
        "objective": {"metric": "kv_pool_tokens", "minimum_gain": minimum_gain},
        "resolutions": [],
    }


@pytest.fixture(scope="module")
def decide(snakemake, tmp_path_factory):
    """Runs the decision in a folder with all of its evidence; takes what to change."""
    tmp_path = tmp_path_factory.mktemp("wide")
    folder = tmp_path / "work"
    for name in ("platforms", "decisions"):
        (tmp_path / name).mkdir()
    (tmp_path / "platforms/cpu.yaml").write_text(yaml.safe_dump(platform()))
    values = {name: str(tmp_path / name) for name in ("platforms", "decisions")} | {"adrs": ["adrwide"]}
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values | {"claims": {"enabled": False}}))
    for name in ("device", "model", "kernels"):
        path = folder / f"results/cpu/{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    (folder / "models/cpu").mkdir(parents=True)
    world = World(folder / "results")
    for number in range(1, ROUNDS + 1):
        for name in NAMES:
            world.server(name, number, pool=60_000 if name == "arm-7" else 46_592, requests=2)

    def run(*arguments: str, minimum_gain: float = 0.05):
        (tmp_path / "decisions/adrwide.yaml").write_text(yaml.safe_dump(decision(minimum_gain), allow_unicode=True))
        names = [str(ROOT / "config/config.yaml"), str(tmp_path / "values.yaml")]
        target = ["results/cpu/decide/adrwide.json", "--configfile", *names]
        return folder, snakemake(folder, *target, *arguments, timeout=1800)

    return run


def test_three_thousand_evidence_files_are_decided_on(decide) -> None:
    folder, planned = decide("-n", "--quiet", "rules")
    assert planned.returncode == 0, planned.stderr[-2000:]
    assert not (folder / ".snakemake/specifications").exists()
    folder, done = decide()
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    kept = list((folder / ".snakemake/specifications").iterdir())
    assert any(path.stat().st_size > 128 << 10 for path in kept)
    verdict = json.loads((folder / "results/cpu/decide/adrwide.json").read_text())
    assert len(verdict["evidence"]) >= ARMS * ROUNDS * TIERS == 3000
    assert verdict["status"]["option"] == "arm-7"


def test_what_is_decided_reruns_when_its_specification_changes_and_only_then(decide) -> None:
    decide()
    same = decide("-n")[1]
    assert "Nothing to be done" in same.stdout + same.stderr
    other = decide("-n", "--quiet", "rules", minimum_gain=0.2)[1].stdout
    assert re.search(r"^decide +1$", other, re.MULTILINE)
    assert not re.search(r"^serve +\d+$", other, re.MULTILINE)
    folder, done = decide(minimum_gain=0.4)
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads((folder / "results/cpu/decide/adrwide.json").read_text())["status"]["option"] != "arm-7"
