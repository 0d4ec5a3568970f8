"""The proof on an accelerator, as far as it needs none: what passes, what is missing, who does what.

Cannot prove: anything about an accelerator; the check of the cache itself: test_serve_simulation.py.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "kv"))
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import cases
import simulation_proof
from adrbench.evidence import write_json
from adrbench.kernels.formats import schemes

NEAR = {"difference": 1e-4, "median_difference": 1e-5, "same_tokens": True, "apart": 1e-5}
FAR = {"difference": 0.3, "median_difference": 0.1, "same_tokens": False, "apart": 0.2}
HELD = {"steps": 90, "worst_token": 0.001}
OTHER = {"steps": 9, "worst_token": 0.8}
FP32, BF16 = ({"dtype": dtype, "graphs": True} for dtype in ("float32", "bfloat16"))


def run(right: dict, wrong: dict, held: dict = HELD, other: dict = OTHER, **graphs: int) -> dict:
    logits, cache = {"right": right, "another-axis": wrong}, {"right": held, "another-axis": other}
    return {"logits": logits, "cache": cache, "graphs": graphs or {"FULL": 5}}


@pytest.mark.parametrize("spec", [FP32, BF16])
def test_the_right_definition_passes_beside_a_wrong_one(spec):
    assert cases.verdict(spec, run(NEAR, FAR)) == []


@pytest.mark.parametrize(
    ("spec", "found", "problem"),
    [
        (FP32, run(FAR, FAR), "logits differ by 3.00e-01"),
        (BF16, run(FAR, FAR), "logits differ by 3.00e-01"),
        (BF16, run(NEAR | {"difference": 0.3}, FAR), "logits differ by 3.00e-01"),
        (BF16, run(NEAR | {"median_difference": 0.03}, FAR), "median 3.00e-02"),
        (FP32, run(NEAR, FAR, held=OTHER), "80% of a token's cached values differ"),
        (FP32, run(NEAR, FAR, held=HELD | {"steps": 0}), "of a token's cached values differ"),
        (FP32, run(NEAR, NEAR), "another-axis: the logits did not tell"),
        (BF16, run(NEAR, FAR, other=HELD), "another-axis: the cache did not tell"),
        (BF16, run(NEAR, FAR, NONE=7), "no decode step replayed a full graph"),
    ],
)
def test_what_does_not_hold_is_a_problem(spec, found, problem):
    assert any(problem in one for one in cases.verdict(spec, found))


def test_in_bf16_the_cache_tells_what_logits_cannot():
    assert cases.verdict(BF16, run(NEAR, NEAR)) == []


@pytest.mark.parametrize("workers", [1, 3, 7, 90])
def test_every_scheme_is_run_once_and_the_important_ones_first(workers):
    shares = simulation_proof.shares(sorted(schemes()), workers)
    assert sorted(name for share in shares for name in share) == sorted(schemes())
    in_order = [share[turn] for turn in range(len(shares[0])) for share in shares if turn < len(share)]
    assert in_order[: len(simulation_proof.IMPORTANT)] == list(simulation_proof.IMPORTANT)


@pytest.mark.parametrize(("status", "engines"), [(cases.NEW_ENGINE, 3), (1, 1)])
def test_a_process_that_cannot_go_on_is_followed_by_one_for_the_rest(tmp_path, monkeypatch, status, engines):
    """Stands in for proof.py: one result, the next scheme `again`, then its exit status."""
    script = tmp_path / "proof.py"
    script.write_text(
        "import json, sys\n"
        "spec = json.load(open(sys.argv[1]))\n"
        "rows = [{'start_s': 1.0}, {'scheme': spec['schemes'][0], 'problems': []}]\n"
        "rows += [{'scheme': name, 'again': ['x']} for name in spec['schemes'][1:2]]\n"
        "open(spec['output'], 'a').writelines(json.dumps(row) + '\\n' for row in rows)\n"
        f"sys.exit({status})\n"
    )
    monkeypatch.setattr(simulation_proof, "KV", tmp_path)
    spec = {"part": "schemes", "schemes": ["bf16", "kivi4", "kivi2"]}
    spec |= {"backend": "TRITON_ATTN", "dtype": "float32", "graphs": True}
    worker = simulation_proof.Worker("one", spec, tmp_path)
    starts = 1
    while True:
        process = worker.process
        process.wait(timeout=60)
        if worker.over() and worker.process is process:
            break
        starts += worker.process is not process
    assert starts == engines == sum("start_s" in row for row in worker.rows())
    worker.show_new()
    assert simulation_proof.missing(spec, worker.rows()) == spec["schemes"][engines:]
    found = simulation_proof.collect({"one": worker}, argparse.Namespace(), 0.0)
    assert found["passed"] is (engines == 3)
    assert list(found["logs"]) == ["one"]


def stopping(tmp_path, monkeypatch, how: str, **limits: float):
    """Stands in for proof.py: a scheme that stops in the middle of a line (``how``); the others have a result."""
    script = tmp_path / "proof.py"
    script.write_text(
        "import json, os, sys, time\n"
        "spec = json.load(open(sys.argv[1]))\n"
        "def say(row, end='\\n'):\n"
        "    with open(spec['output'], 'a') as stream:\n"
        "        stream.write(json.dumps(row) + end)\n"
        "say({'start_s': 1.0})\n"
        "for name in spec['schemes']:\n"
        "    say({'begins': name})\n"
        "    if name == 'kivi4':\n"
        "        say({'problems': []}, end='')\n"
        f"        {how}\n"
        "    say({'scheme': name, 'problems': []})\n"
    )
    monkeypatch.setattr(simulation_proof, "KV", tmp_path)
    spec = {"part": "schemes", "schemes": ["bf16", "kivi4", "kivi2"]}
    spec |= {"backend": "TRITON_ATTN", "dtype": "float32", "graphs": True}
    return simulation_proof.Worker("one", spec, tmp_path, **limits)


@pytest.mark.parametrize(
    ("how", "case_s", "problem"),
    [
        ("time.sleep(600)", 5, "no result and no word for 5 s"),
        ("os._exit(9)", 120, "the process ended with status 9"),
    ],
    ids=["silent", "ended"],
)
def test_a_scheme_that_stops_is_ended_and_the_rest_goes_on(tmp_path, monkeypatch, how, case_s, problem):
    worker = stopping(tmp_path, monkeypatch, how, ready_s=120, case_s=case_s)
    limit = time.monotonic() + 120
    while not worker.over() or worker.process.poll() is None:
        assert time.monotonic() < limit, worker.rows()
        time.sleep(0.1)
    found = simulation_proof.collect({"one": worker}, argparse.Namespace(), 0.0)
    assert found["verdicts"] == {"schemes TRITON_ATTN": {"bf16": "ok", "kivi4": [problem], "kivi2": "ok"}}
    assert found["results"] == 3, "what was cut off is no result"
    assert not found["passed"]
    assert not found["missing"]


def test_an_engine_that_does_not_start_is_ended(tmp_path, monkeypatch):
    (tmp_path / "one.jsonl").touch()
    worker = stopping(tmp_path, monkeypatch, "time.sleep(600)", ready_s=0, case_s=0)
    ended = worker.process
    assert not worker.over(), "there is more to do"
    assert ended.poll() is not None
    assert worker.process is not ended
    worker.process.kill()
    worker.process.wait()


def test_a_difference_that_json_has_no_number_for_is_written_all_the_same(tmp_path):
    logits = {"difference": math.inf, "median_difference": math.nan, "worst": (0, 3)}
    write_json(tmp_path / "found.json", simulation_proof.strict({"rows": [{"logits": logits, "ok": True}]}))
    text = (tmp_path / "found.json").read_text()
    found = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    told = {"difference": "inf", "median_difference": "nan", "worst": [0, 3]}
    assert found == {"rows": [{"logits": told, "ok": True}]}


def test_what_wrong_schemes_are_held_against_comes_before_the_rest():
    held_against = {live for live, *_ in cases.WRONG.values()}
    turns = simulation_proof.shares(sorted(schemes()), 7)
    assert held_against <= {name for share in turns for name in share[:2]}


def test_what_did_not_come_is_missing(tmp_path):
    spec = {"part": "schemes", "schemes": ["kivi4", "bf16"]}
    rows = [{"start_s": 9.0}, {"scheme": "kivi4", "problems": []}]
    assert simulation_proof.missing(spec, rows) == ["bf16"]
    assert simulation_proof.missing({"part": "identity", "schemes": ["bf16"]}, [{"start_s": 9.0}]) == ["bf16"]
    assert simulation_proof.missing({"part": "identity", "schemes": ["bf16"]}, [json.loads('{"problems": []}')]) == []


def test_every_wrong_scheme_is_held_against_one_that_is_run():
    assert {live for live, *_ in cases.WRONG.values()} <= set(schemes())
