"""The platform's noise floor: A/A differences as evidence of their own, and what a decision makes of them."""

import json

import pytest
from adrbench.decide import noise_floor
from adrbench.decide.__main__ import gather, judge
from adrbench.decide.noise_floor import FloorSpec, build
from adrbench.decide.spec import parse_spec
from adrbench.evidence import write_json
from adrbench.job import JobError
from decide_synthetic import decision


def spec(world, per_block=2, **changes):
    serve = {int(number): tiers for number, tiers in world.serve["triton-attn"].items()}
    blocks = {number: -(-number // per_block) for number in serve}
    raw = {"platform": "cpu", "baseline": "triton-attn", "confidence": 0.95, "blocks": blocks, "serve": serve}
    return FloorSpec.model_validate(raw | changes)


def rates(world, *values, noise=1e-9, first=1):
    """The baseline's rounds with exactly these rates."""
    for number, rate in enumerate(values, start=first):
        world.server("triton-attn", number, rate=rate, noise=noise)
    return world


def test_differences_are_those_of_starts_side_by_side(world):
    rates(world, 100.0, 103.0, 50.0, 50.5)
    found = build(spec(world)).noise["short"]["output_tokens_per_s"]
    assert found.differences == pytest.approx([0.03, 0.01], abs=1e-6)
    assert (found.side_by_side, found.rounds, found.df) == (True, 4, 2)
    # Twofold between the blocks is drift, not the noise of a comparison side by side.
    assert found.sd < 0.03
    assert found.least[10] < found.least[2] < found.least[1]
    assert found.floor == found.least[1]


def test_without_a_second_start_in_a_block_drift_is_in_and_said(world):
    rates(world, 100.0, 103.0, 100.0)
    found = build(spec(world, per_block=1)).noise["short"]["output_tokens_per_s"]
    assert (len(found.differences), found.side_by_side) == (2, False)


def test_a_round_under_other_conditions_is_left_out_and_named(world):
    rates(world, 100.0, 103.0, 100.0)
    world.server("triton-attn", 4, rate=200.0, asked={"host": "other"})
    floor = build(spec(world))
    assert set(floor.excluded) == {4}
    assert "host" in floor.excluded[4]
    assert 4 not in floor.values["short"]["output_tokens_per_s"]


def test_rounds_of_several_hosts_count_where_the_platform_says_so(world):
    for number, host in enumerate(("a", "a", "b", "c"), start=1):
        world.server("triton-attn", number, asked={"host": host})
    one = build(spec(world))
    assert set(one.excluded) == {3, 4}
    # Blocks of two starts: 1 and 2 on host a, 3 and 4 on two hosts.
    several = build(spec(world, several_hosts=True))
    assert several.excluded == {4: "ran on another host than the runs of its block"}


def decided(world, folder, floor):
    """One arm 12 % faster in two quiet rounds, decided with a noise floor of the platform."""
    path = folder / "floor.json"
    write_json(path, floor.model_dump(mode="json"))
    evidence = {"serve": world.serve, "eval": world.eval, "noise_floor": str(path)}
    changes = {
        "decision": decision("adr0010", gates=[], delta=None, resolutions=[]),
        "gain_rule": "estimate",
        "evidence": evidence,
    }
    return judge(gather(parse_spec(world.spec(**changes))))


def test_a_gain_inside_the_platforms_noise_is_no_switch(world, tmp_path):
    rates(world, 100.0, 100.4, 100.2, 99.8, 100.1, 100.3)
    for number in (1, 2, 3):
        world.server("rocm-attn", number, rate=112.0, noise=0.002, resolved={"attention_backend": "ROCM_ATTN"})
    quiet = build(spec(world))
    assert decided(world, tmp_path, quiet).status.option == "ROCM_ATTN"
    # The same measurements on a platform whose equal starts were seen to differ by far more.
    loud = quiet.model_copy(deep=True)
    for metrics in loud.values.values():
        for number, value in metrics["output_tokens_per_s"].items():
            metrics["output_tokens_per_s"][number] = value * (1.3 if number % 2 else 1.0)
    document = decided(world, tmp_path, loud)
    goal = next(o for o in document.options if o.name == "ROCM_ATTN").objective
    assert (document.status.word, goal.verdict) == ("Proposed", "undecided")
    assert goal.noise > goal.gain
    assert any(path.endswith("floor.json") for path in document.evidence)


def test_the_floor_of_another_baseline_is_refused(world, tmp_path):
    rates(world, 100.0, 103.0)
    floor = build(spec(world))
    floor.identity["short"]["model_digest"] = "other"
    with pytest.raises(JobError, match="model_digest"):
        decided(world, tmp_path, floor)


@pytest.mark.parametrize(("content", "said"), [("{", "no noise floor"), ('{"schema_version": 1}', "no noise floor")])
def test_a_damaged_document_is_named(tmp_path, content, said):
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(JobError, match=rf"x\.json: {said}"):
        noise_floor.read(str(tmp_path / "x.json"), "cpu", "auto")


def test_another_platforms_document_is_refused(world, tmp_path):
    rates(world, 100.0, 103.0)
    path = tmp_path / "x.json"
    path.write_text(json.dumps(build(spec(world)).model_dump(mode="json")))
    with pytest.raises(JobError, match="noise floor of triton-attn on cpu, needed auto on cpu"):
        noise_floor.read(str(path), "cpu", "auto")
