"""What is accepted as a complete result, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from adrbench.eval import completeness, samples
from adrbench.eval.__main__ import explain
from adrbench.eval.control import paired_difference
from adrbench.job import JobError

ROWS = [{"index": i, "form": "f", "answers": [str(i)], "prompt": "p"} for i in range(4)]
PREDICTIONS = {str(i): {"prediction": "0 1", "gold": [str(i)]} for i in range(4)}
RESULT = {"score": 50.0}


def share(prediction: str, answers: Any) -> float:
    return 100.0 * sum(answer in prediction for answer in answers) / len(answers)


def test_scores_are_in_sample_order() -> None:
    shuffled = dict(reversed(PREDICTIONS.items()))
    record = samples.collect("t", ROWS, shuffled, RESULT, share)
    assert [sample["score"] for sample in record["samples"]] == [100, 100, 0, 0]
    assert record["mean"] == record["opencompass_mean"] == 50


@pytest.mark.parametrize(
    ("predictions", "result", "text"),
    [
        ({k: v for k, v in PREDICTIONS.items() if k != "3"}, RESULT, "3 predictions for 4 samples"),
        (
            {**{k: v for k, v in PREDICTIONS.items() if k != "3"}, "7": PREDICTIONS["3"]},
            RESULT,
            "sample 3 has no prediction",
        ),
        (PREDICTIONS | {"1": {"prediction": None, "gold": ["1"]}}, RESULT, "sample 1: the prediction is None"),
        (PREDICTIONS | {"1": {"prediction": "0 1", "gold": ["9"]}}, RESULT, "belong to other data"),
        ({k: v | {"prediction": " "} for k, v in PREDICTIONS.items()}, {"score": 0.0}, "every prediction is empty"),
        (PREDICTIONS, {"error": "No predictions found."}, "No predictions found"),
        (PREDICTIONS, {"score": 50.02}, "mean of the samples is 50.0000, OpenCompass reports 50.0200"),
    ],
    ids=["too-few", "gap", "not-text", "other-data", "all-empty", "no-score", "other-mean"],
)
def test_incomplete_results_are_refused(predictions: dict[str, Any], result: dict[str, Any], text: str) -> None:
    with pytest.raises(samples.Incomplete, match=text):
        samples.collect("t", ROWS, predictions, result, share)


@pytest.fixture
def finished_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files of a finished OpenCompass run with one data set."""
    data = tmp_path / "t.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    dataset = {"abbr": "t", "path": str(data), "eval_cfg": {"evaluator": {"type": "x.Y"}}}
    (tmp_path / "config.py").write_text(f"models = [{{'abbr': 'served'}}]\ndatasets = [{dataset!r}]\n")
    for kind, content in (("predictions", PREDICTIONS), ("results", RESULT)):
        (tmp_path / kind / "served").mkdir(parents=True)
        (tmp_path / kind / "served" / "t.json").write_text(json.dumps(content))
    monkeypatch.setattr(samples, "evaluator", lambda path: share)
    monkeypatch.setattr(samples.importlib.metadata, "version", lambda name: "0")
    return tmp_path


def test_a_finished_run_is_collected(finished_run: Path) -> None:
    timer = finished_run / "predictions/served/timer/time.jsonl"
    timer.parent.mkdir()
    timer.write_text('{"dataset_name": "t", "time": 1.5, "num_sample": 4}\n')
    record = samples.collect_all(finished_run / "config.py", finished_run)["datasets"]["t"]
    assert (record["mean"], record["seconds"]) == (50, 1.5)


def test_a_missing_prediction_file_names_the_leftover(finished_run: Path) -> None:
    folder = finished_run / "predictions/served"
    (folder / "t.json").rename(folder / "tmp_t.jsonl")
    with pytest.raises(samples.Incomplete, match=r"t\.json was not written \(found \['tmp_t\.jsonl'\]\)"):
        samples.collect_all(finished_run / "config.py", finished_run)


def test_the_reason_is_taken_from_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("x\nadrbench: incomplete: t: 3 predictions for 4 samples\n")
    assert explain(samples.INCOMPLETE, log).startswith("t: 3 predictions for 4 samples")
    log.write_text("fine\nopenai.InternalServerError: Error code: 500\n")
    assert "Error code: 500" in explain(1, log)
    assert "no error line" in explain(1, tmp_path / "none")


METRICS = """# HELP vllm:prompt_tokens_total x
vllm:prompt_tokens_total{engine="0",model_name="m"} 1200.0
vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} 7.0
vllm:request_success_total{engine="0",finished_reason="length",model_name="m"} 3.0
vllm:request_success_total{engine="0",finished_reason="abort",model_name="m"} 1.0
"""


def test_server_counters() -> None:
    before = completeness.counters('vllm:prompt_tokens_total{engine="0"} 100.0\n')
    after = completeness.counters(METRICS)
    assert after == {"prompt_tokens": 1200, "stop": 7, "length": 3, "abort": 1}
    with pytest.raises(JobError, match=r"other ends: \{'abort': 1\}"):
        completeness.check(before, after, 10, 1000)
    after["abort"] = 0
    assert completeness.check(before, after, 10, 1100)["prompt_tokens"] == 1100
    with pytest.raises(JobError, match="finished 10 of 11 requests"):
        completeness.check(before, after, 11, 1000)
    with pytest.raises(JobError, match="got 1100 prompt tokens, the prompts have 1101"):
        completeness.check(before, after, 10, 1101)
    with pytest.raises(JobError, match="no vllm:prompt_tokens_total"):
        completeness.counters("process_cpu_seconds_total 1.0\n")


def test_paired_difference() -> None:
    assert paired_difference([50, 60, 70], [40, 50, 60]) == (10, 10, 10)
    mean, low, high = paired_difference([100, 0] * 20, [0, 0] * 20)
    assert mean == 50
    assert 30 < low < 40 < 60 < high < 70  # normal theory: 50 +- 15.7
    low, high = paired_difference([1, -1] * 10, [0] * 20)[1:]
    assert low < 0 < high
    with pytest.raises(ValueError, match="cannot be paired"):
        paired_difference([1, 2], [1])


def test_rounding_of_samples_and_mean_is_no_difference():
    """Scores rounded one by one can lie 0.01 from a mean that was rounded too: such a run was once refused."""
    from adrbench.eval import samples

    exact = [100 / 3, 100 / 7, 100 / 11] * 5
    rounded = [round(score, 2) for score in exact]
    reported = round(sum(exact) / len(exact), 2)
    assert abs(sum(rounded) / len(rounded) - reported) <= samples.TOLERANCE
    assert abs(25.5943 - 25.6000) <= samples.TOLERANCE
