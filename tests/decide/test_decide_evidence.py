"""Reading evidence: what is refused as a comparison, what is damaged, and the job itself."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from adrbench.decide.__main__ import gather, judge
from adrbench.decide.schedule import late, slope, starts
from adrbench.decide.spec import parse_spec
from adrbench.evidence import write_json
from adrbench.job import JobError
from adrbench.paths import PYTHONPATH
from decide_synthetic import decision


def two_arms(world, **arm):
    for r in (1, 2):
        world.server("auto", r)
        world.server("fp8-e4m3", r, **{"pool": 93_184} | arm)
    return world


def judged(world, **changes):
    return judge(gather(parse_spec(world.spec(**changes))))


SERVE = {"endpoint": "completions", "seed": 1}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"asked": {"model_digest": "model-2"}}, "model_digest"),
        ({"asked": {"content": "list"}}, "content"),
        ({"asked": {"policy": "contest"}}, "policy"),
        ({"asked": {"prompts_sha256": "others"}}, "prompts_sha256"),
        ({"asked": {"serve": SERVE | {"endpoint": "chat"}}}, "serve.endpoint"),
        ({"asked": {"server": {"args": ["--dtype", "float16"], "env": {}}}}, "server.args"),
        ({"asked": {"server": {"args": ["--dtype", "bfloat16"], "env": {"X": "1"}}}}, "server.env"),
        ({"asked": {"host": "other"}}, "host"),
        ({"resolved": {"vllm_version": "0.18.1"}}, "vllm_version"),
    ],
)
def test_an_undeclared_difference_is_refused_and_named(world, change, named):
    document = judged(two_arms(world, **change))
    option = next(o for o in document.options if o.arm == "fp8-e4m3")
    assert (option.state, named in option.reason.en) == ("absent", True)
    assert document.status.word == "Proposed"
    assert any(named in m.en for m in document.missing)


def test_what_an_arm_declares_may_differ(world):
    arm = {"name": "fp8-e4m3", "kv_cache_dtype": "fp8_e4m3", "env": {"X": "1"}, "args": ["--seed", "1"]}
    arguments = ["--dtype", "bfloat16", "--kv-cache-dtype", "fp8_e4m3", "--seed", "1"]
    asked = {"arm": arm, "server": {"args": arguments, "env": {"X": "1"}}, "serve": SERVE | {"client_timeout_s": 5}}
    document = judged(two_arms(world, asked=asked), decision=decision(factors=None))
    assert next(o for o in document.options if o.arm == "fp8-e4m3").state == "measured"


def test_one_round_under_other_conditions_refuses_the_arm(world):
    two_arms(world)
    world.server("fp8-e4m3", 3, asked={"model_digest": "model-2"})
    document = judged(world)
    assert "r3" in next(o for o in document.options if o.arm == "fp8-e4m3").reason.en


def test_accuracy_on_other_data_is_not_compared(world):
    two_arms(world)
    scores = {"multi_hop_qa": [1.0, 2.0]}
    world.accuracy("auto", scores)
    world.accuracy("fp8-e4m3", scores, data_sha256="data-2")
    document = judged(world)
    assert document.accuracy == {}
    assert any("data_sha256" in m.en for m in document.missing)


@pytest.mark.parametrize(
    "scores", [{"multi_hop_qa": [1.0, 2.0]}, {"multi_hop_qa": [1.0], "summary": [1.0]}], ids=["samples", "tasks"]
)
def test_accuracy_that_does_not_pair_is_not_compared(world, scores):
    two_arms(world)
    world.accuracy("auto", {"multi_hop_qa": [1.0]})
    world.accuracy("fp8-e4m3", scores)
    assert judged(world).accuracy == {}


def edit(path, change):
    data = json.loads(Path(path).read_text())
    change(data)
    # json writes NaN where write_json refuses it: that is the damage.
    Path(path).write_text(json.dumps(data))


@pytest.mark.parametrize("bad", [None, float("nan"), float("inf"), -1.0, 0.0, "400"])
def test_a_latency_that_is_no_positive_number_is_named(world, bad):
    two_arms(world)
    path = world.serve["auto"]["1"]["short"]
    edit(path, lambda data: data["measured"]["ttft_ms"].update(p99=bad))
    with pytest.raises(JobError, match=r"short\.json: measured\.ttft_ms\.p99"):
        gather(parse_spec(world.spec()))


def test_a_score_that_is_not_a_number_is_named(world):
    two_arms(world)
    for arm in ("auto", "fp8-e4m3"):
        world.accuracy(arm, {"summary": [1.0, 2.0]})
    edit(
        world.eval["fp8-e4m3"], lambda data: data["measured"]["tasks"]["summary"]["scores"].__setitem__(1, float("nan"))
    )
    with pytest.raises(JobError, match=r"summary\.scores\[1\]"):
        judged(world)


def test_evidence_of_another_arm_is_refused(world):
    two_arms(world)
    world.serve["fp8-e4m3"]["1"]["short"] = world.serve["auto"]["1"]["short"]
    with pytest.raises(JobError, match="arm is 'auto'"):
        gather(parse_spec(world.spec()))


@pytest.mark.parametrize("text", ["{", '{"schema_version": 99}'])
def test_damaged_and_unknown_evidence_is_refused(world, text):
    two_arms(world)
    Path(world.serve["auto"]["1"]["short"]).write_text(text)
    with pytest.raises(JobError, match=r"short\.json"):
        gather(parse_spec(world.spec()))


def test_a_missing_file_is_a_missing_measurement(world):
    two_arms(world)
    for tier in ("short", "long"):
        Path(world.serve["fp8-e4m3"]["2"][tier]).unlink()
    context = gather(parse_spec(world.spec()))
    assert sorted(context.runs["fp8-e4m3"]) == [1]
    assert judge(context).status.word == "Proposed"


def test_rounds_in_turn_are_paired_and_a_late_rerun_is_not(world):
    for order, (arm, r) in enumerate([("auto", 1), ("b", 1), ("b", 2), ("auto", 2), ("auto", 3), ("b", 3)]):
        world.server(arm, r, order=order)
    world.server("c", 1, order=7)
    context = gather(parse_spec(world.spec()))
    assert context.unpaired == {"c": {1}}
    assert late(starts(context.runs), context.blocks) == [("c", 1)]
    document = judge(context)
    assert [(run.arm, run.round) for run in document.order][-1] == ("c", 1)
    assert document.order[-1].late
    assert not document.order[0].late


def test_drift_is_seen_when_it_is_there_and_only_then(world):
    for seed, drifting in ((1, True), (2, False)):
        for r in range(1, 7):
            for position, arm in enumerate(("auto", "b")):
                hour = (2 * r + position) / 12
                rate = 50.0 * (0.8**hour if drifting else 1.0)
                world.server(arm, r, rate=rate, noise=0.005, order=2 * r + position)
        found = {(d.metric, d.tier): d for d in judged(world).drift}
        rate = found["output_tokens_per_s", "short"]
        assert rate.verdict == ("drift" if drifting else "none seen"), seed
        if drifting:
            assert rate.per_hour == pytest.approx(-0.2, abs=0.05)


def test_slope_of_a_known_line_with_two_levels():
    hours, levels = [0.0, 1.0, 2.0, 0.5, 1.5], [0.0, 0.0, 0.0, 9.0, 9.0]
    value, low, high = slope(
        hours, [0.1 * h + x for h, x in zip(hours, levels, strict=True)], ["a", "a", "a", "b", "b"], 0.95
    )
    assert (value, low, high) == (pytest.approx(0.1), pytest.approx(0.1), pytest.approx(0.1))
    assert slope([0.0, 1.0], [1.0, 2.0], ["a", "a"], 0.95) is None
    assert slope([1.0, 1.0, 1.0], [1.0, 2.0, 3.0], ["a"] * 3, 0.95) is None


def run_job(spec, output):
    environment = os.environ | {"PYTHONPATH": str(PYTHONPATH), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "adrbench.decide", "--spec", f"@{spec}", "--output", str(output)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


def test_the_job_writes_the_document_and_a_refusal_is_recorded(world):
    two_arms(world)
    spec, output = world.folder / "spec.json", world.folder / "cpu" / "decide" / "adr0011.json"
    write_json(spec, world.spec())
    done = run_job(spec, output)
    assert done.returncode == 0, done.stderr
    document = json.loads(output.read_text())
    assert (document["schema_version"], document["decision"], document["status"]["word"]) == (1, "adr0011", "Proposed")
    assert set(document["evidence"]) == {
        p for tiers in world.serve.values() for r in tiers.values() for p in r.values()
    }
    write_json(spec, world.spec(platform="other"))
    failed = run_job(spec, output)
    assert failed.returncode == 1
    assert "platform is 'cpu'" in failed.stderr
    assert "Traceback" not in failed.stderr


def visits(world, hosts):
    """One round of both arms on each host, FP8 always with twice the pool; the second arm's hosts may differ."""
    for number, (first, second) in enumerate(hosts, start=1):
        world.server("auto", number, asked={"host": first})
        fp8 = {"kv_cache_dtype": "fp8_e4m3"}
        world.server("fp8-e4m3", number, pool=93_184, resolved=fp8, asked={"host": second})
    return world


def test_rounds_of_several_hosts_are_compared_where_the_platform_says_so(world):
    visits(world, [("a", "a"), ("b", "b"), ("c", "c")])
    alone = judged(world)
    assert next(o for o in alone.options if o.arm == "fp8-e4m3").state == "absent"
    assert "host" in next(o for o in alone.options if o.arm == "fp8-e4m3").reason.en
    several = judged(world, several_hosts=True)
    assert next(o for o in several.options if o.arm == "fp8-e4m3").state == "measured"
    assert [run.late for run in several.order] == [False] * 6


def test_a_round_on_another_host_than_its_block_is_not_paired(world):
    several = judged(visits(world, [("a", "a"), ("b", "c"), ("b", "b")]), several_hosts=True)
    assert [(run.arm, run.round) for run in several.order if run.late] == [("fp8-e4m3", 2)]


def served_from(folder: str, python: str = ".envs/serve/bin/python") -> dict:
    """What a round asked of its server where the project lay in ``folder``."""
    return {
        "host": folder,
        "server": {
            "python": python if python.startswith("/") else f"{folder}/{python}",
            "model": f"{folder}/models/cpu",
            "args": ["--chat-template", f"{folder}/config/chat.jinja"],
            "env": {"LD_PRELOAD": f"{folder}/.envs/serve/lib/a.so:{folder}/.envs/serve/lib/b.so"},
        },
    }


def from_folders(world, *servers):
    for number, asked in enumerate(servers, start=1):
        world.server("auto", number, asked=asked)
        world.server("fp8-e4m3", number, pool=93_184, resolved={"kv_cache_dtype": "fp8_e4m3"}, asked=asked)
    return world


def test_on_several_hosts_the_project_may_lie_in_several_folders(world):
    from_folders(world, served_from("/root/A"), served_from("/home/a user/adrbench"))
    several = judged(world, several_hosts=True)
    assert next(o for o in several.options if o.arm == "fp8-e4m3").state == "measured"
    alone = judged(world)
    assert next(o for o in alone.options if o.arm == "fp8-e4m3").state == "absent"


def test_another_interpreter_is_another_one_on_several_hosts_too(world):
    from_folders(world, served_from("/root/A"), served_from("/root/A", "/opt/vllm/bin/python"))
    refused = next(o for o in judged(world, several_hosts=True).options if o.arm == "fp8-e4m3")
    assert refused.state == "absent"
    assert "server.python" in refused.reason.en
