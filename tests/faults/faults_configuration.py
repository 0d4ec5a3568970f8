"""The tiny configuration of the matrix, and the specifications of its jobs as the rules build them."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from adrbench import config as configuration
from adrbench.config import jobs
from adrbench.config.load import Run
from adrbench.paths import ROOT
from faults_scene import R

# What a finished run has measured, with all that these rest on.
TARGETS = (
    "model",
    "kernels",
    "serve/auto/r1/short",
    "serve/fp8-e4m3/r1/short",
    "eval/auto",
    "profile/auto",
    "integrate/L3",
)
PLATFORM = yaml.safe_load((ROOT / "config/platforms/cpu.yaml").read_text())


def tiny() -> dict[str, Any]:
    """The CPU platform with two arms and the least work that still runs every stage; answers one at a time, so that
    two runs give the same scores."""
    platform = copy.deepcopy(PLATFORM)
    platform["arms"] = platform["arms"][:2]
    platform["serve"] |= {"baseline_rounds": 1, "warmup_requests": 1}
    platform["tiers"] = [
        {"name": "short", "input_tokens": [64, 128], "output_tokens": 16, "prompts": 8, "concurrency": 2}
    ]
    platform["eval"] |= {"control": False, "concurrency": 1}
    platform["eval"]["tasks"] = [
        task | {"samples": 2, "length_tokens": 512, "max_new_tokens": 24} for task in platform["eval"]["tasks"]
    ]
    platform["profile"] = {"workload": {"requests": 2, "input_tokens": 128, "output_tokens": 32, "concurrency": 2}}
    return platform


def write_configuration(folder: Path, platform: dict[str, Any]) -> Path:
    """Configuration values that name a platform folder of their own."""
    (folder / "platforms").mkdir(parents=True, exist_ok=True)
    (folder / "platforms/cpu.yaml").write_text(yaml.safe_dump(platform, allow_unicode=True))
    values = folder / "values.yaml"
    values.write_text(yaml.safe_dump({"platforms": str(folder / "platforms")}))
    return values


def load(values: Path) -> Run:
    main = yaml.safe_load((ROOT / "config/config.yaml").read_text())
    return configuration.load(main | yaml.safe_load(values.read_text()))


def specification(run: Run, folder: Path, model: Path, python: str) -> Callable[[str, str], dict[str, Any]]:
    """Specifications of a working folder's jobs, as the rules build them."""

    def spec(stage: str, arm: str) -> dict[str, Any]:
        found = run.platform.arm(arm)
        made: dict[str, Callable[[], dict[str, Any]]] = {
            "device": lambda: jobs.device(run, python),
            "model": lambda: jobs.model(run, str(folder / "models/cpu"), python),
            "serve": lambda: jobs.serve(run, found, 1, str(model), python, f"{R}/model.json"),
            "eval": lambda: jobs.accuracy(run, found, str(model), python, run.python("eval"), f"{R}/model.json"),
            "profile": lambda: jobs.profile(run, found, str(model), python, f"{R}/ceiling.json"),
        }
        return made[stage]()

    return spec


def quick_specification(run: Run, folder: Path, standin: str) -> Callable[[str, str], dict[str, Any]]:
    """As ``specification``; the device job describes the host without asking the stand-in for torch and vLLM."""
    spec = specification(run, folder, folder / "models/cpu", standin)
    host = {"needs_vllm": False, "vllm_version": None, "serve_python": sys.executable}
    return lambda stage, arm: spec(stage, arm) | (host if stage == "device" else {})
