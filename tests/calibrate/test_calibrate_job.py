"""Calibration on a tiny random model, in the serving interpreter: what is kept is what the cache held.

What it cannot prove: that a text of ours calibrates well for real requests; the accuracy runs show that.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from adrbench.calibrate.samples import texts
from adrbench.calibrate.spec import parse_spec
from adrbench.job import JobError
from adrbench.paths import PYTHONPATH

# A two-layer Llama with 2 KV heads of 16, its tokenizer one id a character, and the whole job on it.
SCRIPT = """
import json, sys
from pathlib import Path
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM
from adrbench import evidence
from adrbench.calibrate import __main__ as job
from adrbench.calibrate.samples import collect, encoder, outliers, texts

folder = Path(sys.argv[1])
torch.manual_seed(0)
config = LlamaConfig(vocab_size=300, hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
                     num_key_value_heads=2, head_dim=16, max_position_embeddings=512)
network = LlamaForCausalLM(config).to(torch.float32)
network.save_pretrained(folder / "model")
vocabulary = {chr(i): i for i in range(300)}
tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=chr(0)))
tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
tokenizer.save(str(folder / "model/tokenizer.json"))
evidence.write(folder / "model.json", evidence.Evidence(stage="model", platform="cpu", started_at="a", finished_at="b",
                                                        measured={"digest": "d"}))
before = sorted((p.name, evidence.digest_file(p)) for p in (folder / "model").iterdir())
job.work({"platform": "cpu", "model": str(folder / "model"), "model_evidence": str(folder / "model.json"),
          "schemes": [{"name": "int8_per_head"}, {"name": "fp8_per_tensor"}, {"name": "kvquant4"}],
          "segments": 2, "tokens": 96, "dtype": "float32"}, folder / "calibrate.json")
after = sorted((p.name, evidence.digest_file(p)) for p in (folder / "model").iterdir())
prompts = texts(0, 2, 96, encoder(folder / "model"))
layers = collect(folder / "model", prompts, "float32")
with torch.inference_mode():
    cache = network(torch.tensor([prompts[1]]), use_cache=True).past_key_values
same = torch.equal(layers[1][0][96:], cache.layers[1].keys[0].transpose(0, 1).float())
even = torch.randn(400, 2, 16, generator=torch.Generator().manual_seed(1))
one = even.clone(); one[:, 0] *= 50
print("RESULT " + json.dumps({
    "untouched": before == after, "same": same, "amax": layers[0][0].abs().amax((0, 2)).tolist(),
    "shape": list(layers[0][0].shape), "outliers": [outliers({0: even, 1: even}), outliers({0: one, 1: one})],
}))
"""


@pytest.fixture(scope="module")
def calibrated(serve_python: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any]]:
    """(what the script saw, the evidence it wrote)."""
    folder = tmp_path_factory.mktemp("calibrate")
    environment = {"PYTHONPATH": str(PYTHONPATH), "PATH": "/usr/bin:/bin", "HOME": str(folder), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [serve_python, "-c", SCRIPT, str(folder)], env=environment, capture_output=True, text=True, timeout=400
    )
    assert done.returncode == 0, done.stderr[-3000:]
    line = next(line for line in done.stdout.splitlines() if line.startswith("RESULT "))
    return json.loads(line.removeprefix("RESULT ")), json.loads((folder / "calibrate.json").read_text())


def test_samples_are_what_the_cache_holds(calibrated: Any) -> None:
    seen, _ = calibrated
    assert seen["shape"] == [192, 2, 16]
    assert seen["same"]


def test_the_model_folder_is_not_touched(calibrated: Any) -> None:
    assert calibrated[0]["untouched"]


def test_scales_reach_the_largest_value_of_each_head(calibrated: Any) -> None:
    seen, document = calibrated
    layers = document["measured"]["schemes"]["int8_per_head"]["layers"]
    assert sorted(layers) == ["0", "1"]
    scales = [head[0] for head in layers["0"]["key"]["scale"]]
    assert scales == pytest.approx([amax / 127 for amax in seen["amax"]], rel=1e-5)


def test_a_layer_has_what_its_scheme_needs(calibrated: Any) -> None:
    schemes = calibrated[1]["measured"]["schemes"]
    assert set(schemes) == {"int8_per_head", "fp8_per_tensor", "kvquant4"}
    assert len(schemes["kvquant4"]["layers"]["1"]["value"]["levels"]) == 16
    assert set(schemes["kvquant4"]["layers"]["1"]["key"]) == {"levels", "low", "high"}


def test_the_evidence_names_model_and_text(calibrated: Any) -> None:
    document = calibrated[1]
    assert document["asked"]["identity"]["model_digest"] == "d"
    assert len(document["asked"]["text_sha256"]) == 64
    assert document["measured"]["tokens"] == 192


def test_outliers_in_one_head_are_told_from_outliers_everywhere(calibrated: Any) -> None:
    even, one = calibrated[0]["outliers"]
    assert even["heads"] == one["heads"] == 4
    assert even["head_share"] == 0.5
    assert one["head_share"] == 0.25


def test_texts_have_the_asked_length_and_differ(tmp_path: Path) -> None:
    made = texts(1, 3, 700, lambda text: [ord(c) for c in text])
    assert [len(ids) for ids in made] == [700] * 3
    assert made[0] != made[1]
    assert texts(1, 2, 700, lambda text: [ord(c) for c in text]) == made[:2]


def test_a_specification_without_schemes_is_refused() -> None:
    with pytest.raises(JobError, match="schemes"):
        parse_spec({"platform": "cpu", "model": "m", "model_evidence": "e", "schemes": []})
