"""Each stage's numbers, computed again: a changed raw file, a forged digest and a changed document are each named.

What this cannot prove: that real vLLM and OpenCompass write these files (tests/e2e audits a real run), and what no
file holds: an instrument's own reading.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from adrbench import evidence
from adrbench.audit.finding import compare, differences
from adrbench.audit.stages import Options, measured
from adrbench.decide.noise_floor import FloorSpec, build
from adrbench.eval import dataset
from adrbench.eval.__main__ import task_result
from adrbench.eval.spec import TaskSpec
from adrbench.evidence import Evidence, digest_raw, digest_text, raw_folder, write, write_json
from adrbench.paths import PYTHONPATH
from adrbench.serve import bench
from adrbench.serve.resolved import read_resolved
from tokenizers import Tokenizer, models, pre_tokenizers

AT = "2026-01-01T00:00:00.000+00:00"
TIER = {"name": "short", "input_tokens": [8, 16], "output_tokens": 4, "prompts": 2, "concurrency": 2}
INFO = 'vllm:cache_config_info{block_size="128",cache_dtype="auto",enable_prefix_caching="False"} 1.0\n'
LOG = "GPU KV cache size: 46,592 tokens\nUsing CPU_ATTN backend.\n"


def client_result() -> dict[str, Any]:
    """What ``vllm bench serve --save-detailed`` writes for two requests."""
    names = ("ttft", "tpot", "itl", "e2el")
    percentiles = {f"p{p}_{m}_ms": 100.0 + p for p in bench.PERCENTILES for m in names}
    return percentiles | {f"mean_{m}_ms": 99.5 for m in names} | {
        "completed": 2, "failed": 0, "duration": 2.0, "errors": ["", ""], "input_lens": [8, 16],
        "output_lens": [4, 4], "ttfts": [0.1, 0.2], "itls": [[0.1] * 3, [0.2] * 3], "request_throughput": 1.0,
        "output_throughput": 4.0, "total_token_throughput": 16.0,
    }  # fmt: skip


def serve_evidence(folder: Path) -> Path:
    path = folder / "results/cpu/serve/auto/r1/short.json"
    raw, server = raw_folder(path), path.parent / "server"
    raw.mkdir(parents=True)
    server.mkdir()
    write_json(raw / "bench.json", client_result())
    before, after = INFO + "vllm:prompt_tokens_total 10\n", INFO + "vllm:prompt_tokens_total 34\n"
    (raw / "before.prom").write_text(before)
    (raw / "after.prom").write_text(after)
    (raw / "prompts.jsonl").write_text('{"prompt": "a b c"}\n')
    (server / "server.log").write_text(LOG)
    document = Evidence(
        stage="serve",
        platform="cpu",
        arm="auto",
        round=1,
        tier="short",
        asked={
            "tier": TIER,
            "serve": {"endpoint": "completions", "goodput": {}},
            "prompts_sha256": digest_text('{"prompt": "a b c"}\n'),
        },
        resolved=read_resolved(server, before, None) | {"vllm_version": "0.27.0"},
        measured=bench.measure(TIER, [8, 16], client_result(), before, after, False) | {"start_s": 21.0},
        files=digest_raw(path, ["bench.json", "before.prom", "after.prom", "prompts.jsonl", "../server/server.log"]),
        started_at=AT,
        finished_at=AT,
    )
    write(path, document)
    return path


def word_tokenizer(folder: Path) -> Path:
    """A model folder with one token per word."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def eval_evidence(folder: Path) -> Path:
    path, model = folder / "results/cpu/eval/auto.json", word_tokenizer(folder / "models/cpu")
    raw = raw_folder(path)
    settings = [TaskSpec(name="retrieval_multi_point", samples=3, length_tokens=256, max_new_tokens=32, seed=1)]
    (data,) = dataset.build(settings, {}, dataset.token_counter(model))
    names = [f"data/{name}" for name in dataset.write([data], raw / "data", True)]
    records = {}
    for suffix, scores in (("", [100.0, 50.0, 0.0]), (dataset.CONTROL, [0.0, 0.0, 0.0])):
        samples = [
            {"index": s.index, "form": s.form, "score": score, "prediction": f"answer {s.index}"}
            for s, score in zip(data.samples, scores, strict=True)
        ]
        records[data.name + suffix] = {
            "mean": sum(scores) / 3,
            "opencompass_mean": sum(scores) / 3,
            "samples": samples,
            "seconds": 1.5,
        }
    write_json(raw / "samples.json", {"opencompass_version": "0.5.4", "datasets": records})
    predictions = f"opencompass/data-x/predictions/model/{data.name}.json"
    write_json(raw / predictions, {str(i): {"prediction": f"answer {i}"} for i in range(3)})
    task = task_result(data, records)
    document = Evidence(
        stage="eval",
        platform="cpu",
        arm="auto",
        asked={
            "tasks": [settings[0].model_dump()],
            "sources": {data.name: data.source},
            "control": True,
            "model": str(model),
            "data_sha256": dataset.digest([data], control=False),
        },
        measured={"tasks": {data.name: task}, "mean_of_tasks": task["mean"]},
        files=digest_raw(path, [*names, "samples.json", predictions]),
        started_at=AT,
        finished_at=AT,
    )
    write(path, document)
    return path


def integrate_evidence(folder: Path) -> Path:
    reference = serve_evidence(folder)
    document = evidence.read(reference)
    document.measured["answers"] = ["a", "b"]
    write(reference, document)
    path = folder / "results/cpu/integrate/L3.json"
    measured_values = {"answers": ["a", "x"], "answers_equal": 1, "answers_compared": 2}
    asked = {"kind": "mechanism", "reference": str(reference)}
    write(
        path,
        Evidence(
            stage="integrate",
            platform="cpu",
            arm="L3",
            asked=asked,
            measured=measured_values,
            started_at=AT,
            finished_at=AT,
        ),
    )
    return path


BUILDERS: dict[str, Callable[[Path], Path]] = {
    "serve": serve_evidence,
    "eval": eval_evidence,
    "integrate": integrate_evidence,
}


def flip(path: Path) -> None:
    """Flip the lowest bit of the byte in the middle."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


@pytest.mark.parametrize("stage", BUILDERS)
def test_untouched_evidence_has_no_finding(stage: str, tmp_path: Path) -> None:
    found = measured(BUILDERS[stage](tmp_path), Options())
    assert [str(finding) for finding in found.findings] == []
    assert found.values > (0 if stage == "integrate" else 30)


RAW = {
    "serve": ["bench.json", "before.prom", "after.prom", "prompts.jsonl", "../server/server.log"],
    "eval": [
        "samples.json",
        "data/retrieval_multi_point.jsonl",
        "data/retrieval_multi_point-control.jsonl",
        "opencompass/data-x/predictions/model/retrieval_multi_point.json",
    ],
}


@pytest.mark.parametrize(("stage", "name"), [(stage, name) for stage, names in RAW.items() for name in names])
def test_one_flipped_byte_of_a_raw_file_is_named(stage: str, name: str, tmp_path: Path) -> None:
    path = BUILDERS[stage](tmp_path)
    flip(raw_folder(path) / name)
    told = [str(finding) for finding in measured(path, Options()).findings]
    assert any(name in text and "changed since it was measured" in text for text in told), told


@pytest.mark.parametrize(("stage", "name"), [(stage, name) for stage, names in RAW.items() for name in names])
def test_a_missing_raw_file_is_named(stage: str, name: str, tmp_path: Path) -> None:
    path = BUILDERS[stage](tmp_path)
    (raw_folder(path) / name).unlink()
    told = [str(finding) for finding in measured(path, Options()).findings]
    assert any(name in text and "missing" in text for text in told), told


def forge(path: Path, name: str, old: str, new: str) -> None:
    """Change a raw file and its digest in the evidence together, as a careful forger would."""
    raw = raw_folder(path) / name
    text = raw.read_text()
    assert old in text
    raw.write_text(text.replace(old, new, 1))
    document = evidence.read(path)
    document.files[name] = evidence.digest_file(raw)
    write(path, document)


@pytest.mark.parametrize(
    ("stage", "name", "old", "new", "key"),
    [
        ("serve", "bench.json", '"p99_ttft_ms": 199.0', '"p99_ttft_ms": 99.0', "measured.ttft_ms.p99"),
        ("serve", "bench.json", '"output_throughput": 4.0', '"output_throughput": 5.0', "measured.output_tokens_per_s"),
        ("serve", "after.prom", "total 34", "total 36", "measured.server_prompt_tokens"),
        ("serve", "before.prom", 'block_size="128"', 'block_size="16"', "resolved.block_size"),
        ("serve", "../server/server.log", "46,592", "93,184", "resolved.kv_pool_tokens"),
        ("serve", "prompts.jsonl", "a b c", "a b d", "asked.prompts_sha256"),
        ("eval", "samples.json", '"score": 50.0', '"score": 90.0', "measured.tasks.retrieval_multi_point.mean"),
        ("eval", "samples.json", "answer 1", "answer 7", "[1]"),
        ("eval", "data/retrieval_multi_point.jsonl", '"index": 1', '"index": 7', "[1].index"),
    ],
)
def test_a_forged_digest_does_not_hide_a_changed_value(
    stage: str, name: str, old: str, new: str, key: str, tmp_path: Path
) -> None:
    path = BUILDERS[stage](tmp_path)
    forge(path, name, old, new)
    found = measured(path, Options()).findings
    assert any(key in finding.key for finding in found), [str(f) for f in found]


@pytest.mark.parametrize(
    ("stage", "change", "key"),
    [
        ("serve", lambda d: d.measured["ttft_ms"].update(p50=1.0), "measured.ttft_ms.p50"),
        ("serve", lambda d: d.resolved.update(kv_pool_tokens=1), "resolved.kv_pool_tokens"),
        ("eval", lambda d: d.measured.update(mean_of_tasks=99.0), "measured.mean_of_tasks"),
        ("integrate", lambda d: d.measured.update(answers_equal=2), "measured.answers_equal"),
    ],
)
def test_a_changed_document_is_named(stage: str, change: Any, key: str, tmp_path: Path) -> None:
    path = BUILDERS[stage](tmp_path)
    document = evidence.read(path)
    change(document)
    write(path, document)
    assert [finding.key for finding in measured(path, Options()).findings] == [key]


def test_what_no_file_holds_is_counted_not_computed(tmp_path: Path) -> None:
    path = tmp_path / "ceiling.json"
    write(path, Evidence(stage="kernels", platform="cpu", started_at=AT, finished_at=AT))
    found = measured(path, Options())
    assert (found.findings, found.values, len(found.skipped)) == ([], 0, 1)


def test_differences_are_those_of_what_was_computed() -> None:
    said = {"a": 1, "b": {"c": [1, 2.0]}, "measured_only": 3}
    assert list(differences(said, {"a": 1.0, "b": {"c": [1, 2]}})) == []
    assert [key for key, _, _ in differences(said, {"a": 2, "b": {"c": [1, 3]}, "d": 1})] == ["a", "b.c[1]", "d"]
    assert [key for key, _, _ in differences(said, {"b": {"c": [1]}})] == ["b.c"]
    assert [key for key, _, _ in differences({"a": True}, {"a": 1})] == ["a"]
    many = compare("f", {str(i): -1 for i in range(9)}, {str(i): i for i in range(9)})
    assert len(many.findings) == 6
    assert many.findings[-1].text == "4 more values differ"
    absent = compare("f", {}, {str(i): {"more": i, "and": 1} for i in range(9)})
    assert [finding.key for finding in absent.findings] == [str(i) for i in range(9)]


def test_the_command_says_when_there_is_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "adrbench.audit"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(PYTHONPATH)},
    )
    assert done.returncode == 2
    assert "there is no report below reports/" in done.stderr


def test_the_command_names_a_damaged_seal(tmp_path: Path) -> None:
    path = tmp_path / "reports/cpu/adr0011.seal.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"adr": "adr0011"}))
    done = subprocess.run(
        [sys.executable, "-m", "adrbench.audit"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(PYTHONPATH)},
    )
    assert done.returncode == 1
    assert "FINDING reports/cpu/adr0011.seal.json: not a seal of a report" in done.stdout


@pytest.fixture
def floor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The noise floor of one round, as its job writes it."""
    monkeypatch.chdir(tmp_path)
    tier = serve_evidence(Path())
    spec = FloorSpec(platform="cpu", baseline="auto", confidence=0.95, blocks={1: 1}, serve={1: {"short": str(tier)}})
    path = Path("results/cpu/noise_floor.json")
    write_json(path, build(spec).model_dump(mode="json"))
    return path


def test_a_noise_floor_is_computed_again_from_the_rounds(floor: Path) -> None:
    outcome = measured(floor, Options())
    assert outcome.findings == []
    assert outcome.values > 0


def test_a_noise_floor_of_rounds_of_several_hosts_is_computed_again_as_such(floor: Path) -> None:
    tier = "results/cpu/serve/auto/r1/short.json"
    spec = FloorSpec(
        platform="cpu", baseline="auto", confidence=0.95, blocks={1: 1}, serve={1: {"short": tier}}, several_hosts=True
    )
    document = evidence.read(Path(tier))
    document.asked["host"] = "a"
    write(Path(tier), document)
    write_json(floor, build(spec).model_dump(mode="json"))
    assert [str(finding) for finding in measured(floor, Options()).findings] == []


@pytest.mark.parametrize("several", [True, False])
def test_a_noise_floor_of_several_hosts_is_computed_as_such(floor: Path, several: bool) -> None:
    tier = Path("results/cpu/serve/auto/r1/short.json")
    data = json.loads(tier.read_text())
    data["resolved"]["host"] = "one of them"
    write_json(tier, data)
    spec = {"platform": "cpu", "baseline": "auto", "confidence": 0.95, "blocks": {1: 1}, "several_hosts": several}
    made = build(FloorSpec.model_validate(spec | {"serve": {1: {"short": str(tier)}}}))
    assert (made.identity["short"]["host"] is None) is several
    write_json(floor, made.model_dump(mode="json"))
    assert measured(floor, Options()).findings == []


def test_a_changed_value_of_a_noise_floor_is_named(floor: Path) -> None:
    data = json.loads(floor.read_text())
    metric = next(iter(data["values"]["short"]))
    data["values"]["short"][metric]["1"] *= 1.01
    write_json(floor, data)
    assert [finding.key for finding in measured(floor, Options()).findings] == [f"values.short.{metric}.1"]


def test_a_round_that_changed_under_a_noise_floor_is_named(floor: Path) -> None:
    tier = Path("results/cpu/serve/auto/r1/short.json")
    tier.write_text(tier.read_text() + " ")
    assert [finding.file for finding in measured(floor, Options()).findings] == [str(tier)]


def test_a_damaged_noise_floor_is_named(floor: Path) -> None:
    floor.write_text("{")
    assert [finding.file for finding in measured(floor, Options()).findings] == [str(floor)]
