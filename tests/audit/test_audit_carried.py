"""Evidence that was carried to another path, or without its model, audits like any.

What this cannot prove: that OpenCompass scores by the settings that are rewritten here (tests/e2e does).
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from adrbench.audit.stages import Options, _settings_here, measured
from adrbench.eval import opencompass
from adrbench.evidence import Evidence, digest_file, write
from adrbench.model.folder import check_folder
from adrbench.model.gguf import write_safetensors
from adrbench.paths import ROOT, here
from test_audit_stages import AT, eval_evidence

EVAL, MODEL = Path("results/cpu/eval/auto.json"), Path("results/cpu/model.json")


@pytest.fixture
def carried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder to which evidence and model were carried; where they were measured is gone."""
    first, second = tmp_path / "first", tmp_path / "the second"
    eval_evidence(first)
    model = first / "models/cpu"
    write_safetensors({"model.a": np.ones((4, 8), np.float32)}, model / "model.safetensors")
    (model / "config.json").write_text("{}")
    asked = {"folder": str(model), "source": "shape"}
    times = {"started_at": AT, "finished_at": AT}
    write(first / MODEL, Evidence(stage="model", platform="cpu", asked=asked, measured=check_folder(model), **times))
    shutil.move(first, second)
    monkeypatch.chdir(second)
    return second


@pytest.mark.parametrize("path", [EVAL, MODEL], ids=str)
def test_the_model_is_found_where_it_lies_now(carried: Path, path: Path) -> None:
    outcome = measured(path, Options())
    assert outcome.findings == []
    assert outcome.values > 5
    assert not any("is not on this host" in text for text in outcome.skipped)


@pytest.mark.parametrize("path", [EVAL, MODEL], ids=str)
def test_without_the_model_what_needs_it_is_told_and_is_no_finding(carried: Path, path: Path) -> None:
    shutil.rmtree("models")
    outcome = measured(path, Options())
    assert outcome.findings == []
    assert [text for text in outcome.skipped if text.startswith(f"{path}: ") and "is not on this host" in text]


def test_another_model_there_is_found(carried: Path) -> None:
    (carried / "models/cpu/config.json").write_text('{"architectures": ["Other"]}')
    assert measured(MODEL, Options()).findings


def test_a_raw_file_that_is_missing_is_found_even_so(carried: Path) -> None:
    shutil.rmtree("models")
    Path("results/cpu/eval/auto/samples.json").unlink()
    assert any("missing" in str(finding) for finding in measured(EVAL, Options()).findings)


def test_statements_that_were_judged_elsewhere_are_those_of_this_project(carried: Path) -> None:
    name = "config/claims/adr0011.yaml"
    path = Path("results/cpu/claims.json")
    files = {f"/elsewhere/adrbench/{name}": digest_file(ROOT / name)}
    times = {"started_at": AT, "finished_at": AT}
    write(path, Evidence(stage="claims", platform="cpu", resolved={"claim_files": files}, **times))
    assert measured(path, Options()).findings == []


def test_settings_of_opencompass_name_the_data_where_it_lies_now(carried: Path) -> None:
    from adrbench.eval import dataset
    from adrbench.eval.spec import TaskSpec

    task = TaskSpec(name="retrieval_multi_point", samples=2, length_tokens=256, max_new_tokens=32, seed=1)
    data = dataset.build([task], {}, dataset.token_counter(carried / "models/cpu"))

    def settings(folder: Path) -> str:
        return opencompass.config(
            data,
            folder / "data",
            base_url="http://127.0.0.1:1",
            served_name="served",
            tokenizer=Path("/models/x"),
            concurrency=1,
            request_timeout_s=1,
            control=True,
            extra_body={},
        )

    raw = EVAL.with_suffix("").resolve()
    (raw / "config.py").write_text(settings(Path("/elsewhere/it's/auto")))
    spaces: tuple[dict, dict] = {}, {}
    exec(_settings_here(raw), spaces[0])
    exec(settings(raw), spaces[1])
    assert spaces[0]["datasets"] == spaces[1]["datasets"]
    assert spaces[0]["models"] == spaces[1]["models"]
    (raw / "config.py").write_text(settings(raw))
    assert _settings_here(raw) == settings(raw)


def test_only_a_whole_end_of_a_path_is_looked_for(carried: Path) -> None:
    assert here("/elsewhere/a/models/cpu") == carried / "models/cpu"
    assert here("/elsewhere/a/config/claims") == ROOT / "config/claims"
    assert here("/elsewhere/models") == Path("/elsewhere/models")  # one part says nothing
    assert here("models/cpu") == Path("models/cpu")
    assert here(str(carried / "nothing")) == carried / "nothing"
