"""Read back what vLLM resolved: a flag is a wish, and on some platforms an ignored one.

On CPU, for one, vLLM takes any ``--attention-backend`` and runs CPU_ATTN. Values come from the
labels of ``vllm:cache_config_info`` in /metrics, from /version, and (the backend, which no endpoint
tells) from our plugin's report out of the engine process, else from the server's log.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from adrbench.job import JobError
from adrbench.serve.plugin import INCOMPLETE
from adrbench.serve.spec import ServerSpec

# One pattern per wording met: explicit choice, automatic choice (platforms/rocm.py, platforms/cuda.py),
# the selector's layout line (attention/selector.py), which names the backend on every platform.
BACKEND_LINES = (
    re.compile(r"Using (?:AttentionBackendEnum\.)?([A-Z][A-Z0-9_]+) attention backend"),
    re.compile(r"Using (?:AttentionBackendEnum\.)?([A-Z][A-Z0-9_]+) backend\."),
    re.compile(r"KV cache layout for ([A-Z][A-Z0-9_]+) backend"),
)
POOL_LINE = re.compile(r"KV cache size: ([\d,]+) tokens")
CONCURRENCY_LINE = re.compile(r"Maximum concurrency for ([\d,]+) tokens per request: ([\d.]+)x")
WEIGHTS_LINE = re.compile(r"Model loading took ([\d.]+) GiB")
COMPILATION_MODE = re.compile(r"'mode': <CompilationMode\.([A-Z_]+)")
HYBRID_BLOCK_LINE = re.compile(r"Setting attention block size to (\d+) tokens")


def metric_labels(metrics: str, name: str) -> dict[str, str]:
    """Labels of the first sample of a Prometheus metric; empty when there is none."""
    match = re.search(rf"^{re.escape(name)}\{{(.*)\}} ", metrics, re.MULTILINE)
    return dict(re.findall(r'(\w+)="([^"]*)"', match.group(1))) if match else {}


def metric_sum(metrics: str, name: str) -> float | None:
    """Sum over all label sets of a counter, gauge or ``_sum``/``_count`` series; None when absent."""
    values = re.findall(rf"^{re.escape(name)}(?:\{{[^}}]*\}})? ([-+\d.eE]+)$", metrics, re.MULTILINE)
    return sum(map(float, values)) if values else None


def _integer(text: str | None) -> int | None:
    try:
        return int(float(text)) if text not in (None, "", "None") else None
    except ValueError:
        return None


def block_size(label: int | None, blocks: int | None, tokens: int | None) -> int | None:
    """Tokens per block: of the pool where it divides into its blocks, else as labelled.

    The label is the API server's configuration, which in vLLM 0.20.2 does not hear of the block size that a
    backend prefers (``AttentionBackend.get_preferred_block_size``): the engine raises its own copy only. Not for hybrid
    models, whose pool is shared by groups of layers.
    """
    if not blocks or not tokens or tokens % blocks:
        return label
    return tokens // blocks


def read_resolved(folder: Path, metrics: str, version: str | None) -> dict[str, Any]:
    """Resolved settings of a running server; a value that vLLM does not tell is None, never guessed.

    ``kv_pool_tokens`` counts tokens that the KV pool holds, ``block_size`` tokens per block.
    """
    log = (folder / "server.log").read_text(errors="replace")
    labels = metric_labels(metrics, "vllm:cache_config_info")
    reports = read_plugin_report(folder / "plugin.jsonl")
    backends = [match.group(1) for pattern in BACKEND_LINES for match in pattern.finditer(log)]
    pool, concurrency = POOL_LINE.search(log), CONCURRENCY_LINE.search(log)
    weights, hybrid = WEIGHTS_LINE.search(log), HYBRID_BLOCK_LINE.search(log)
    label, blocks = _integer(labels.get("block_size")), _integer(labels.get("num_gpu_blocks"))
    tokens = _integer(pool.group(1).replace(",", "")) if pool else None
    return {
        "vllm_version": version,
        "attention_backend": next((r["chosen"] for r in reversed(reports) if r.get("chosen")), None)
        or (backends[-1] if backends else None),
        "kv_cache_dtype": labels.get("cache_dtype"),
        "block_size": label if hybrid else block_size(label, blocks, tokens),
        "num_gpu_blocks": blocks,
        "prefix_caching": labels.get("enable_prefix_caching"),
        "kv_pool_tokens": tokens,
        "max_concurrency": float(concurrency.group(2)) if concurrency else None,
        "max_concurrency_tokens": _integer(concurrency.group(1).replace(",", "")) if concurrency else None,
        "weights_gib": float(weights.group(1)) if weights else None,
        "hybrid_block_size": int(hybrid.group(1)) if hybrid else None,
        "compilation_mode": mode.group(1) if (mode := COMPILATION_MODE.search(log)) else None,
        "ignored_backend_flag": bool(re.search(r"Cannot use \S+ backend on CPU", log)),
        "plugin": reports,
        "kv_simulation": read_kv_simulation(folder),
    }


def read_plugin_report(path: Path) -> list[dict[str, Any]]:
    """What our plugin reported from each process in which it was loaded; empty without a plugin.

    Raises:
        JobError: ``report-lost``: a process could not write a line.
    """
    if path.with_name(path.name + INCOMPLETE).is_file():
        raise _lost(path, "a process of the server could not write a line of it")
    if not path.is_file():
        return []
    try:
        return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    except ValueError:
        raise _lost(path, "a line of it is cut off") from None


def _lost(path: Path, what: str) -> JobError:
    return JobError(
        "report-lost",
        f"{path}: {what}, so it is not known what was active, or which kernels were compiled, while requests were "
        "served; free space on its disk and rerun",
    )


def read_reports(folder: Path, ready: dict[str, Any]) -> dict[str, Any]:
    """``plugin`` and ``kv_simulation`` of the whole load, to replace what they were when the server was ready.

    Args:
        ready: what ``read_resolved`` found then.

    Raises:
        JobError: ``report-lost``: something that was there then is gone, as a later part could not be written.
    """
    reports, counts = read_plugin_report(folder / "plugin.jsonl"), read_kv_simulation(folder)
    if reports[: len(ready["plugin"])] != ready["plugin"]:
        raise _lost(folder / "plugin.jsonl", "lines of it are gone")
    if ready["kv_simulation"] and not counts:
        raise _lost(folder / "kv_simulation.json", "the engine could not write its last counts")
    return {"plugin": reports, "kv_simulation": counts}


def compiled_late(reports: list[dict[str, Any]]) -> list[str]:
    """Kernels of CUSTOM that were compiled or loaded after its warm-up, each once (kernels/backend/warmup.py)."""
    return sorted({report["compiled_late"] for report in reports if report.get("compiled_late")})


def check_warm_up(reports: list[dict[str, Any]]) -> None:
    """Refuse a server whose CUSTOM backend was not warmed up: it would compile kernels while requests are served.

    Raises:
        JobError: ``not-warmed-up``.
    """
    serves = any(report.get("mechanism") == "L3" and report.get("scheme") for report in reports)
    if serves and not any(report.get("warmup_steps") and report.get("engine") for report in reports):
        raise JobError(
            "not-warmed-up",
            f"the backend CUSTOM serves and no engine process warmed its kernels up (reports: {reports}); does this "
            "vLLM start its workers in another way than kernels/backend/install.py knows?",
        )


def read_kv_simulation(folder: Path) -> dict[str, Any] | None:
    """What the simulated KV scheme did so far in the engine process (serve/simulation); None without one.

    ``scheme``, ``parameters``, ``scales``, ``tokens_seen`` (that reached the cache), ``tokens_quantised``,
    ``backend`` (class wrapped), ``engine``, ``pid``.
    """
    path = folder / "kv_simulation.json"
    return dict(json.loads(path.read_text())) if path.is_file() else None


def check_kv_simulation(scheme: str | None, found: dict[str, Any] | None) -> None:
    """Compare what the engine simulated with the scheme that the arm expects.

    Raises:
        JobError: ``plugin-inactive`` when the engine process simulated nothing or another scheme.
    """
    if scheme is None:
        return
    active = found is not None and found["engine"] and found["scheme"] == scheme and found["tokens_seen"] > 0
    if not active:
        raise JobError(
            "plugin-inactive",
            f"kv_simulation.scheme: {scheme} was not simulated in the engine process (its report: {found}); is "
            "pythonpath/ on the interpreter's PYTHONPATH and vllm's plugin loading not restricted by VLLM_PLUGINS?",
        )


def check_quantised(scheme: str | None, found: dict[str, Any] | None) -> None:
    """Refuse a load in which no token was quantised: it measured the baseline under the scheme's name.

    Raises:
        JobError: ``nothing-quantised``.
    """
    if scheme is not None and not (found or {}).get("tokens_quantised"):
        raise JobError(
            "nothing-quantised",
            f"kv_simulation.scheme: {scheme} quantised none of {(found or {}).get('tokens_seen', 0)} tokens: every "
            "request was shorter than its 16-bit window; use longer tiers or tasks, or a smaller window",
        )


def check_resolved(spec: ServerSpec, resolved: dict[str, Any]) -> None:
    """Compare resolved settings with what the arm expects.

    Raises:
        JobError: ``resolved-differs``, naming the setting, what was expected and what vLLM runs.
    """
    expected = spec.expect.model_dump(exclude={"plugin", "kv_simulation", "vllm_version"})
    for key, wanted in expected.items():
        if wanted is not None and str(resolved.get(key)) != str(wanted):
            raise JobError(
                "resolved-differs",
                f"{key}: the arm expects {wanted!r}, vLLM resolved {resolved.get(key)!r}; measuring it under the "
                "arm's name would be wrong. Change the arm's `expect` or its flags in the platform file",
            )
    version = spec.expect.vllm_version
    if version and (resolved["vllm_version"] or "").split("+")[0] != version.split("+")[0]:
        raise JobError(
            "resolved-differs",
            f"serve.vllm_version: {version} is declared in the platform file, {resolved['vllm_version']} is served",
        )
    mechanism = spec.expect.plugin
    if mechanism and not any(
        report.get("mechanism") == mechanism and report.get("engine") for report in resolved["plugin"]
    ):
        raise JobError(
            "plugin-inactive",
            f"the plugin's {mechanism} was not active in the engine process (reports: {resolved['plugin']}); is "
            "pythonpath/ on the interpreter's PYTHONPATH and vllm's plugin loading not restricted by VLLM_PLUGINS?",
        )
    check_warm_up(resolved["plugin"])
    check_kv_simulation(spec.expect.kv_simulation, resolved["kv_simulation"])
