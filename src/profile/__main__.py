"""Profile one arm: ``python -m adrbench.profile --spec JSON --output FILE`` (analysis interpreter).

One server, started with the profiler configured but idle. The bounded window runs first without the
profiler, several times, for the step times; then once with it, for the shares. Shares come from the
profiled window and speeds from the unprofiled ones, because profiling slows steps unevenly.
"""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

from adrbench.evidence import Evidence, EvidenceError, digest_raw, now, raw_folder, read, write
from adrbench.job import JobError, run, say
from adrbench.profile.bound import levers
from adrbench.profile.checks import model_checks, pool_section
from adrbench.profile.cpu_time import Sampler, sampler
from adrbench.profile.limits import bound_section, graphs_replay
from adrbench.profile.model_bytes import check_weights, computed_weights, kv_format
from adrbench.profile.model_shape import ModelConfigError, load_shape
from adrbench.profile.phases import Split, between_steps_s, phase_table, read_phases
from adrbench.profile.prediction import shape_as_dict
from adrbench.profile.saved import save_run, trace_rank
from adrbench.profile.sections import (
    Inputs,
    Run,
    busy_share,
    collect_notes,
    counter_section,
    cpu_time_shares,
    decode_section,
    overhead_section,
    window_shares,
)
from adrbench.profile.trace import TraceError, TraceReader, is_complete
from adrbench.profile.verdict import g06
from adrbench.profile.window import Window, Workload, decode_steps, run_window
from adrbench.serve.resolved import metric_sum
from adrbench.serve.server import Server, serving
from adrbench.serve.spec import random_weights, weight_notes

# Writing and summarising a trace takes the worker several times as long as the window took.
STOP_TIMEOUT_S = 900.0
TRACE_WAIT_S = 60.0
# A window in which the client lagged tells no step times: it is repeated with prompts of its own.
WINDOW_ATTEMPTS = 3
ATTEMPT_SEED = 1000
CEILING_KEYS = {"read_bytes_per_s", "by_size", "matmul_flop_per_s", "launch_s"}
COUNTERS = {"prefill": "vllm:request_prefill_time_seconds", "decode": "vllm:request_decode_time_seconds"}


def load_inputs(spec: dict[str, Any]) -> Inputs:
    """Check the specification and read the files it names.

    Raises:
        JobError: ``bad-spec``, ``model-config`` or ``no-ceiling``, naming file and key.
    """
    for key in ("platform", "server", "model", "ceiling", "workload"):
        if not spec.get(key):
            raise JobError("bad-spec", f"spec: {key} is missing")
    windows = spec["workload"].get("windows", 3)
    if not isinstance(windows, int) or windows < 1:
        raise JobError("bad-spec", f"spec: workload.windows is {windows!r}, expected a positive integer")
    try:
        shape = load_shape(Path(spec["model"]))
        kv_format(spec.get("kv_dtype") or "auto", shape.weight_bytes_per_value)
        made_up = random_weights(spec["server"].get("args", []))
        weights = computed_weights(shape) if made_up else check_weights(shape, Path(spec["model"]))
    except ModelConfigError as error:
        raise JobError("model-config", str(error)) from None
    try:
        ceiling = read(Path(spec["ceiling"]))
    except EvidenceError as error:
        raise JobError("no-ceiling", str(error)) from None
    if missing := sorted(CEILING_KEYS - ceiling.measured.keys()):
        raise JobError(
            "no-ceiling", f"{spec['ceiling']}: not a ceiling's evidence: measured lacks {', '.join(missing)}"
        )
    return Inputs(shape, weights, ceiling, Workload.from_spec(spec["workload"]), windows)


def profiler_argument(folder: Path) -> str:
    """vLLM's ``--profiler-config``: worker trace only, no stacks and no CUDA table, which only cost time."""
    return json.dumps(
        {
            "profiler": "torch",
            "torch_profiler_dir": str(folder.resolve()),
            "torch_profiler_with_stack": False,
            "torch_profiler_dump_cuda_time_total": False,
            "ignore_frontend": True,
        }
    )


def counters(server: Server) -> dict[str, float]:
    """Sums of vLLM's per-request time counters, in seconds; 0 where a counter has not appeared yet."""
    text = server.metrics()
    return {phase: metric_sum(text, f"{name}_sum") or 0.0 for phase, name in COUNTERS.items()}


def host_busy(seconds: float = 0.5) -> float | None:
    """Share of the host's CPU time in use right now; None where /proc/stat does not tell."""
    stat = Path("/proc/stat")
    if not stat.is_file():
        return None
    before = stat.read_text()
    time.sleep(seconds)
    return busy_share(before, stat.read_text())


def wait_for_traces(folder: Path, wait_s: float) -> list[Path]:
    """Trace files once every one is whole, in rank order.

    Raises:
        JobError: ``no-trace`` or ``trace-incomplete`` when that does not happen in time.
    """
    deadline = time.monotonic() + wait_s
    while True:
        files = sorted(folder.glob("*.pt.trace.json*"), key=lambda f: (trace_rank(f), f.name))
        incomplete = [f for f in files if not is_complete(f)]
        if files and not incomplete:
            return files
        if time.monotonic() > deadline:
            if not files:
                raise JobError("no-trace", f"{folder}: the profiler wrote no trace within {wait_s:.0f} s")
            raise JobError("trace-incomplete", f"{incomplete[0]}: still incomplete or damaged after {wait_s:.0f} s")
        time.sleep(0.5)


def clean_window(server: Server, load: Workload, seed: int, vocabulary: int, cpu_time: Sampler | None = None) -> Window:
    """An unprofiled window whose steps can be timed; one that a busy host spoiled is repeated a few times.

    Raises:
        JobError: ``client-slow`` when every attempt was spoiled, and as :func:`run_window`.
    """
    for attempt in range(WINDOW_ATTEMPTS):
        window = run_window(server, load, seed + attempt * ATTEMPT_SEED, vocabulary, cpu_time)
        try:
            decode_steps(window)
        except JobError as error:
            if error.reason != "client-slow" or attempt + 1 == WINDOW_ATTEMPTS:
                raise
            say(f"{error}; the window is repeated")
        else:
            return window
    raise AssertionError("unreachable: the last attempt returns or raises")


def measure(spec: dict[str, Any], inputs: Inputs, folder: Path) -> Run:
    """Start the arm's server, run the windows, and return when the trace is whole and the server gone."""
    traces, load, vocabulary = folder / "trace", inputs.workload, inputs.shape.vocabulary
    traces.mkdir(parents=True, exist_ok=True)
    for stale in traces.iterdir():
        stale.unlink()
    busy_before = host_busy()
    with serving(spec["server"], folder / "server", ["--profiler-config", profiler_argument(traces)]) as server:
        say("warm-up window")
        run_window(server, load, 0, vocabulary)
        # On a CPU the processor time of the server's worker tells the phases apart on a busy host, too.
        cpu_time = sampler(server.process.pid) if spec["server"].get("device_kind", "cpu") == "cpu" else None
        unprofiled = []
        for number in range(inputs.windows):
            say(f"unprofiled window {number + 1} of {inputs.windows}")
            unprofiled.append(clean_window(server, load, 1 + number, vocabulary, cpu_time))
        before = counters(server)
        server.request("/start_profile", {}, 60)
        say("profiled window")
        profiled = run_window(server, load, 1 + inputs.windows, vocabulary)
        after = counters(server)
        say("writing the trace")
        server.request("/stop_profile", {}, STOP_TIMEOUT_S)
        files = wait_for_traces(traces, TRACE_WAIT_S)
        counted = {phase: after[phase] - before[phase] for phase in COUNTERS}
        return Run(tuple(unprofiled), profiled, counted, tuple(files), server.resolved, busy_before)


def pool_memory_bytes(spec: dict[str, Any], log: Path) -> float | None:
    """Memory that vLLM gave the KV pool: from its log on an accelerator, from the arm's environment on CPU."""
    text = log.read_text(errors="replace") if log.is_file() else ""
    told = re.search(r"Available KV cache memory: ([\d.]+) GiB", text)
    gib = told.group(1) if told else spec["server"].get("env", {}).get("VLLM_CPU_KVCACHE_SPACE")
    return float(gib) * 2**30 if gib else None


def loaded_bytes(inputs: Inputs, taken: Run) -> dict[str, float]:
    """Memory that vLLM says its weights take on one rank, where there are no files to hold the bytes model against."""
    gib = taken.resolved.get("weights_gib")
    return (
        {}
        if inputs.weights["on_disk_bytes"] is not None or not gib
        else {"loaded_bytes": gib * 2**30 * len(taken.traces)}
    )


def read_traces(files: tuple[Path, ...]) -> tuple[Split, TraceReader]:
    """Phases of the first rank's trace.

    Raises:
        JobError: ``bad-trace`` when it cannot be read or anything of it was lost.
    """
    try:
        split, reader = read_phases(files[0])
    except TraceError as error:
        raise JobError("bad-trace", str(error)) from None
    if reader.loss.any:
        raise JobError(
            "bad-trace", f"{files[0]}: incompletely read: {json.dumps(reader.loss.as_dict())}; profile again"
        )
    return split, reader


def evaluate(spec: dict[str, Any], inputs: Inputs, taken: Run, log: Path) -> tuple[dict[str, Any], list[str]]:
    """(measured, notes) from what was taken from the server, the traces on disk and the server's log."""
    split, reader = read_traces(taken.traces)
    kv_dtype = spec.get("kv_dtype") or taken.resolved.get("kv_cache_dtype") or "auto"
    decode = decode_section(inputs, taken, kv_dtype)
    phases = phase_table(split)
    bounds = bound_section(inputs, taken, phases, decode)
    given_bytes = pool_memory_bytes(spec, log)
    measured: dict[str, Any] = {
        "phases": phases,
        "between_steps_s": between_steps_s(split.device.steps() or split.steps),
        "decode": decode,
        "g06": g06(decode["utilisation"]),
        "bounds": bounds,
        "levers": levers(
            decode,
            bounds["decode"]["shares"],
            taken.resolved.get("block_size"),
            bounds["decode"]["classes"],
            graphs_replay(phases),
        ),
        "overhead": overhead_section(taken),
        "counters": counter_section(split, inputs.workload.prompt_lengths, taken.counted),
        "weights": inputs.weights | loaded_bytes(inputs, taken),
        "pool": pool_section(
            inputs.shape,
            kv_format(kv_dtype, inputs.shape.weight_bytes_per_value),
            taken.resolved.get("kv_pool_tokens"),
            given_bytes,
            len(taken.traces),
        ),
        "model": shape_as_dict(inputs.shape),
        "window_shares": window_shares(taken),
        "cpu_time_shares": cpu_time_shares(taken),
        "trace": {
            "events": reader.events,
            "raw_bytes": reader.raw_bytes,
            "lost": reader.loss.as_dict(),
            "ranks": len(taken.traces),
            "other_worker_steps": split.other_worker_steps,
        },
    }
    measured["checks"] = model_checks(measured, taken.resolved.get("block_size"))
    made_up = weight_notes(spec["server"].get("args", []))
    return measured, [*made_up, *collect_notes(measured, inputs.ceiling, taken.busy_before)]


def work(spec: dict[str, Any], output: Path) -> None:
    """Profile one arm and write its evidence."""
    started, inputs, folder = now(), load_inputs(spec), raw_folder(output)
    taken = measure(spec, inputs, folder)
    raw = [save_run(folder, taken), *(str(f.relative_to(folder)) for f in taken.traces)]
    raw += ["server/server.log"] if (folder / "server" / "server.log").is_file() else []
    say("reading the trace")
    measured, notes = evaluate(spec, inputs, taken, folder / "server" / "server.log")
    evidence = Evidence(
        stage="profile",
        tier=spec.get("tier"),
        platform=spec["platform"],
        arm=spec.get("arm", {}).get("name"),
        asked=spec,
        resolved=taken.resolved,
        measured=measured,
        files=digest_raw(output, raw),
        notes=notes,
        started_at=started,
        finished_at=now(),
    )
    write(output, evidence)
    say(measured["g06"]["text"])
    for phase, row in measured["bounds"].items():
        say(f"{phase}: {row['bound']}; {row['rule']}")


if __name__ == "__main__":
    run("profile", work)
