"""The configuration and command that OpenCompass gets; that it accepts them is shown by test_eval_job.py."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
from adrbench.eval import dataset, opencompass
from adrbench.eval.spec import TaskSpec, parse_spec
from adrbench.job import JobError


def settings_of(model_folder: Path, tmp_path: Path, **changes: Any) -> dict[str, Any]:
    names = ("multi_hop_qa", "retrieval_multi_point")
    count = dataset.token_counter(model_folder)
    sets = dataset.build([TaskSpec(name=name, length_tokens=300, samples=4) for name in names], {}, count)
    options: dict[str, Any] = {
        "base_url": "http://127.0.0.1:1", "served_name": "model", "tokenizer": model_folder, "concurrency": 3,
        "request_timeout_s": 20, "control": True, "extra_body": {},
    }  # fmt: skip
    path = tmp_path / "config.py"
    path.write_text(opencompass.config(sets, tmp_path, **(options | changes)))
    return runpy.run_path(str(path))


def test_settings_that_make_a_failure_visible(model_folder: Path, tmp_path: Path) -> None:
    found = settings_of(model_folder, tmp_path)
    (model,) = found["models"]
    assert model["type"].endswith(".OpenAISDK")
    assert model["key"] == "ENV"
    assert model["mode"] == "none"
    assert model["openai_api_base"] == "http://127.0.0.1:1/v1"
    assert (model["batch_size"], model["max_workers"]) == (4, 3)
    assert model["temperature"] == 0.0
    assert found["infer"]["partitioner"]["type"].endswith(".NaivePartitioner")
    for data in found["datasets"]:
        # OpenCompass shortens the output when prompt + output + 100 tokens exceed max_seq_len.
        assert model["max_seq_len"] >= 300 + data["infer_cfg"]["inferencer"]["max_out_len"] + 100
    names = [data["abbr"] for data in found["datasets"]]
    assert names == ["multi_hop_qa", "multi_hop_qa-control", "retrieval_multi_point", "retrieval_multi_point-control"]
    assert [d["abbr"] for d in settings_of(model_folder, tmp_path, control=False)["datasets"]] == names[::2]


def test_reasoning_names_are_refused(model_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(JobError, match="'my-o3-model' contains 'o3'"):
        settings_of(model_folder, tmp_path, served_name="my-o3-model")


def test_thinking_is_off_where_a_model_has_it(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ messages }}"}))
    assert opencompass.thinking(tmp_path, "none") == ("model has none", {})
    with pytest.raises(JobError, match="no enable_thinking"):
        opencompass.thinking(tmp_path, "on")
    (tmp_path / "chat_template.jinja").write_text("{% if enable_thinking %}<think>{% endif %}")
    assert opencompass.thinking(tmp_path, "off") == ("off", {"chat_template_kwargs": {"enable_thinking": False}})
    assert opencompass.thinking(tmp_path, "on")[1] == {"chat_template_kwargs": {"enable_thinking": True}}


def test_missing_opencompass_is_told_before_a_server_starts() -> None:
    with pytest.raises(JobError, match=r"has no opencompass .*make setup"):
        opencompass.check_installed(sys.executable, "0.5.4")
    with pytest.raises(JobError, match=r"/nowhere/python cannot be run"):
        opencompass.check_installed("/nowhere/python", "0.5.4")


def test_specification_errors_name_the_key(make_spec: Any) -> None:
    assert parse_spec(make_spec()).concurrency == 4
    for change, text in (
        ({"tasks": []}, "tasks"),
        ({"concurrency": 0}, r"concurrency.*found 0"),
        ({"speed": 1}, "speed"),
        ({"arm": {}}, r"arm\.name"),
    ):
        with pytest.raises(JobError, match=text):
            parse_spec(make_spec(**change))


def test_the_interpreter_can_be_named_in_a_file(make_spec: Any, tmp_path: Path) -> None:
    named = tmp_path / "eval.json"
    with pytest.raises(JobError, match=r"eval_python: .*eval\.json names no interpreter"):
        parse_spec(make_spec(eval_python=f"@{named}"))
    named.write_text('{"python": "/env/bin/python"}')
    assert parse_spec(make_spec(eval_python=f"@{named}")).eval_python == "/env/bin/python"
