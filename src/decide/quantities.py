"""Facts that a decision of ``kind: facts`` checks: each a named quantity, looked up in evidence.

A quantity returns one row, or one for each tier: the value with its interval (equal bounds: exact, open
bounds: unknown), the files it was read from, and what is missing where it cannot be told. Nothing here
is estimated beyond the t interval over rounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from adrbench.config.section import Text
from adrbench.decide.facts_spec import Evidences
from adrbench.decide.intervals import quantile
from adrbench.decide.words import text


@dataclass(frozen=True)
class Row:
    """One value of a quantity. ``needs`` says what is missing where ``value`` is None."""

    value: float | None
    low: float | None
    high: float | None
    basis: Text
    files: list[str]
    tier: str | None = None
    needs: Text | None = None


def exact(value: float, basis: Text, files: list[str], tier: str | None = None) -> Row:
    return Row(value, value, value, basis, files, tier)


def missing(needs: Text, tier: str | None = None) -> Row:
    return Row(None, None, None, text("not measured", "未测量"), [], tier, needs)


def identified(found: Evidences) -> list[Row]:
    """Share of the declared properties of the device that the probe confirmed."""
    if found.device is None:
        return [missing(text("the device evidence", "设备证据"))]
    declared, resolved, devices = found.spec.declared, found.device.resolved, found.device.measured["devices"]
    agree = [
        resolved.get("vendor") == declared.vendor,
        resolved.get("arch") == declared.arch,
        len(devices) >= declared.devices,
        all(one["memory_bytes"] >= declared.memory_gib * 2**30 for one in devices[: declared.devices]),
    ]
    basis = text("vendor, architecture, number and memory of the devices, probed", "实测核对: 厂商、架构、设备数、内存")
    return [exact(sum(agree) / len(agree), basis, [found.path("device")])]


def fp8_self_check(found: Evidences) -> list[Row]:
    """1 where vLLM's FP8 type does what its definition says on this device, 0 where not."""
    if found.device is None:
        return [missing(text("the device evidence", "设备证据"))]
    status = found.device.measured["fp8"]["status"]
    if status not in ("passed", "failed"):
        return [missing(text("a run of the FP8 self-check on the device", "在该设备上运行 FP8 自检"))]
    basis = text(
        "every code of vLLM's own FP8 type against its definition", "vLLM 自身 FP8 类型的全部编码与定义逐一比对"
    )
    return [exact(float(status == "passed"), basis, [found.path("device")])]


def weights_of_memory(found: Evidences) -> list[Row]:
    """Bytes of weights over the memory of the devices that serve."""
    if found.device is None or found.model is None:
        return [missing(text("device and model evidence", "设备与模型证据"))]
    memory = sum(d["memory_bytes"] for d in found.device.measured["devices"][: found.spec.declared.devices])
    basis = text("bytes of the weight files over the probed memory", "权重文件字节数 / 探测到的内存")
    return [exact(found.model.measured["weight_bytes"] / memory, basis, [found.path("model"), found.path("device")])]


def tiers_of_kv_pool(found: Evidences) -> list[Row]:
    """Of each tier: tokens that all its concurrent requests hold at their longest, over the pool's tokens."""
    rows = []
    for tier in found.spec.tiers:
        runs = found.rounds(tier.name)
        pools = [run.pool_tokens for run in runs if run.pool_tokens is not None]
        if not pools:
            rows.append(missing(text(f"the baseline in tier {tier.name}", f"baseline 的 {tier.name} 档"), tier.name))
            continue
        longest = tier.concurrency * (tier.input_tokens[1] + tier.output_tokens)
        basis = text(
            "concurrency x (longest prompt + output) over the smallest pool of any round",
            "并发 × (最长 prompt + 输出) / 各轮中最小的 KV pool",
        )
        rows.append(exact(longest / min(pools), basis, [run.path for run in runs], tier.name))
    return rows


def rounds_measured(found: Evidences) -> list[Row]:
    """Server starts of the baseline in which every tier was measured."""
    complete = [number for number, tiers in found.baseline_runs.items() if len(tiers) == len(found.spec.tiers)]
    files = [run.path for number in complete for run in found.baseline_runs[number].values()]
    return [
        exact(float(len(complete)), text("fresh server starts with all tiers", "包含全部档位的全新 server 启动"), files)
    ]


def completion(found: Evidences) -> list[Row]:
    """Of each tier: completed requests over those sent, in all rounds."""
    rows = []
    for tier in found.spec.tiers:
        runs = found.rounds(tier.name)
        sent = sum(run.completed + run.failed for run in runs)
        if not sent:
            rows.append(missing(text(f"the baseline in tier {tier.name}", f"baseline 的 {tier.name} 档"), tier.name))
            continue
        basis = text("requests of all rounds", "全部轮次的请求")
        rows.append(exact(sum(run.completed for run in runs) / sent, basis, [r.path for r in runs], tier.name))
    return rows


def over_rounds(values: list[float], confidence: float) -> tuple[float, float | None, float | None]:
    """Geometric mean and its t interval; open with fewer than two rounds, or rounds that do not differ at all."""
    logs = [math.log(value) for value in values]
    mean = math.fsum(logs) / len(logs)
    if len(logs) < 2 or len(set(logs)) == 1:
        return math.exp(mean), None, None
    error = math.sqrt(sum((x - mean) ** 2 for x in logs) / (len(logs) - 1) / len(logs))
    half = quantile(confidence, len(logs) - 1) * error
    return math.exp(mean), math.exp(max(mean - half, -700.0)), math.exp(min(mean + half, 700.0))


def reference_ratio(found: Evidences) -> list[Row]:
    """Of each tier: measured output tokens per second over the published figure; none on another platform."""
    reference = found.spec.decision.reference
    if reference is None or found.spec.platform not in reference.platforms:
        return []
    rows = []
    for tier, published in zip(found.spec.tiers, reference.tokens_per_s, strict=False):
        runs = found.rounds(tier.name)
        rates = [rate for run in runs if (rate := run.rate("output_tokens_per_s"))]
        if not rates:
            rows.append(missing(text(f"the baseline in tier {tier.name}", f"baseline 的 {tier.name} 档"), tier.name))
            continue
        value, low, high = over_rounds(rates, found.spec.decision.confidence)
        low, high = (None if bound is None else bound / published for bound in (low, high))
        basis = text("t interval over rounds, on logarithms", "各轮对数值的 t 区间")
        needs = None if low is not None else text("a second round of the baseline", "baseline 的第二轮")
        rows.append(Row(value / published, low, high, basis, [run.path for run in runs], tier.name, needs))
    return rows


QUANTITIES: dict[str, Callable[[Evidences], list[Row]]] = {
    "identified": identified,
    "fp8_self_check": fp8_self_check,
    "weights_of_memory": weights_of_memory,
    "tiers_of_kv_pool": tiers_of_kv_pool,
    "rounds_measured": rounds_measured,
    "completion": completion,
    "reference_ratio": reference_ratio,
}
