"""Accuracy of another platform's model, shown beside a record of random weights: computed, and read by no gate."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from adrbench import evidence
from decide_synthetic import even_scores, fill, gate, verdict

ELSEWHERE = {
    "platform": "other",
    "title": {"en": "another model", "zh": "另一模型"},
    "baseline": "auto",
    "titles": {"fp8-e4m3": {"en": "FP8", "zh": "FP8"}},
    "same": ["fp8-e4m3"],
}


def elsewhere(world, **arms):
    """Accuracy runs of platform ``other`` by arm, from scores; the specification that names them."""
    paths = {}
    for arm, scores in arms.items():
        name = arm.replace("_", "-")
        world.accuracy(name, scores)
        path = Path(shutil.move(world.eval.pop(name), world.folder / f"other-{name}.json"))
        document = evidence.read(path)
        document.platform = "other"
        evidence.write_json(path, document.model_dump(mode="json"))
        paths[name] = str(path)
    return ELSEWHERE | {"eval": paths}


def worse(scores, points):
    """Scores, the first of each task lowered."""
    return {task: [max(0.0, s[0] - points), *s[1:]] for task, s in scores.items()}


def test_the_difference_is_to_that_platforms_own_baseline(world):
    fill(world, rounds=3)
    scores = even_scores(200)
    named = elsewhere(world, auto=scores, fp8_e4m3=worse(scores, 50.0))
    found = verdict(world, random_weights=True, elsewhere=named)
    assert found.elsewhere is not None
    mean = found.elsewhere.accuracy["fp8-e4m3"].mean
    assert mean.pairs == 200 * len(scores)
    assert mean.low < mean.delta < mean.high
    assert (found.elsewhere.same, list(found.elsewhere.refused)) == (["fp8-e4m3"], [])
    assert {named["eval"]["auto"], named["eval"]["fp8-e4m3"]} <= set(found.evidence)


def test_no_gate_reads_it_and_nothing_is_accepted_on_it(world):
    fill(world, rounds=12)
    scores = even_scores(2000)
    found = verdict(world, random_weights=True, elsewhere=elsewhere(world, auto=scores, fp8_e4m3=scores))
    assert found.elsewhere.accuracy["fp8-e4m3"].mean.high < 3.0
    assert gate(found, "FP8 e4m3 per-tensor", "G01-Δ").verdict == "undecided"
    assert found.status.word == "Proposed"
    assert found.accuracy == {}


def test_runs_that_do_not_pair_are_named_and_not_compared(world):
    fill(world, rounds=3)
    scores = even_scores(50)
    short = {task: values[1:] for task, values in scores.items()}
    found = verdict(world, random_weights=True, elsewhere=elsewhere(world, auto=scores, fp8_e4m3=short))
    assert found.elsewhere.accuracy == {}
    assert "do not pair" in found.elsewhere.refused["fp8-e4m3"].en


def _no_json(path):
    path.write_text(path.read_text()[:200])


def _no_score(path):
    data = json.loads(path.read_text())
    next(iter(data["measured"]["tasks"].values()))["scores"][3] = "high"
    path.write_text(json.dumps(data))


def _no_scores(path):
    data = json.loads(path.read_text())
    del next(iter(data["measured"]["tasks"].values()))["scores"]
    path.write_text(json.dumps(data))


def _no_tasks(path):
    data = json.loads(path.read_text())
    path.write_text(json.dumps(data | {"measured": {}}))


def _other_platform(path):
    data = json.loads(path.read_text())
    path.write_text(json.dumps(data | {"platform": "third"}))


@pytest.mark.parametrize("damage", [_no_json, _no_score, _no_scores, _no_tasks, _other_platform])
@pytest.mark.parametrize("arm", ["fp8-e4m3", "auto"])
def test_a_file_that_cannot_be_used_is_named_and_stops_no_decision(world, damage, arm):
    fill(world, rounds=3)
    scores = even_scores(50)
    named = elsewhere(world, auto=scores, fp8_e4m3=scores, fp8_e5m2=scores)
    whole = verdict(world, random_weights=True, elsewhere=named)
    assert set(whole.elsewhere.accuracy) == {"fp8-e4m3", "fp8-e5m2"}
    damage(Path(named["eval"][arm]))
    found = verdict(world, random_weights=True, elsewhere=named)
    lost = {"fp8-e4m3", "fp8-e5m2"} if arm == "auto" else {arm}
    assert set(found.elsewhere.refused) == lost
    assert set(found.elsewhere.accuracy) == {"fp8-e4m3", "fp8-e5m2"} - lost
    for reason in found.elsewhere.refused.values():
        assert named["eval"][arm] in reason.en
        assert named["eval"][arm] in reason.zh
    assert found.status == whole.status
    assert found.options == whole.options


def test_a_platform_that_names_none_shows_none(world):
    assert verdict(fill(world, rounds=3)).elsewhere is None
