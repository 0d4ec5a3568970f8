"""One record from evidence to its published text, made by the stages' own code, and audited.

What this cannot prove: that a workflow's own run passes; tests/e2e audits one.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from adrbench import evidence
from adrbench.audit.__main__ import audit
from adrbench.audit.stages import Options
from adrbench.config import inputs, load, records
from adrbench.decide.__main__ import work as decide
from adrbench.evidence import write_json, write_text
from adrbench.lock.__main__ import work as lock
from adrbench.model.folder import check_folder
from adrbench.model.gguf import write_safetensors
from adrbench.paths import ROOT
from adrbench.report import history
from adrbench.report.collect import collect, open_store
from adrbench.report.lookup import read_decide
from adrbench.report.markdown import render
from adrbench.report.publish import rebase
from adrbench.report.seal import SUFFIX, SealSpec, seal
from adrbench.report.spec import Spec
from test_audit_stages import AT, TIER, flip, serve_evidence

ADR = "adr0003"


def configuration(folder: Path) -> Any:
    """The CPU platform with one small tier, and ADR 0003 alone."""
    platform = yaml.safe_load((ROOT / "config/platforms/cpu.yaml").read_text())
    platform = copy.deepcopy(platform) | {"tiers": [TIER]}
    (folder / "platforms").mkdir()
    (folder / "platforms/cpu.yaml").write_text(yaml.safe_dump(platform, allow_unicode=True))
    values = {"platform": "cpu", "platforms": str(folder / "platforms"), "adrs": [ADR], "claims": {"enabled": False}}
    return load(values)


def single(path: Path, stage: Any, **parts: Any) -> str:
    document = evidence.Evidence(stage=stage, platform="cpu", started_at=AT, finished_at=AT, **parts)
    evidence.write(path, document)
    return str(path)


def model_folder(folder: Path) -> Path:
    """A small whole model folder."""
    folder.mkdir()
    write_safetensors({"model.a": np.ones((4, 8), np.float32)}, folder / "model.safetensors")
    config = {"architectures": ["LlamaForCausalLM"], "hidden_size": 64, "num_attention_heads": 4}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text("{}")
    return folder


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Build the record; returns a function that audits it and gives the findings."""
    monkeypatch.chdir(tmp_path)
    results, reports = Path("results/cpu"), Path("reports/cpu")
    run = configuration(tmp_path)
    tier = serve_evidence(Path())
    device = {"vendor": "cpu", "arch": "x86_64", "name": "A CPU", "runtime": "CPU", "vllm": "0.27.0"}
    facts = {"devices": [{"memory_bytes": 8 * 2**30}], "fp8": {"status": "passed"}}
    model = model_folder(tmp_path / "model")
    folder = {"folder": str(model)}
    everything: dict[str, Any] = {
        "device": single(results / "device.json", "device", resolved=device, measured=facts),
        "model": single(results / "model.json", "model", asked=folder, measured=check_folder(model)),
        "kernels": None, "ceiling": None, "claims": None, "integrate": {}, "eval": {}, "profile": {},
        "serve": {"auto": {"1": {"short": str(tier)}}},
    }  # fmt: skip
    own = inputs.evidence(run.decisions[ADR], run.platform, everything)
    verdict = results / "decide" / f"{ADR}.json"
    decide(records.decide(run, ADR, own), verdict)
    table = results / "history" / f"{ADR}.json"
    past = history.record(history.Verdict.model_validate(read_decide(verdict)), Path("history/cpu"))
    write_json(table, past.model_dump(mode="json"))
    locked = reports / "lock" / ADR / "lock.json"
    lock_spec = records.lock(run, ADR, str(verdict), str(model), "python3")
    lock(lock_spec, locked)
    derived = {"decide": str(verdict), "history": str(table), "lock": str(locked)}
    texts = {f"{ADR}{SUFFIX[language]}": language for language in ("en", "zh")}
    for name, language in texts.items():
        spec = Spec.model_validate(records.report(run, ADR, language, own | derived))
        text = render(collect(spec, open_store(spec)), spec.language, reports / name, spec.languages)
        write_text(reports / name, text)
        write_text(Path("reports") / name, rebase(text, reports, Path("reports"), frozenset(texts)))
    made = SealSpec.model_validate(
        records.seal(run, ADR, records.decide(run, ADR, own), lambda _: own | derived, lock_spec)
    )
    write_json(reports / f"{ADR}.seal.json", seal(made, reports).model_dump(mode="json"))
    return lambda: [str(finding) for finding in audit(Path("reports"), [], Options())[0].findings]


def test_an_untouched_record_has_no_finding(record: Callable[[], list[str]]) -> None:
    assert record() == []
    text = Path("reports/adr0003.md").read_text()
    assert "| short | 12.95 tok/s | 4.00 tok/s | not compared |" in text
    assert "rounds: at least two server starts with every tier" in text


@pytest.mark.parametrize(
    "name",
    [
        "results/cpu/device.json",
        "results/cpu/serve/auto/r1/short.json",
        "results/cpu/serve/auto/r1/short/bench.json",
        "results/cpu/decide/adr0003.json",
        "results/cpu/history/adr0003.json",
        "history/cpu/adr0003/0001.json",
        "reports/cpu/lock/adr0003/lock.json",
        "reports/cpu/adr0003.md",
        "reports/cpu/adr0003.zh.md",
        "reports/adr0003.md",
    ],
)
def test_one_flipped_byte_is_named(record: Callable[[], list[str]], name: str) -> None:
    flip(Path(name))
    assert any(text.startswith(name) for text in record()), record()


@pytest.mark.parametrize(
    "name", ["results/cpu/model.json", "results/cpu/decide/adr0003.json", "reports/cpu/adr0003.md"]
)
def test_a_missing_file_is_named(record: Callable[[], list[str]], name: str) -> None:
    Path(name).unlink()
    assert any(text.startswith(name) and "missing" in text for text in record()), record()


def test_another_model_is_found(record: Callable[[], list[str]], tmp_path: Path) -> None:
    flip(tmp_path / "model/model.safetensors")
    assert any(text.startswith("results/cpu/model.json: ") for text in record())


def reseal(**changes: Any) -> None:
    """Bring the digests of the seal up to date with the files, as a careful forger would."""
    path = Path("reports/cpu/adr0003.seal.json")
    data = json.loads(path.read_text())
    spec = SealSpec.model_validate({key: data[key] for key in SealSpec.model_fields} | changes)
    write_json(path, seal(spec, path.parent).model_dump(mode="json"))


def test_a_forged_verdict_is_computed_again(record: Callable[[], list[str]]) -> None:
    path = Path("results/cpu/decide/adr0003.json")
    data = json.loads(path.read_text())
    data["status"] = {"word": "Accepted", "option": "auto", "text": {"en": "x", "zh": "x"}}
    write_json(path, data)
    reseal()
    assert any(text.startswith(f"{path}: status.word: says 'Accepted', computed again it is") for text in record())


def test_a_forged_number_in_a_text_is_made_again(record: Callable[[], list[str]]) -> None:
    path = Path("reports/cpu/adr0003.md")
    path.write_text(path.read_text().replace("4.00", "40.0"))
    reseal()
    assert any(text.startswith(f"{path}: line ") and "'40.0" not in text[:40] for text in record())


def test_forged_evidence_changes_the_verdict(record: Callable[[], list[str]]) -> None:
    """A measurement that is changed with every digest above it still differs from its raw file."""
    path = Path("results/cpu/serve/auto/r1/short.json")
    document = evidence.read(path)
    document.measured["output_tokens_per_s"] = 99.0
    evidence.write(path, document)
    found = record()
    assert any(text.startswith(f"{path}: measured.output_tokens_per_s: says 99.0") for text in found), found


def test_changed_code_is_told(record: Callable[[], list[str]]) -> None:
    path = Path("reports/cpu/adr0003.seal.json")
    data = json.loads(path.read_text())
    data["code"]["decide"] = "0" * 16
    write_json(path, data)
    assert record() == [f"{path}: code.decide: the code changed since; build the report again"]


def test_a_changed_entry_of_the_history_is_named(record: Callable[[], list[str]]) -> None:
    """Also where the change leaves an entry that can be read and compared."""
    path = Path("history/cpu/adr0003/0001.json")
    path.write_text(path.read_text() + " ")
    assert any(text.startswith(f"{path}: changed since") for text in record())
