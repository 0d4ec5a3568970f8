"""Evidence as the decision needs it: the shell between files and the statistics."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adrbench import evidence
from adrbench.decide.spec import DecideSpec
from adrbench.evidence import Evidence, EvidenceError
from adrbench.job import JobError

LATENCIES = ("ttft_ms", "tpot_ms", "itl_ms", "e2el_ms")
PERCENTILES = (50, 90, 99)
RATES = ("output_tokens_per_s", "total_tokens_per_s")


@dataclass(frozen=True)
class TierRun:
    """One tier of one arm in one round, as measured."""

    path: str
    document: Evidence
    latencies: dict[str, dict[int, float]]
    per_request: dict[str, list[float]]
    completed: int
    failed: int

    def rate(self, metric: str) -> float | None:
        """A rate per second; ``goodput`` is in requests. None where it was not measured."""
        key = "goodput_requests_per_s" if metric == "goodput" else metric
        value = self.document.measured.get(key)
        return None if value is None else number(value, self.path, f"measured.{key}", least=0.0)

    @property
    def pool_tokens(self) -> float | None:
        value = self.document.resolved.get("kv_pool_tokens")
        return None if value is None else number(value, self.path, "resolved.kv_pool_tokens")

    @property
    def usable_tokens(self) -> float | None:
        """Tokens of this tier's requests that whole sequences of the mean length fill in the pool at once.

        A sequence takes whole blocks; the rest of its last one is lost. None where the pool or its block size is
        unknown, or one such sequence does not fit.
        """
        block, pool = self.document.resolved.get("block_size"), self.pool_tokens
        if not block or pool is None:
            return None
        measured, asked = self.document.measured, self.document.asked.get("tier") or {}
        mean = measured.get("input_tokens", {}).get("total", 0) / max(1, self.completed)
        length = round(mean) + int(asked.get("output_tokens") or 0)
        sequences = pool // block // math.ceil(length / block) if length else 0
        return float(sequences * length) or None


# arm -> round -> tier
Runs = dict[str, dict[int, dict[str, TierRun]]]


def number(value: Any, path: str, key: str, least: float | None = None) -> float:
    """A finite number, positive unless ``least`` says otherwise.

    Raises:
        JobError: ``bad-value``, naming file, key and value.
    """
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if not good or (value < least if least is not None else value <= 0):
        kind = "positive number" if least is None else "number"
        raise JobError("bad-value", f"{path}: {key} is {value!r}, a finite {kind} is needed; rerun its job")
    return float(value)


def _read(path: str) -> Evidence:
    try:
        return evidence.read(Path(path))
    except EvidenceError as error:
        raise JobError("evidence", str(error)) from None


def load_single(path: str | None) -> Evidence | None:
    """Evidence that a platform has once; None where there is none.

    Raises:
        JobError: ``evidence``, naming the file that cannot be read.
    """
    return _read(path) if path is not None and Path(path).is_file() else None


def _expect(path: str, document: Evidence, **wanted: Any) -> None:
    for key, value in wanted.items():
        if getattr(document, key) != value:
            raise JobError(
                "evidence", f"{path}: {key} is {getattr(document, key)!r}, the specification names it as {value!r}"
            )


def tier_run(path: str, document: Evidence) -> TierRun:
    """Raises JobError ``bad-value`` for a value that is missing, not finite or not positive."""
    measured = document.measured
    latencies = {
        metric: {p: number(measured.get(metric, {}).get(f"p{p}"), path, f"measured.{metric}.p{p}") for p in PERCENTILES}
        for metric in LATENCIES
    }
    per_request = {
        metric: [number(value, path, f"measured.per_request.{metric}[{i}]") for i, value in enumerate(values)]
        for metric, values in measured.get("per_request", {}).items()
    }
    completed = number(measured.get("completed"), path, "measured.completed", least=0)
    failed = number(measured.get("failed"), path, "measured.failed", least=0)
    return TierRun(path, document, latencies, per_request, int(completed), int(failed))


def read_serve(platform: str, paths: Mapping[str, Mapping[int, Mapping[str, str]]]) -> Runs:
    """Serving evidence of a platform that exists, from arm -> round -> tier -> path; a missing file is a missing
    measurement.

    Raises:
        JobError: ``evidence`` or ``bad-value``, naming the file.
    """
    runs: Runs = {}
    # Sorted, so that the last digit of a sum does not depend on the order of keys in a file.
    for arm, rounds in sorted(paths.items()):
        for round_number, tiers in sorted(rounds.items()):
            for tier, path in sorted(tiers.items()):
                if not Path(path).is_file():
                    continue
                document = _read(path)
                _expect(path, document, stage="serve", platform=platform, arm=arm, round=round_number, tier=tier)
                runs.setdefault(arm, {}).setdefault(round_number, {})[tier] = tier_run(path, document)
    return runs


def load_serve(spec: DecideSpec) -> Runs:
    """All serving evidence named by the specification that exists."""
    return read_serve(spec.platform, spec.evidence.serve)


def _check_tasks(path: str, document: Evidence) -> None:
    """Raises JobError ``bad-value`` where accuracy evidence has no scores by task."""
    tasks = document.measured.get("tasks")
    if not isinstance(tasks, dict):
        raise JobError("bad-value", f"{path}: measured.tasks is missing or no mapping; rerun its job")
    for name, task in tasks.items():
        if not isinstance(task, dict) or not isinstance(task.get("scores"), list):
            raise JobError("bad-value", f"{path}: measured.tasks.{name}.scores is missing or no list; rerun its job")


def read_eval(platform: str, paths: Mapping[str, str]) -> dict[str, Evidence]:
    """Accuracy evidence of a platform by arm, of the files that exist.

    Raises:
        JobError: ``evidence``, naming a file that cannot be read or is another platform's or arm's; ``bad-value``, one
            without scores.
    """
    documents = {}
    for arm, path in sorted(paths.items()):
        if Path(path).is_file():
            documents[arm] = _read(path)
            _expect(path, documents[arm], stage="eval", platform=platform, arm=arm)
            _check_tasks(path, documents[arm])
    return documents


def load_eval(spec: DecideSpec) -> dict[str, Evidence]:
    """All accuracy evidence named by the specification that exists."""
    return read_eval(spec.platform, spec.evidence.eval)


def load_integrate(spec: DecideSpec) -> dict[str, Evidence]:
    """What became of each way of putting a backend into vLLM, by name, of the files that exist."""
    return {name: _read(path) for name, path in spec.evidence.integrate.items() if Path(path).is_file()}


def metric_value(run: TierRun, metric: str) -> float | None:
    """One metric of one tier: latencies are named ``ttft_ms.p99``; None where it was not measured or is 0."""
    if metric == "kv_pool_tokens":
        return run.pool_tokens
    if metric == "kv_usable_tokens":
        return run.usable_tokens
    if metric in RATES or metric == "goodput":
        return run.rate(metric) or None
    name, percentile = metric.split(".p")
    return run.latencies[name][int(percentile)]


METRICS = (
    *(f"{metric}.p{p}" for metric in LATENCIES for p in PERCENTILES),
    *RATES,
    "goodput",
    "kv_pool_tokens",
    "kv_usable_tokens",
)


def by_round(runs: Runs, arm: str, tier: str, metric: str) -> dict[int, float]:
    """Round -> value of one metric of one arm and tier."""
    values = {r: metric_value(tiers[tier], metric) for r, tiers in sorted(runs.get(arm, {}).items()) if tier in tiers}
    return {r: value for r, value in values.items() if value is not None}


def series(runs: Runs, arm: str, tier: str) -> Iterator[tuple[str, dict[int, float]]]:
    """(metric, round -> value) of one arm and tier, for all metrics."""
    for metric in METRICS:
        yield metric, by_round(runs, arm, tier, metric)


def digests(spec: DecideSpec) -> dict[str, str]:
    """SHA-256 of every evidence file that exists, of all stages: what a verdict rests on."""
    named = [path for rounds in spec.evidence.serve.values() for tiers in rounds.values() for path in tiers.values()]
    for group in (spec.evidence.eval, spec.evidence.integrate, spec.evidence.profile):
        named += group.values()
    named += [*spec.evidence.singles(), *(spec.elsewhere.eval.values() if spec.elsewhere else ())]
    return {path: evidence.digest_file(Path(path)) for path in sorted(set(named)) if Path(path).is_file()}
