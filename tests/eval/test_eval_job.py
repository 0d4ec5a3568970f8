"""The whole job, with the real OpenCompass and a fake server for injected faults.

What this cannot prove: that vLLM behaves like the fake; the workflow's own run is made with vLLM.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from adrbench import evidence
from adrbench.eval import dataset
from adrbench.eval.__main__ import evaluate
from adrbench.eval.spec import parse_spec
from adrbench.job import JobError
from adrbench.paths import ROOT

needs_opencompass = pytest.mark.skipif(
    not (ROOT / ".envs/eval/bin/python").exists(), reason="the eval environment is not installed"
)


@needs_opencompass
def test_a_complete_run(tmp_path: Path, make_spec: Any, open_fake: Any) -> None:
    output = tmp_path / "results/cpu/eval/base.json"
    evaluate(make_spec(), output, open_fake)
    found = evidence.read(output)
    assert evidence.verify_files(output) == []
    assert found.asked["content"] == "string"
    # Arms without a control must carry the same digest: decisions compare it.
    spec = parse_spec(make_spec())
    sets = dataset.build(spec.tasks, {}, dataset.token_counter(Path(spec.model)))
    assert found.asked["data_sha256"] == dataset.digest(sets, control=False)
    assert found.asked["thinking"] == "model has none"
    assert found.resolved["opencompass_version"] == "0.5.4"
    retrieval, qa = found.measured["tasks"]["retrieval_multi_point"], found.measured["tasks"]["multi_hop_qa"]
    # The fake echoes its prompt: all numbers are in it, none in the control.
    assert retrieval["scores"] == [100, 100, 100]
    assert retrieval["control"]["scores"] == [0, 0, 0]
    assert (retrieval["control"]["low"], retrieval["control"]["high"]) == (100, 100)
    assert 0 < qa["mean"] < 20
    assert qa["control"]["mean"] == 0
    assert found.measured["mean_of_tasks"] == pytest.approx((100 + qa["mean"]) / 2)
    assert found.measured["server_counters"]["stop"] == 10
    assert retrieval["seconds"] > 0
    assert "test-key" not in "".join(p.read_text(errors="replace") for p in tmp_path.rglob("*") if p.is_file())


@needs_opencompass
@pytest.mark.slow
def test_one_failing_prompt_fails_the_job(tmp_path: Path, make_spec: Any, open_fake: Any) -> None:
    output = tmp_path / "base.json"
    evaluate_inputs = make_spec(control=False, server={"fail_on": "On which river"})
    evaluate_inputs["tasks"] = [{"name": "multi_hop_qa", "length_tokens": 256, "samples": 3, "max_new_tokens": 16}]
    with pytest.raises(JobError, match=r"OpenCompass exited with code 1.*(500|failed after retrying)") as refused:
        evaluate(evaluate_inputs, output, open_fake)
    assert refused.value.reason == "partial-eval"
    assert not output.exists()


def stand_in(tmp_path: Path, body: str) -> str:
    """An eval interpreter that answers the version question and runs ``body`` instead of OpenCompass."""
    path = tmp_path / "python"
    path.write_text(f'#!/bin/sh\nif [ "$1" = -c ]; then echo 0.5.4; exit; fi\n{body}\n')
    path.chmod(0o755)
    return str(path)


def one_request(tmp_path: Path) -> Path:
    """A client that asks one question of the server that the configuration beside it names."""
    path = tmp_path / "ask.py"
    path.write_text(
        "import json, re, urllib.request\n"
        "url = re.search(r'http://[0-9.:]+', open('../config.py').read())[0] + '/v1/chat/completions'\n"
        "body = json.dumps({'messages': [{'content': 'x'}], 'temperature': 0}).encode()\n"
        "urllib.request.urlopen(urllib.request.Request(url, body, {'Authorization': 'Bearer test-key'}))\n"
    )
    return path


def test_a_dying_server_ends_the_job(tmp_path: Path, make_spec: Any, open_fake: Any) -> None:
    python = stand_in(tmp_path, f"{sys.executable} {one_request(tmp_path)}; sleep 60")
    spec = make_spec(eval_python=python, server={"die_after": 1})
    with pytest.raises(JobError, match="the server exited with code 1 while") as refused:
        evaluate(spec, tmp_path / "base.json", open_fake)
    assert refused.value.reason == "server-died"
    assert not (tmp_path / "base.json").exists()


def test_a_time_limit_ends_the_job(tmp_path: Path, make_spec: Any, open_fake: Any) -> None:
    spec = make_spec(eval_python=stand_in(tmp_path, "sleep 60"), timeout_s=0.5)
    with pytest.raises(JobError, match="still running after"):
        evaluate(spec, tmp_path / "base.json", open_fake)


def test_aborted_requests_are_refused(tmp_path: Path, make_spec: Any, open_fake: Any) -> None:
    """A vLLM that is shutting down answers HTTP 200 with a truncated text: only its counters tell."""
    python = stand_in(tmp_path, f"{sys.executable} {one_request(tmp_path)}")
    with pytest.raises(JobError, match=r"other ends: \{'abort': 1\}"):
        evaluate(make_spec(eval_python=python, server={"abort_on": "x"}), tmp_path / "base.json", open_fake)


def test_success_without_requests_is_refused(tmp_path: Path, make_spec: Any, open_fake: Any) -> None:
    """An exit code of 0 proves nothing."""
    with pytest.raises(JobError, match="the server finished 0 of 10 requests"):
        evaluate(make_spec(eval_python=stand_in(tmp_path, "exit 0")), tmp_path / "base.json", open_fake)


def test_an_incomplete_result_is_refused_with_its_reason(tmp_path: Path, make_spec: Any, open_fake: Any) -> None:
    body = "echo 'adrbench: incomplete: multi_hop_qa: 1 predictions for 2 samples'; exit 3"
    with pytest.raises(JobError, match="multi_hop_qa: 1 predictions for 2 samples") as refused:
        evaluate(make_spec(eval_python=stand_in(tmp_path, body)), tmp_path / "base.json", open_fake)
    assert refused.value.reason == "partial-eval"


def test_predictions_of_an_earlier_run_are_not_reused(tmp_path: Path, make_spec: Any, open_fake: Any) -> None:
    old = tmp_path / "base/opencompass/data-0/predictions/served/multi_hop_qa.json"
    old.parent.mkdir(parents=True)
    old.write_text(json.dumps({}))
    with pytest.raises(JobError):
        evaluate(make_spec(eval_python=stand_in(tmp_path, "exit 1")), tmp_path / "base.json", open_fake)
    assert not old.exists()
