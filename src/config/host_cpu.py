"""Features of the CPU that the workflow is planned on, and arms that vLLM does not start without one of them.

vLLM's CPU backend comes in several builds in one wheel and takes the one that fits the host: what it serves differs
between them (FP8 KV caches: AVX-512 or AMX only, vllm/v1/attention/backends/cpu_attn.py).
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from adrbench.config.arm import Arm
from adrbench.config.platform import Platform

VARIABLE = "ADRBENCH_CPU_FEATURES"
CPUINFO = Path("/proc/cpuinfo")


@cache
def own_features(path: Path = CPUINFO) -> frozenset[str]:
    """Flags of this host's first processor, as the kernel names them; empty where it tells none."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return frozenset()
    named = (line.partition(":")[2] for line in lines if line.partition(":")[0].strip() in ("flags", "Features"))
    return frozenset(next(named, "").split())


def features() -> frozenset[str]:
    """Of this host; ``ADRBENCH_CPU_FEATURES`` (names between spaces, or empty for none) says those of another."""
    said = os.environ.get(VARIABLE)
    return own_features() if said is None else frozenset(said.split())


def adapted(arm: Arm, has: frozenset[str]) -> Arm:
    """The arm as a CPU with these features serves it: one that it cannot serve must refuse to start, and is tried."""
    needs = arm.cpu_needs
    if needs is None or arm.expect_failure is not None or has & set(needs.any_of):
        return arm
    return arm.model_copy(update={"expect_failure": needs.refusal})


def unserved(arm: Arm) -> str:
    """Why an arm that must refuse to start does, in words."""
    if arm.cpu_needs is not None and arm.expect_failure == arm.cpu_needs.refusal:
        return f"it needs {' or '.join(arm.cpu_needs.any_of)}, which this host's CPU lacks"
    return f"expect_failure: {arm.expect_failure}"


def for_this_host(platform: Platform) -> Platform:
    """The platform with its arms as this host's CPU serves them; unchanged where vLLM computes on another device.

    An arm that it cannot serve is not profiled either.
    """
    if platform.device.vendor != "cpu":
        return platform
    has = features()
    arms = [adapted(arm, has) for arm in platform.arms]
    lost = {arm.name for arm, declared in zip(arms, platform.arms, strict=True) if arm is not declared}
    profile = platform.profile.model_copy(update={"arms": [arm for arm in platform.profile.arms if arm not in lost]})
    return platform.model_copy(update={"arms": arms, "profile": profile})
