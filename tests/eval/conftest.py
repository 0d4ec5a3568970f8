"""A tiny tokenizer (one token per word or punctuation mark) and a fake vLLM, for the accuracy stage's tests."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from adrbench.paths import ROOT
from adrbench.serve.process import Guarded, job_environment, run_guarded
from tokenizers import Tokenizer, models, pre_tokenizers

FAKE = Path(__file__).parent / "fake_vllm.py"
# Another host's interpreter, such as one that a bundle installed, may be named to try it.
EVAL_PYTHON = Path(os.environ.get("EVAL_PYTHON", ROOT / ".envs/eval/bin/python"))


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the stage reads of a model: tokenizer and chat template."""
    folder = tmp_path_factory.mktemp("model")
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "[UNK]", "chat_template": "{{ messages }}"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "config.json").write_text('{"model_type": "llama"}')
    return folder


class FakeServer:
    """Stands where ``adrbench.serve.server.Server`` stands; the client supervision is the real one."""

    def __init__(self, process: Guarded, port: int):
        self.process, self.base_url, self.model = process, f"http://127.0.0.1:{port}", "model"
        self.resolved = {"vllm_version": "fake", "kv_cache_dtype": "auto"}

    def metrics(self) -> str:
        import urllib.request

        with urllib.request.urlopen(self.base_url + "/metrics", timeout=10) as answer:
            return answer.read().decode()

    def run_client(
        self, argv: list[str], log: Path, timeout_s: float, env: dict[str, str] | None = None, cwd: Path | None = None
    ) -> int:
        environment = job_environment({"OPENAI_API_KEY": "test-key"} | (env or {}))
        return run_guarded(argv, log, environment, timeout_s, [self.process], cwd)


@contextmanager
def _open_fake(settings: dict[str, Any], folder: Path) -> Iterator[FakeServer]:
    """The fake server as a context manager with the signature of ``serving``; ``settings`` are its faults."""
    folder.mkdir(parents=True, exist_ok=True)
    port_file = folder / "port"
    argv = [sys.executable, str(FAKE), str(port_file), json.dumps(settings)]
    process = Guarded(argv, folder / "server.log", job_environment(), 1.0)
    try:
        while not port_file.exists():
            assert process.poll() is None, process.tail()
        yield FakeServer(process, int(port_file.read_text()))
    finally:
        process.stop()


@pytest.fixture
def open_fake() -> Any:
    return _open_fake


@pytest.fixture
def make_spec(model_folder: Path) -> Any:
    """Builds a job specification with two tiny tasks; keyword arguments replace its keys."""

    def make(**changes: Any) -> dict[str, Any]:
        spec = {
            "platform": "cpu",
            "arm": {"name": "base"},
            "server": {},
            "eval_python": str(EVAL_PYTHON),
            "model": str(model_folder),
            "tasks": [
                {"name": "retrieval_multi_point", "length_tokens": 256, "samples": 3, "max_new_tokens": 16},
                {"name": "multi_hop_qa", "length_tokens": 256, "samples": 2, "max_new_tokens": 16},
            ],
            "control": True,
            "timeout_s": 120,
            "request_timeout_s": 20,
        }
        return spec | changes

    return make
