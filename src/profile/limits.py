"""What limits each phase of a profile, from the phase table, the windows and the ceilings. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from adrbench.profile.bound import (
    Interval,
    host_share_cpu,
    idle_shares,
    interval,
    shares_without_mirrors,
    time_share,
    verdict,
)
from adrbench.profile.class_limits import Work, class_rows, class_work, told
from adrbench.profile.model_bytes import weight_bytes
from adrbench.profile.model_flops import decode_flops, prefill_flops
from adrbench.profile.op_classes import HOST
from adrbench.profile.sections import Inputs, Run
from adrbench.profile.spread import median_interval
from adrbench.profile.verdict import memory_ceiling
from adrbench.profile.window import prefill_stretch_s, tokens_decoded_beside_prefill

# What launch and host were judged by, as the verdict's rule says it.
JUDGED_BY = {
    "device idle": "the device's idle time within and between its steps",
    "latency": "launching calls x launch latency, as far as the device idled",
    "dispatch": "operators x dispatch time, and time of the steps outside operators",
}


def matrix_ceiling(inputs: Inputs) -> tuple[str, Interval | None]:
    """The matrix rate in the weights' dtype; None where the platform could not run it."""
    name = {2: "bfloat16", 4: "float32"}.get(inputs.shape.weight_bytes_per_value, "bfloat16")
    row = inputs.ceiling.measured["matmul_flop_per_s"].get(name, {})
    return name, row if "median" in row else None


def _inverse(seconds: Interval) -> Interval:
    return interval(1 / seconds["high"], 1 / seconds["median"], 1 / seconds["low"])


def _overheads(row: dict[str, Any], steps: int, launch_s: Interval, seconds: Interval) -> tuple[dict[str, Any], str]:
    """Launch and host share of a phase, from its row in the phase table, and what they were judged by.

    ``device idle``: idle time within and between the device's steps, whatever launched their kernels; ``latency``: a
    device's trace that does not bound its steps, so launching calls (kernels, where it has no calls) at the measured
    latency; ``dispatch``: on CPU, every operator, nested ones included, at the cost of a smallest one.

    Args:
        steps: that ``seconds`` is the time of one of; 1 for a phase timed as a whole.
    """
    device = row.get("device")
    if device and device["cycle"]:
        cycle = device["cycle"]
        return idle_shares(cycle, 1 if steps == 1 else cycle["steps"], seconds), "device idle"
    calls = (sum(device["launches"].values()) or device["kernels"]) if device else row["operations"]
    launch = interval(*(min(1.0, v) for v in time_share(calls / steps, _inverse(launch_s), seconds).values()))
    if device:
        return shares_without_mirrors(device["busy_share"], launch), "latency"
    host_s = row["classes"].get(HOST, 0.0)
    operations_s = sum(spent for name, spent in row["classes"].items() if name != HOST)
    return {"launch": launch, "host": host_share_cpu(host_s / steps, operations_s / steps, seconds)}, "dispatch"


def bound_section(
    inputs: Inputs, taken: Run, phases: dict[str, Any], decode: dict[str, Any]
) -> dict[str, dict[str, Any]]:
    """Per phase: FLOPs and bytes, share of the unprofiled time that each limit takes, the verdict, and its classes.

    Prefill is the stretch from the first request to the last first token, mixed steps included.
    """
    return {"prefill": _prefill(inputs, taken, phases, decode), "decode": _decode(inputs, taken, phases, decode)}


def _prefill(inputs: Inputs, taken: Run, phases: dict[str, Any], decode: dict[str, Any]) -> dict[str, Any]:
    load, shape, ranks = inputs.workload, inputs.shape, len(taken.traces)
    rows = [phases[p] for p in ("prefill", "mixed") if p in phases]
    weights = sum(row["steps"] for row in rows) * weight_bytes(shape)
    stretch = median_interval([prefill_stretch_s(w) for w in taken.unprofiled])
    beside = sum(tokens_decoded_beside_prefill(w) for w in taken.unprofiled) / len(taken.unprofiled)
    prompts = load.prompt_lengths
    flops = prefill_flops(shape, prompts) + beside * decode_flops(shape, [load.input_tokens])
    kv = sum(prompts) * decode["kv_bytes_per_token"]
    contexts = sum(length * (length + 1) / 2 for length in prompts) + beside * load.input_tokens
    tokens, sampled = sum(prompts) + beside, len(prompts) + round(beside)
    work = class_work(shape, tokens, contexts, sampled, weights, kv, ranks)
    return _bound(inputs, _merge(rows), 1, stretch, Work(flops / ranks, (weights + kv) / ranks), work)


def _decode(inputs: Inputs, taken: Run, phases: dict[str, Any], decode: dict[str, Any]) -> dict[str, Any]:
    shape, ranks = inputs.shape, len(taken.traces)
    contexts, parts = [decode["context_tokens"]] * inputs.workload.requests, decode["bytes_by_part"]
    row, batch = phases.get("decode"), len(contexts)
    work = class_work(shape, batch, sum(contexts), batch, parts["weights"] * ranks, parts["kv_read"] * ranks, ranks)
    done = Work(decode_flops(shape, contexts) / ranks, decode["bytes_per_step"])
    return _bound(inputs, row, row["steps"] if row else 1, decode["step_seconds"], done, work)


def _merge(rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Rows of the phase table added up as far as a verdict needs them."""
    if not rows:
        return None
    merged: dict[str, Any] = _added(rows, ("operations",))
    devices = [row["device"] for row in rows if "device" in row]
    if devices:
        device = _added(devices, ("kernels", "busy_s", "gap_s"))
        lasted = device["busy_s"] + device["gap_s"]
        cycles = [d["cycle"] for d in devices if d["cycle"]]
        merged["device"] = {
            "kernels": device["kernels"],
            "busy_share": device["busy_s"] / lasted if lasted else 0.0,
            "launches": {kind: sum(d["launches"][kind] for d in devices) for kind in devices[0]["launches"]},
            "cycle": _added(cycles, ("steps", "seconds", "busy_s", "gap_s", "between_idle_s")) if cycles else None,
        }
    return merged


def _added(rows: list[dict[str, Any]], keys: tuple[str, ...]) -> dict[str, Any]:
    """Sums of these keys and of the seconds by class."""
    added: dict[str, Any] = {key: sum(row[key] for row in rows) for key in keys}
    added["classes"] = {}
    for row in rows:
        for name, seconds in row["classes"].items():
            added["classes"][name] = added["classes"].get(name, 0.0) + seconds
    return added


def _bound(
    inputs: Inputs, row: dict[str, Any] | None, steps: int, seconds: Interval, done: Work, work: Mapping[str, Work]
) -> dict[str, Any]:
    ceiling, (dtype, matrix) = inputs.ceiling.measured, matrix_ceiling(inputs)
    memory = memory_ceiling(ceiling)
    shares, judged_by = {"bandwidth": time_share(done.bytes, memory, seconds)}, None
    if matrix:
        shares["compute"] = time_share(done.flops, matrix, seconds)
    classes: list[dict[str, Any]] = []
    if row:
        overheads, judged_by = _overheads(row, steps, ceiling["launch_s"], seconds)
        shares |= overheads
        if cycle := row.get("device", {}).get("cycle"):
            each = 1 if steps == 1 else cycle["steps"]
            classes = class_rows(cycle, each, work, matrix, memory)
    found = verdict(shares)
    return {
        "seconds": seconds,
        "flops": done.flops,
        "bytes": done.bytes,
        "flops_per_byte": done.flops / done.bytes,
        "matrix_dtype": dtype,
        "shares": shares,
        "overheads_by": judged_by,
        "classes": classes,
        **found,
        "rule": found["rule"] + (f"; launch and host by {JUDGED_BY[judged_by]}" if judged_by else "") + told(classes),
    }


def graphs_replay(phases: Mapping[str, Any]) -> bool:
    """Whether a graph was launched for every decode step of a device's trace."""
    row = phases.get("decode", {})
    return bool(row.get("device")) and row["device"]["launches"]["graph"] >= row["steps"]
