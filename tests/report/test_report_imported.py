"""Imports of other tools' results, on files that vllm bench serve 0.27.0, GuideLLM 0.7.3 and AIPerf 0.10.0 wrote.

The samples were made against a mock server; their per-request records were left out. What this cannot prove:
that a later version of a tool keeps its keys (then the import says which is missing).
"""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from adrbench.evidence import EvidenceError, digest_text
from adrbench.paths import PYTHONPATH
from adrbench.report.imported.__main__ import import_file, safe_name
from adrbench.report.imported.formats import FormatError, parse
from adrbench.report.imported.schema import read
from adrbench.report.spec import EvidencePaths
from pydantic import ValidationError

SAMPLES = Path(__file__).with_name("imported_samples")


def sample(name: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((SAMPLES / f"{name}.json").read_text(encoding="utf-8"))
    return data


def test_vllm_is_read_in_its_own_terms() -> None:
    data = sample("vllm-0.27.0")
    parsed = parse(data)
    run = parsed.runs[0]
    assert (parsed.tool, run.model, run.completed, run.failed, run.concurrency) == (
        "vllm bench serve",
        "mock",
        12,
        0,
        2,
    )
    assert run.request_rate is None  # it says "inf"
    assert (run.ttft_ms.p99, run.tpot_ms.p50, run.e2el_ms.p90) == (
        data["p99_ttft_ms"], data["p50_tpot_ms"], data["p90_e2el_ms"],
    )  # fmt: skip
    assert run.output_tokens_per_s == pytest.approx(192 / data["duration"])


def test_an_old_vllm_without_failed_and_p50_is_read() -> None:
    data = sample("vllm-0.27.0")
    for key in ("failed", "p50_ttft_ms", "p90_ttft_ms", "p99_e2el_ms", "max_concurrency", "backend", "label"):
        del data[key]
    run = parse(data | {"num_prompts": 14, "request_goodput:": 3.0}).runs[0]
    assert (run.failed, run.concurrency, run.label) == (2, None, "openai-chat")
    assert run.ttft_ms.p50 == data["median_ttft_ms"]
    assert (run.ttft_ms.p90, run.e2el_ms.p99) == (None, None)


def test_guidellm_inter_token_latency_is_tpot() -> None:
    data = sample("guidellm-0.7.3")
    metrics, parsed = data["benchmarks"][0]["metrics"], parse(data)
    run = parsed.runs[0]
    assert (parsed.tool, parsed.tool_version, run.label, run.model) == ("GuideLLM", "0.7.3", "concurrent x2", "mock")
    assert run.tpot_ms.p50 == metrics["inter_token_latency_ms"]["successful"]["percentiles"]["p50"]
    assert run.tpot_ms.mean != metrics["time_per_output_token_ms"]["successful"]["mean"]
    assert run.e2el_ms.p99 == pytest.approx(1e3 * metrics["request_latency"]["successful"]["percentiles"]["p99"])
    assert run.itl_ms.p50 is None
    assert run.output_tokens_per_s == pytest.approx(192 / data["benchmarks"][0]["duration"])


def test_guidellm_of_03_keeps_totals_and_strategy_elsewhere() -> None:
    """0.3.0 wrote ``args.strategy`` and ``request_totals`` on the benchmark, and no duration (benchmark.py)."""
    data = sample("guidellm-0.7.3")
    benchmark = data["benchmarks"][0]
    benchmark["args"] = {"strategy": {"type_": "constant", "rate": 4.0}}
    benchmark["worker"] = {"backend_model": "older"}
    benchmark["request_totals"] = benchmark["metrics"].pop("request_totals")
    del benchmark["config"], benchmark["duration"], data["metadata"], data["config"]
    run = parse(data).runs[0]
    assert (run.label, run.model, run.request_rate, run.completed) == ("constant 4/s", "older", 4.0, 12)
    assert run.duration_s == pytest.approx(benchmark["end_time"] - benchmark["start_time"])


def test_every_benchmark_of_a_guidellm_sweep_is_a_run() -> None:
    data = sample("guidellm-0.7.3")
    data["benchmarks"].append(copy.deepcopy(data["benchmarks"][0]))
    assert len(parse(data).runs) == 2


def test_aiperf_units_are_the_files_own() -> None:
    data = sample("aiperf-0.10.0")
    parsed = parse(data)
    run = parsed.runs[0]
    assert (parsed.tool, parsed.tool_version, run.completed, run.concurrency) == ("AIPerf", "0.10.0", 12, 2)
    assert run.model == "mock"
    assert run.tpot_ms.p99 == data["inter_token_latency"]["p99"]
    assert run.itl_ms.p50 == data["inter_chunk_latency"]["p50"]
    data["time_to_first_token"] = {"unit": "s", "avg": 0.25, "p50": 0.2, "p99": 0.5}
    assert parse(data).runs[0].ttft_ms.p99 == 500.0


def test_aiperf_of_01_keeps_its_metrics_under_records() -> None:
    """0.1.1 wrote ``records`` and no version (json_exporter.py)."""
    data = sample("aiperf-0.10.0")
    kept = ("input_config", "was_cancelled", "error_summary", "start_time", "end_time")
    old = {key: data[key] for key in kept}
    old["records"] = {key: value for key, value in data.items() if isinstance(value, dict) and "unit" in value}
    new, parsed = parse(data).runs[0], parse(old)
    assert (parsed.tool, parsed.tool_version) == ("AIPerf", None)
    assert parsed.runs[0].model_copy(update={"label": new.label}) == new


@pytest.mark.parametrize(
    ("name", "change", "text"),
    [
        ("aiperf-0.10.0", {"was_cancelled": True}, "was_cancelled is true"),
        ("aiperf-0.10.0", {"time_to_first_token": {"unit": "fortnights", "avg": 1}}, "unit is 'fortnights'"),
        ("aiperf-0.10.0", {"request_count": None}, "request_count is missing"),
        ("guidellm-0.7.3", {"benchmarks": []}, "benchmarks is empty"),
        ("vllm-0.27.0", {"duration": "long"}, "duration is 'long', a finite number is needed"),
        ("vllm-0.27.0", {"duration": float("nan")}, "duration is nan"),
        ("vllm-0.27.0", {"completed": None}, "completed is missing"),
    ],
)
def test_a_bad_file_is_named_by_key(name: str, change: dict[str, Any], text: str) -> None:
    with pytest.raises(FormatError, match=text):
        parse(sample(name) | change)


@pytest.mark.parametrize("data", [{}, [], "text", None, {"benchmarks": [{"no": "metrics"}]}, {"request_throughput": 3}])
def test_an_unknown_tool_is_refused(data: Any) -> None:
    with pytest.raises(FormatError, match="no known tool"):
        parse(data)


def test_an_import_keeps_the_original_and_its_digest(tmp_path: Path) -> None:
    written = import_file(SAMPLES / "vllm-0.27.0.json", tmp_path, "cpu", "theirs")
    document, text = read(written), (SAMPLES / "vllm-0.27.0.json").read_text(encoding="utf-8")
    assert (written.parent / document.file).read_text(encoding="utf-8") == text
    assert document.sha256 == digest_text(text)
    import_file(SAMPLES / "vllm-0.27.0.json", tmp_path, "cpu", "theirs")  # again: the same
    with pytest.raises(FormatError, match="another file was imported under this name"):
        import_file(SAMPLES / "aiperf-0.10.0.json", tmp_path, "cpu", "theirs")
    written.write_text("{}")
    with pytest.raises(EvidenceError, match=r"theirs\.json: name: Field required"):
        read(written)


def test_a_name_is_safe_for_a_path() -> None:
    assert safe_name("../../Etc Pass<wd>") == "etc-pass-wd"
    assert safe_name("???") == "imported"


def test_the_command_says_what_it_cannot_read(tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text("{")
    argv = [sys.executable, "-m", "adrbench.report.imported", str(bad), "--platform", "cpu", "--results", str(tmp_path)]
    done = subprocess.run(argv, env={"PYTHONPATH": str(PYTHONPATH)}, capture_output=True, text=True)
    assert done.returncode == 1
    assert "bad.json: not valid JSON" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "cpu").exists()


@pytest.mark.parametrize("name", ["H200", "h20", "nobody"])
def test_an_import_beside_no_platform_is_refused(name: str, tmp_path: Path) -> None:
    """It would be written where no page looks."""
    file = str(SAMPLES / "vllm-0.27.0.json")
    argv = [sys.executable, "-m", "adrbench.report.imported", file, "--platform", name, "--results", str(tmp_path)]
    done = subprocess.run(argv, env={"PYTHONPATH": str(PYTHONPATH)}, capture_output=True, text=True)
    assert done.returncode == 1
    assert f"--platform: {name!r} is no file of config/platforms/" in done.stderr
    assert "cpu-kv" in done.stderr
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "nobody").mkdir()  # one of a folder of one's own, which was measured
    done = subprocess.run(argv, env={"PYTHONPATH": str(PYTHONPATH)}, capture_output=True, text=True)
    assert done.returncode == (0 if name == "nobody" else 1)


def test_a_decision_cannot_be_given_an_import() -> None:
    with pytest.raises(ValidationError, match="imported"):
        EvidencePaths.model_validate({"imported": ["results/cpu/imported/theirs.json"]})
