"""The host's processor and memory, from /proc and /sys: pure readers and one probe."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path
from typing import Any

# What decides which matrix path a CPU build of torch and vLLM takes (x86, then Arm).
FLAGS_THAT_MATTER = (
    "avx2", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16",
    "asimd", "asimdhp", "asimddp", "bf16", "i8mm", "sve", "sve2",
)  # fmt: skip
CGROUP_LIMITS = ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes")
CGROUP_QUOTA = ("sys/fs/cgroup/cpu.max", "sys/fs/cgroup/cpu/cpu.cfs_quota_us")


def cpuinfo(text: str) -> dict[str, Any]:
    """Model name, flags that matter and clocks (MHz, one per processor) of /proc/cpuinfo."""
    fields: dict[str, str] = {}
    clocks = []
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon:
            fields.setdefault(key.strip().lower(), value.strip())
            if key.strip().lower() == "cpu mhz":
                clocks.append(float(value))
    flags = set((fields.get("flags") or fields.get("features") or "").split())
    model = fields.get("model name") or fields.get("hardware") or " ".join(
        f"{name} {fields[name.lower()]}" for name in ("CPU implementer", "CPU part") if name.lower() in fields
    )  # fmt: skip
    return {
        "model": model or "unknown",
        "flags": [flag for flag in FLAGS_THAT_MATTER if flag in flags],
        "hypervisor": "hypervisor" in flags,
        "clocks_mhz": clocks,
    }


def meminfo(text: str) -> dict[str, int]:
    """/proc/meminfo in bytes."""
    pairs = re.findall(r"^(\w+(?:\(\w+\))?):\s+(\d+) kB", text, re.MULTILINE)
    return {name: int(kib) * 1024 for name, kib in pairs}


def text_of(path: Path) -> str | None:
    """A file's text, or None when it cannot be read."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return None


def memory_limit_bytes(root: Path) -> int | None:
    """The control group's memory limit, or None when there is none (a huge number in version 1)."""
    for name in CGROUP_LIMITS:
        text = (text_of(root / name) or "").strip()
        if text.isdigit() and int(text) < 1 << 60:
            return int(text)
    return None


def quota_cores(root: Path) -> float | None:
    """Cores that the control group's quota allows, or None without a quota."""
    words = (text_of(root / CGROUP_QUOTA[0]) or "").split()
    if len(words) == 2 and words[0].isdigit():
        return int(words[0]) / int(words[1])
    quota, period = (text_of(root / CGROUP_QUOTA[1].replace("quota", word)) for word in ("quota", "period"))
    if quota and period and int(quota) > 0:
        return int(quota) / int(period)
    return None


def describe(root: Path = Path("/")) -> dict[str, Any]:
    """The processor as this process may use it: ``cores_usable`` honours the affinity mask, ``memory_bytes`` the
    control group's limit."""
    said = cpuinfo(text_of(root / "proc/cpuinfo") or "")
    total = meminfo(text_of(root / "proc/meminfo") or "").get("MemTotal")
    sizes = [size for size in (total, memory_limit_bytes(root)) if size]
    affinity = getattr(os, "sched_getaffinity", None)
    return {
        "model": said["model"],
        "arch": platform.machine(),
        "cores_usable": len(affinity(0)) if affinity else os.cpu_count(),
        "cores_present": os.cpu_count(),
        "quota_cores": quota_cores(root),
        "memory_bytes": min(sizes) if sizes else None,
        "flags": said["flags"],
        "hypervisor": said["hypervisor"],
        "kernel": platform.release(),
    }
