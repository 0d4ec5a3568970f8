"""Shapes: folders that vLLM fills with random weights. That vLLM serves them is shown by a server only."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from adrbench import evidence
from adrbench.config.servers import RANDOM
from adrbench.job import JobError
from adrbench.model import shapes
from adrbench.model.__main__ import work
from adrbench.model.folder import check_folder
from adrbench.serve.prompts import make_prompts
from adrbench.serve.spec import random_weights
from tokenizers import Tokenizer


@pytest.fixture(scope="module", params=list(shapes.SHAPES))
def written(request, tmp_path_factory) -> tuple[str, Path]:
    return request.param, shapes.write(request.param, tmp_path_factory.mktemp("shape"))


def test_every_token_has_a_text_of_its_own(written):
    name, folder = written
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    size = shapes.vocabulary(shapes.SHAPES[name])
    assert tokenizer.get_vocab_size() == size
    plain = [i for i in random.Random(0).sample(range(size), 200) if not tokenizer.id_to_token(i).startswith("<|")]
    assert [tokenizer.encode(tokenizer.decode([i])).ids for i in plain] == [[i] for i in plain]


def test_prompts_have_exact_lengths_and_many_different_tokens(written):
    _, folder = written
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    rows = make_prompts(tokenizer, 500, 1500, 3, "seed")
    for row in rows:
        ids = tokenizer.encode(row["prompt"]).ids
        assert len(ids) == row["tokens"]
        assert len(set(ids)) > 100, "one token over and over is no load like text"


# Published parameter counts (model cards): the text model's.
PUBLISHED = {"smollm2-135m": 134_515_008, "qwen3-8b": 8_190_735_360}


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_size_is_computed_from_the_configuration(name, tmp_path):
    facts = check_folder(shapes.write(name, tmp_path))
    assert facts["dummy"]
    assert (facts["parameters"], facts["weight_bytes"]) == (PUBLISHED[name], 2 * PUBLISHED[name])


def test_special_tokens_stand_where_the_configuration_says(written):
    name, folder = written
    config, tokenizer = shapes.SHAPES[name], Tokenizer.from_file(str(folder / "tokenizer.json"))
    named = {key: value for key, value in config.items() if key.endswith(("_token_id", "_start_token_id"))}
    assert named
    assert [key for key, value in named.items() if not tokenizer.id_to_token(value).startswith("<|")] == []


def test_fewer_layers(tmp_path):
    config = json.loads((shapes.write("qwen3.5-27b", tmp_path, layers=8) / "config.json").read_text())
    assert config["text_config"]["num_hidden_layers"] == 8
    assert shapes.SHAPES["qwen3.5-27b"]["text_config"]["num_hidden_layers"] == 64


def spec(folder: Path, **changes) -> dict:
    return {
        "platform": "p", "source": "shape", "shape": "smollm2-135m", "folder": str(folder), "wheel": "",
        "serve_python": "python3", "dummy_allowed": True,
    } | changes  # fmt: skip


def test_the_job_writes_the_folder_and_says_that_weights_are_random(tmp_path):
    folder, output = tmp_path / "models" / "p", tmp_path / "model.json"
    folder.mkdir(parents=True)
    (folder / "stale").write_text("of an earlier shape")
    work(spec(folder), output)
    document = evidence.read(output)
    assert document.notes == [shapes.RANDOM_WEIGHTS]
    assert document.measured["dummy"]
    assert document.measured["greedy_answer"] is None
    assert not (folder / "stale").exists()
    assert list(folder.parent.iterdir()) == [folder]


def test_an_unknown_shape_is_refused_with_those_that_exist(tmp_path):
    with pytest.raises(JobError, match=r"'qwen9'; there are smollm2-135m, qwen3-8b, qwen3\.5-27b"):
        work(spec(tmp_path / "models" / "p", shape="qwen9"), tmp_path / "model.json")


@pytest.mark.parametrize(
    ("args", "made_up"),
    [
        (RANDOM, True),
        (["--dtype", "bfloat16", "--load-format=dummy"], True),
        (["--load-format", "safetensors"], False),
        (["--served-model-name", "dummy"], False),
        ([], False),
    ],
)
def test_random_weights_are_told_from_the_arguments(args, made_up):
    assert random_weights(args) is made_up
