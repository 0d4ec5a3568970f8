"""Specifications of servers: what of a configuration an arm's ``vllm serve`` is started with, and by which model."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from adrbench.config import policy as policies
from adrbench.config.arm import Arm, Plugin
from adrbench.config.load import Run, absolute
from adrbench.config.measuring_code import SIMULATION_CODE
from adrbench.config.policy import arm_flags
from adrbench.evidence import digest_tree
from adrbench.paths import ROOT

# A shape's folder holds no weights: vLLM makes them up.
RANDOM = ["--load-format", "dummy"]

PARALLEL = ("tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size")


def model_folder(run: Run, workdir: Path) -> str:
    """Absolute path of the model folder; the embedded model is converted below the working folder."""
    model = run.platform.model
    return absolute(model.path) if model.path else str(workdir / "models" / run.platform.name)


def devices(run: Run, arm: Arm) -> int:
    """Devices of one arm's server: the product of its parallel sizes, or the platform's number without any."""
    found = {
        setting.path[0]: int(setting.value)
        for setting in policies.settings(run.platform.serve.args + arm_flags(arm))
        if setting.path[0] in PARALLEL and setting.value.isdecimal()
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
