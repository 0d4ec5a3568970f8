"""Reading the result files of other benchmark tools. Pure: JSON data in, runs in this project's terms out.

What each tool's terms mean (read in its source):

=============  ==============================  ============================================================
here           vllm bench serve                GuideLLM 0.3 - 0.7 / AIPerf 0.1 - 0.10 (schema to 1.5)
=============  ==============================  ============================================================
TTFT           ``*_ttft_ms``                   ``time_to_first_token_ms`` / ``time_to_first_token``
TPOT           ``*_tpot_ms``                   ``inter_token_latency_ms`` / ``inter_token_latency``: both are
                                               (last - first token) / (output tokens - 1) of a request
ITL            ``*_itl_ms``                    not stated / ``inter_chunk_latency``
E2EL           ``*_e2el_ms``                   ``request_latency`` in s / ``request_latency`` in the unit stated
=============  ==============================  ============================================================

GuideLLM's ``time_per_output_token_ms`` divides by all output tokens and counts the first: it is not TPOT
and is not read. Its percentiles of ``inter_token_latency_ms`` weigh a request by its tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from adrbench.report.imported.schema import Latency, Run, Tool

# AIPerf states a unit with every metric; these are the ones of times, in ms.
MILLISECONDS = {"ms": 1.0, "s": 1e3, "sec": 1e3, "us": 1e-3, "ns": 1e-6}
GUIDELLM_WEIGHTED = "TPOT percentiles weigh a request by its output tokens"
CHUNKS = "ITL are gaps between chunks; a chunk can hold several tokens"


class FormatError(ValueError):
    """A file is of no known tool, or lacks what its tool always writes; the text names the key."""


@dataclass(frozen=True)
class Parsed:
    tool: Tool
    tool_version: str | None
    measured_at: str | None
    runs: list[Run]


def number(value: Any, key: str) -> float | None:
    """A finite number, or None where there is none.

    Raises:
        FormatError: something else stands there.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise FormatError(f"{key} is {value!r}, a finite number is needed")
    return float(value)


def needed(data: Mapping[str, Any], key: str, where: str) -> float:
    """A number that must be there."""
    found = number(data.get(key), f"{where}{key}")
    if found is None:
        raise FormatError(f"{where}{key} is missing")
    return found


def count(data: Mapping[str, Any], key: str, where: str) -> int:
    return int(needed(data, key, where))


def mapping(value: Any, key: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise FormatError(f"{key} is {type(value).__name__}, an object is needed")
    return value


def limit(value: Any) -> float | None:
    """A concurrency or a rate; ``inf`` in any spelling is no limit."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    return None


# ---------------------------------------------------------------- vllm bench serve


def is_vllm(data: Any) -> bool:
    """Results of ``vllm bench serve`` and of ``benchmark_serving.py`` before it."""
    return isinstance(data, Mapping) and "completed" in data and "request_throughput" in data and "model_id" in data


def _vllm_latency(data: Mapping[str, Any], name: str) -> Latency:
    """Percentiles that were asked for; the median is always written."""
    values = {p: number(data.get(f"{p}_{name}_ms"), f"{p}_{name}_ms") for p in ("p50", "p90", "p99", "mean")}
    if values["p50"] is None:
        values["p50"] = number(data.get(f"median_{name}_ms"), f"median_{name}_ms")
    return Latency(**values)


def _per_request(total: float | None, requests: int) -> float | None:
    return total / requests if total is not None and requests else None


def parse_vllm(data: Mapping[str, Any]) -> Parsed:
    """One result file. It states no version of vLLM; ``date`` is local time without a zone."""
    completed = count(data, "completed", "")
    concurrency, rate = limit(data.get("max_concurrency")), limit(data.get("request_rate"))
    failed = number(data.get("failed"), "failed")
    asked = number(data.get("num_prompts"), "num_prompts")
    if failed is None and asked is not None:  # versions before 0.11 wrote no `failed`
        failed = asked - completed
    run = Run(
        label=str(data.get("label") or data.get("backend") or data.get("endpoint_type") or "run"),
        model=str(data["model_id"]),
        concurrency=concurrency,
        request_rate=rate,
        completed=completed,
        failed=None if failed is None else int(failed),
        duration_s=needed(data, "duration", ""),
        input_tokens=_per_request(number(data.get("total_input_tokens"), "total_input_tokens"), completed),
        output_tokens=_per_request(number(data.get("total_output_tokens"), "total_output_tokens"), completed),
        requests_per_s=needed(data, "request_throughput", ""),
        output_tokens_per_s=number(data.get("output_throughput"), "output_throughput"),
        ttft_ms=_vllm_latency(data, "ttft"),
        tpot_ms=_vllm_latency(data, "tpot"),
        itl_ms=_vllm_latency(data, "itl"),
        e2el_ms=_vllm_latency(data, "e2el"),
        notes=[CHUNKS],
    )
    return Parsed("vllm bench serve", None, str(data["date"]) if data.get("date") else None, [run])


# ---------------------------------------------------------------- GuideLLM


def is_guidellm(data: Any) -> bool:
    benchmarks = data.get("benchmarks") if isinstance(data, Mapping) else None
    return isinstance(benchmarks, list) and all(isinstance(b, Mapping) and "metrics" in b for b in benchmarks)


def _successful(metrics: Mapping[str, Any], name: str, where: str) -> Mapping[str, Any]:
    """A metric's distribution over successful requests; empty where the version has no such metric."""
    metric = metrics.get(name)
    if metric is None:
        return {}
    return mapping(mapping(metric, f"{where}{name}").get("successful") or {}, f"{where}{name}.successful")


def _guidellm_latency(metrics: Mapping[str, Any], name: str, where: str, factor: float = 1.0) -> Latency:
    found = _successful(metrics, name, where)
    if not found or not found.get("count"):
        return Latency()
    percentiles = mapping(found.get("percentiles") or {}, f"{where}{name}.successful.percentiles")
    values = {p: number(percentiles.get(p), f"{where}{name}.{p}") for p in ("p50", "p90", "p99")}
    values["p50"] = number(found.get("median"), f"{where}{name}.median") if values["p50"] is None else values["p50"]
    values["mean"] = number(found.get("mean"), f"{where}{name}.mean")
    return Latency(**{key: None if value is None else value * factor for key, value in values.items()})


def _strategy(benchmark: Mapping[str, Any]) -> Mapping[str, Any]:
    """The strategy, where 0.4 and later (``config``) and earlier versions (``args``) keep it."""
    for holder in ("config", "args"):
        section = benchmark.get(holder)
        if isinstance(section, Mapping) and isinstance(section.get("strategy"), Mapping):
            return dict(section["strategy"])
    return {}


def _guidellm_model(data: Mapping[str, Any], benchmark: Mapping[str, Any]) -> str | None:
    for holder in (benchmark.get("config"), benchmark.get("args"), data.get("args"), benchmark.get("worker")):
        if not isinstance(holder, Mapping):
            continue
        backend = holder.get("backend")
        model = (backend.get("model") if isinstance(backend, Mapping) else None) or holder.get("model")
        model = model or holder.get("backend_model")
        if isinstance(model, str):
            return model
    return None


def _duration(benchmark: Mapping[str, Any], where: str) -> float | None:
    found = number(benchmark.get("duration"), f"{where}duration")
    if found is None:
        ends = [number(benchmark.get(key), f"{where}{key}") for key in ("start_time", "end_time")]
        found = ends[1] - ends[0] if ends[0] is not None and ends[1] is not None else None
    return found if found is None or found > 0 else None


def _guidellm_run(data: Mapping[str, Any], benchmark: Mapping[str, Any], index: int) -> Run:
    where = f"benchmarks.{index}.metrics."
    metrics = mapping(benchmark["metrics"], where.rstrip("."))
    totals = mapping(metrics.get("request_totals") or benchmark.get("request_totals") or {}, f"{where}request_totals")
    completed = count(totals, "successful", f"{where}request_totals.")
    errored, incomplete = (number(totals.get(key), f"{where}{key}") or 0 for key in ("errored", "incomplete"))
    strategy, duration = _strategy(benchmark), _duration(benchmark, f"benchmarks.{index}.")
    streams = limit(strategy.get("streams")) or limit(strategy.get("max_concurrency"))
    kind = str(strategy.get("type_") or strategy.get("kind") or "benchmark")
    output = _successful(metrics, "output_token_count", where)
    produced = number(output.get("total_sum"), f"{where}output_token_count.total_sum")
    rate = limit(strategy.get("rate"))
    return Run(
        label=" ".join(filter(None, [kind, f"{rate:g}/s" if rate else "", f"x{streams:g}" if streams else ""])),
        model=_guidellm_model(data, benchmark),
        concurrency=streams,
        request_rate=rate,
        completed=completed,
        failed=int(errored + incomplete),
        duration_s=duration,
        input_tokens=number(
            _successful(metrics, "prompt_token_count", where).get("mean"), f"{where}prompt_token_count"
        ),
        output_tokens=number(output.get("mean"), f"{where}output_token_count"),
        requests_per_s=completed / duration if duration else None,
        output_tokens_per_s=produced / duration if duration and produced is not None else None,
        ttft_ms=_guidellm_latency(metrics, "time_to_first_token_ms", where),
        tpot_ms=_guidellm_latency(metrics, "inter_token_latency_ms", where),
        itl_ms=Latency(),
        e2el_ms=_guidellm_latency(metrics, "request_latency", where, 1e3),
        notes=[GUIDELLM_WEIGHTED],
    )


def parse_guidellm(data: Mapping[str, Any]) -> Parsed:
    """A report with one run per benchmark; rates are requests and tokens over the measured duration."""
    benchmarks = data["benchmarks"]
    if not benchmarks:
        raise FormatError("benchmarks is empty: the report holds no result")
    metadata = data.get("metadata")
    version = metadata.get("guidellm_version") if isinstance(metadata, Mapping) else None
    started = number(benchmarks[0].get("start_time"), "benchmarks.0.start_time")
    at = datetime.fromtimestamp(started, timezone.utc).isoformat(timespec="seconds") if started else None
    runs = [_guidellm_run(data, benchmark, index) for index, benchmark in enumerate(benchmarks)]
    return Parsed("GuideLLM", str(version) if version else None, at, runs)


# ---------------------------------------------------------------- AIPerf


def _flat(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Metrics at the top, as since 0.2; 0.1 kept them under ``records``."""
    records = data.get("records")
    return {**data, **records} if isinstance(records, Mapping) else data


def is_aiperf(data: Any) -> bool:
    """``profile_export_aiperf.json``: a metric is an object with ``unit`` and ``avg``."""
    throughput = _flat(data).get("request_throughput") if isinstance(data, Mapping) else None
    return isinstance(throughput, Mapping) and "avg" in throughput


def _aiperf_value(data: Mapping[str, Any], name: str) -> float | None:
    metric = data.get(name)
    return None if metric is None else number(mapping(metric, name).get("avg"), f"{name}.avg")


def _aiperf_latency(data: Mapping[str, Any], name: str) -> Latency:
    metric = data.get(name)
    if metric is None:
        return Latency()
    metric = mapping(metric, name)
    unit = metric.get("unit")
    if unit not in MILLISECONDS:
        raise FormatError(f"{name}.unit is {unit!r}; known are {', '.join(MILLISECONDS)}")
    keys = {"p50": "p50", "p90": "p90", "p99": "p99", "mean": "avg"}
    values = {key: number(metric.get(theirs), f"{name}.{theirs}") for key, theirs in keys.items()}
    return Latency(**{key: None if v is None else v * MILLISECONDS[unit] for key, v in values.items()})


def _aiperf_phase(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """The load of the profiling phase: 0.10's ``phases``, or the earlier flat ``loadgen``."""
    config = data.get("input_config")
    if not isinstance(config, Mapping):
        return {}
    phases = config.get("phases")
    for phase in phases if isinstance(phases, list) else []:
        if isinstance(phase, Mapping) and not phase.get("exclude_from_results"):
            return phase
    loadgen = config.get("loadgen")
    return loadgen if isinstance(loadgen, Mapping) else {}


def _aiperf_model(data: Mapping[str, Any]) -> str | None:
    config = data.get("input_config")
    config = config if isinstance(config, Mapping) else {}
    models, endpoint = config.get("models"), config.get("endpoint")
    if isinstance(models, Mapping) and isinstance(models.get("items"), list) and models["items"]:
        first = models["items"][0]
        return str(first["name"]) if isinstance(first, Mapping) and "name" in first else None
    names = endpoint.get("model_names") if isinstance(endpoint, Mapping) else None
    return str(names[0]) if isinstance(names, list) and names else None


def parse_aiperf(data: Mapping[str, Any]) -> Parsed:
    """One run. Units are the file's own."""
    data = _flat(data)
    if data.get("was_cancelled"):
        raise FormatError("was_cancelled is true: the run was interrupted, its numbers cover a part of the load only")
    completed = _aiperf_value(data, "request_count")
    if completed is None:
        raise FormatError("request_count is missing")
    phase, failed = _aiperf_phase(data), _aiperf_value(data, "error_request_count")
    rate, concurrency = limit(phase.get("rate")) or limit(phase.get("request_rate")), limit(phase.get("concurrency"))
    run = Run(
        label=str((data.get("run_info") or {}).get("variation_label") or phase.get("type") or "profile"),
        model=_aiperf_model(data),
        concurrency=concurrency,
        request_rate=rate,
        completed=int(completed),
        failed=0 if failed is None and not data.get("error_summary") else None if failed is None else int(failed),
        duration_s=_aiperf_value(data, "benchmark_duration"),
        input_tokens=_aiperf_value(data, "input_sequence_length"),
        output_tokens=_aiperf_value(data, "output_sequence_length"),
        requests_per_s=_aiperf_value(data, "request_throughput"),
        output_tokens_per_s=_aiperf_value(data, "output_token_throughput"),
        ttft_ms=_aiperf_latency(data, "time_to_first_token"),
        tpot_ms=_aiperf_latency(data, "inter_token_latency"),
        itl_ms=_aiperf_latency(data, "inter_chunk_latency"),
        e2el_ms=_aiperf_latency(data, "request_latency"),
        notes=[CHUNKS],
    )
    version, at = data.get("aiperf_version"), data.get("start_time")
    return Parsed("AIPerf", str(version) if version else None, str(at) if at else None, [run])


# The first that knows a file reads it.
FORMATS: list[tuple[Callable[[Any], bool], Callable[[Mapping[str, Any]], Parsed]]] = [
    (is_aiperf, parse_aiperf),
    (is_guidellm, parse_guidellm),
    (is_vllm, parse_vllm),
]


def parse(data: Any) -> Parsed:
    """A result file of any known tool.

    Raises:
        FormatError: of no known tool, or it lacks what its tool writes.
    """
    for knows, read in FORMATS:
        if knows(data):
            return read(data)
    raise FormatError(
        "is a result of no known tool; known are the JSON of `vllm bench serve --save-result`, GuideLLM's "
        "benchmarks.json and AIPerf's profile_export_aiperf.json"
    )
