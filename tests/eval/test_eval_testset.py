"""Real test sets by path: what is accepted, what is refused, how a row becomes a sample."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from adrbench.eval import dataset
from adrbench.eval.real import cut_middle
from adrbench.eval.spec import TaskSpec
from adrbench.eval.tasks import load_tasks
from adrbench.eval.testset import verify_testset_access
from adrbench.job import JobError
from adrbench.paths import PYTHONPATH


def write_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def hotpot_rows(count: int) -> list[dict[str, Any]]:
    # U+2028 inside a text: str.splitlines would tear the line apart.
    return [
        {
            "input": f"Who is {i}?",
            "context": f"start{i} \u2028 " + "word " * 400 + f"end{i}",
            "answers": [f"nobody {i}"],
        }
        for i in range(count)
    ]


def test_each_state_of_a_file_is_told(tmp_path: Path) -> None:
    write_lines(tmp_path / "data/hotpotqa.jsonl", hotpot_rows(200))
    write_lines(tmp_path / "gov_report.jsonl", [{"context": "a", "answers": ["b"]}] * 199)
    write_lines(tmp_path / "cwe/validation.jsonl", [{"input": "x\nQuestion?", "outputs": ["a"]}] * 3)
    write_lines(tmp_path / "fwe/validation.jsonl", [{"input": "x"}])
    found = verify_testset_access({"longbench": str(tmp_path), "ruler": str(tmp_path)})
    states = {status.path.removeprefix(f"{tmp_path}/"): (status.status, status.used) for status in found}
    assert states["data/hotpotqa.jsonl"] == ("complete", True)
    assert states["gov_report.jsonl"] == ("incomplete", False)
    assert states["cwe/validation.jsonl"] == ("complete", True)
    assert states["fwe/validation.jsonl"] == ("incomplete", False)
    assert states["vt/validation.jsonl"] == ("missing", False)
    problems = {status.path: status.problem for status in found}
    assert problems[f"{tmp_path}/gov_report.jsonl"] == "199 lines, the published file has 200"
    assert problems[f"{tmp_path}/fwe/validation.jsonl"] == "line 1 lacks outputs"


def test_without_folders_nothing_is_used() -> None:
    found = verify_testset_access({}, ["multi_hop_qa"])
    assert [(status.status, status.used) for status in found] == [("not configured", False)]


def test_longbench_rows_are_cut_in_the_middle_and_drawn_by_seed(tmp_path: Path, model_folder: Path) -> None:
    write_lines(tmp_path / "hotpotqa.jsonl", hotpot_rows(200))
    count = dataset.token_counter(model_folder)
    settings = TaskSpec(name="multi_hop_qa", length_tokens=200, samples=5, seed=1)
    (data,) = dataset.build([settings], {"longbench": str(tmp_path)}, count)
    assert data.source["kind"] == "longbench"
    assert list(data.source["sha256"]) == [str(tmp_path / "hotpotqa.jsonl")]
    for sample in data.samples:
        number = sample.answers[0].split()[1]
        assert 190 <= sample.prompt_tokens <= 200
        assert sample.document.startswith(f"start{number} ")
        assert sample.document.endswith(f"end{number}")
        assert sample.control.endswith(f"Question: Who is {number}?\nAnswer:")
    (other,) = dataset.build([settings.model_copy(update={"seed": 2})], {"longbench": str(tmp_path)}, count)
    assert [s.answers for s in other.samples] != [s.answers for s in data.samples]


def test_ruler_rows_are_never_cut(tmp_path: Path, model_folder: Path) -> None:
    for name in ("niah_multikey_1", "niah_multivalue", "niah_multiquery"):
        text = f"{name} " + "filler " * 300 + "\nWhat is it? It is"
        write_lines(tmp_path / name / "validation.jsonl", [{"index": 0, "input": text, "outputs": ["4"]}])
    count = dataset.token_counter(model_folder)
    settings = TaskSpec(name="retrieval_multi_point", length_tokens=400, samples=3)
    (data,) = dataset.build([settings], {"ruler": str(tmp_path)}, count)
    assert {sample.prompt.split()[0] for sample in data.samples} == {
        "niah_multikey_1",
        "niah_multivalue",
        "niah_multiquery",
    }
    assert {sample.control for sample in data.samples} == {"What is it? It is"}
    with pytest.raises(JobError, match="a RULER row has 307 tokens, the task allows 300"):
        dataset.build([settings.model_copy(update={"length_tokens": 300})], {"ruler": str(tmp_path)}, count)


def test_incomplete_or_small_files_are_refused(tmp_path: Path, model_folder: Path) -> None:
    count = dataset.token_counter(model_folder)
    settings = TaskSpec(name="multi_hop_qa", length_tokens=200, samples=5)
    with pytest.raises(JobError, match=r"eval\.data\.longbench: .*hotpotqa\.jsonl is missing"):
        dataset.build([settings], {"longbench": str(tmp_path)}, count)
    (tmp_path / "hotpotqa.jsonl").write_text('{"input": "a", "context": "b", "answers": ["c"]}\n{"input": ')
    with pytest.raises(JobError, match="is incomplete: line 2 cannot be read"):
        dataset.build([settings], {"longbench": str(tmp_path)}, count)


def test_cut_middle_keeps_short_texts() -> None:
    assert cut_middle("a b c", 3, lambda text: len(text.split())) == "a b c"
    assert cut_middle("a b c d e f", 4, lambda text: len(text.split())) == "a b e f"


def test_command_line(tmp_path: Path) -> None:
    def call(*options: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "adrbench.eval.testset", "--folder", str(tmp_path), *options]
        return subprocess.run(argv, env={"PYTHONPATH": str(PYTHONPATH)}, capture_output=True, text=True, check=False)

    empty = call()
    assert empty.returncode == 1
    assert "nothing usable" in empty.stderr
    write_lines(tmp_path / "hotpotqa.jsonl", hotpot_rows(200))
    table = call()
    assert table.returncode == 0
    assert "complete    multi_hop_qa" in table.stdout
    listed = json.loads(call("--json").stdout)
    assert len(listed) == sum(len(task.source.files) for task in load_tasks().values())
