"""From probes to one answer: which device would serve here, and is it the declared one?

The answer is keyed on the architecture that the runtime reports. A card's name is carried along for
the reader and decides nothing: K100 and K100_AI are different architectures, MI300X and MI325X the
same one, and a marketing name says neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from adrbench.device.rules import HYGON_ARCHS
from adrbench.device.tools import Probe
from pydantic import BaseModel, ConfigDict, Field

GIB = 1 << 30
# A card's nominal size and what its runtime reports differ by a few per cent (H200: 141 GB is 139.8 GiB); the next size
# of the same architecture is at least a third away (MI300X 192, MI325X 256).
MEMORY_TOLERANCE = 0.10


class Declared(BaseModel):
    """What the platform file says the host is.

    ``memory_gib`` is per device; on a CPU it is the least that must be there.
    """

    model_config = ConfigDict(extra="forbid")

    vendor: Literal["cpu", "nvidia", "amd", "hygon"]
    arch: str
    devices: int = Field(1, ge=1)
    memory_gib: float | None = Field(None, gt=0)


@dataclass(frozen=True)
class Found:
    """What would serve: ``vendor`` and ``arch`` of the devices in ``devices`` (index, name, arch, memory_bytes, ...).

    ``host_vendors`` are the accelerators that the host carries, whoever uses them; ``evidence`` says
    which probe said what; ``conflicts`` are probes that contradict each other.
    """

    vendor: str
    arch: str | None
    devices: tuple[dict[str, Any], ...]
    host_vendors: tuple[str, ...] = ()
    driver: str | None = None
    evidence: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = field(default=())

    @property
    def name(self) -> str | None:
        return self.devices[0].get("name") if self.devices else None


def _facts(probes: Iterable[Probe], name: str) -> dict[str, Any]:
    return next((p.facts for p in probes if p.name == name and p.facts), {})


def host_vendors(probes: Sequence[Probe]) -> dict[str, list[str]]:
    """Accelerator vendors on the host, each with the probes that say so."""
    said: dict[str, list[str]] = {}

    def say(vendor: str, why: str) -> None:
        said.setdefault(vendor, []).append(why)

    for name in ("/dev/mkfd", "/opt/hyhal"):
        if _facts(probes, name):
            say("hygon", name)
    for module, vendor in _facts(probes, "lsmod").get("modules", {}).items():
        say(vendor, f"module {module}")
    for device in _facts(probes, "lspci").get("accelerators", []):
        say(device["vendor"], f"PCI {device['id']}")
    rocminfo = _facts(probes, "rocminfo")
    for agent in rocminfo.get("agents", []):
        say("hygon" if rocminfo["hygon"] or agent["arch"] in HYGON_ARCHS else "amd", f"rocminfo {agent['arch']}")
    for tool in ("hy-smi", "rocm-smi"):
        facts = _facts(probes, tool)
        if facts.get("cards"):
            say(
                "hygon" if tool == "hy-smi" or facts["hygon"] else "amd",
                f"{tool} {facts['cards'][0].get('name', 'card')}",
            )
    if cards := _facts(probes, "nvidia-smi").get("cards"):
        say("nvidia", f"nvidia-smi {cards[0]['name']}")
    return said


def _rocm_vendor(hosts: Iterable[str], torch: Mapping[str, Any]) -> str:
    version = str(torch.get("version") or "")
    archs = {device["arch"] for device in torch.get("devices", [])}
    dcu = "hygon" in hosts or archs & set(HYGON_ARCHS) or "das" in version or "dtk" in version
    return "hygon" if dcu else "amd"


def serving_vendor(hosts: Iterable[str], serving: Mapping[str, Any]) -> str | None:
    """Vendor of the device that the serving interpreter would use; None when it does not say."""
    torch, vllm = serving.get("torch") or {}, serving.get("vllm") or {}
    kind = vllm.get("platform")
    if kind is None and torch.get("devices"):
        kind = "rocm" if torch.get("hip") else "cuda"
    if kind == "rocm":
        return _rocm_vendor(hosts, torch)
    return {"cpu": "cpu", "cuda": "nvidia"}.get(str(kind))


def _cards(probes: Sequence[Probe], vendor: str) -> list[dict[str, Any]]:
    """Devices from the host's tools alone: for an interpreter without torch, and for drivers and total memory."""
    if vendor == "nvidia":
        return list(_facts(probes, "nvidia-smi").get("cards", []))
    agents = _facts(probes, "rocminfo").get("agents", [])
    cards: list[dict[str, Any]] = next(
        (c for tool in ("hy-smi", "rocm-smi") if (c := _facts(probes, tool).get("cards"))), []
    )
    merged = [{"index": i, **agent} for i, agent in enumerate(agents)]
    if len(cards) >= len(merged):
        merged = [{**(merged[i] if i < len(merged) else {}), **card} for i, card in enumerate(cards)]
    by_pci = [
        d["arch"] for d in _facts(probes, "lspci").get("accelerators", []) if d["vendor"] == vendor and "arch" in d
    ]
    for device in merged:
        if "arch" not in device and len(set(by_pci)) == 1:
            device["arch"] = by_pci[0]
    return merged


def _conflicts(probes: Sequence[Probe], vendor: str, arch: str | None) -> list[str]:
    seen = {agent["arch"] for agent in _facts(probes, "rocminfo").get("agents", [])}
    if vendor in ("amd", "hygon") and arch and seen and arch not in seen:
        return [f"torch reports {arch}, rocminfo {', '.join(sorted(seen))} (is HSA_OVERRIDE_GFX_VERSION set?)"]
    return []


def identify(probes: Sequence[Probe], serving: Mapping[str, Any], wanted: str) -> Found:
    """The device that would serve. ``wanted`` (the declared vendor) decides only where nothing else does: an
    interpreter without vLLM on a host with several vendors, or with an accelerator that a CPU run may ignore."""
    hosts = host_vendors(probes)
    evidence = [f"{vendor}: {', '.join(dict.fromkeys(why))}" for vendor, why in hosts.items()]
    vendor = serving_vendor(hosts, serving)
    if not serving.get("vllm") and wanted == "cpu":
        vendor = "cpu"
    elif vendor is None:
        vendor = wanted if wanted in hosts else next(iter(hosts), "cpu")
    if vendor == "cpu":
        cpu = _facts(probes, "/proc/cpuinfo")
        one = {"index": 0, "name": cpu.get("model"), "arch": cpu.get("arch"), "memory_bytes": cpu.get("memory_bytes")}
        return Found("cpu", cpu.get("arch"), (one,), tuple(hosts), None, tuple(evidence))
    cards = _cards(probes, vendor)
    devices = [dict(d) for d in (serving.get("torch") or {}).get("devices", [])] or cards
    arch = devices[0].get("arch") if devices else None
    if (serving.get("torch") or {}).get("devices"):
        evidence.append(f"torch: {arch}")
    driver = next((card["driver"] for card in cards if card.get("driver")), None)
    return Found(
        vendor, arch, tuple(devices), tuple(hosts), driver, tuple(evidence), tuple(_conflicts(probes, vendor, arch))
    )


def _memory_mismatch(declared: Declared, found: Found) -> tuple[str, str, str] | None:
    size = found.devices[0].get("memory_bytes") if found.devices else None
    if declared.memory_gib is None or not size:
        return None
    ratio = size / GIB / declared.memory_gib
    if ratio < 1 - MEMORY_TOLERANCE or (found.vendor != "cpu" and ratio > 1 + MEMORY_TOLERANCE):
        remedy = (
            "one architecture comes in several sizes, and a process sees one die of a two-die module (MI250X: 64 GiB)"
        )
        return f"{declared.memory_gib:g} GiB", f"{size / GIB:.1f} GiB on {found.name}", remedy
    return None


def mismatches(declared: Declared, found: Found) -> list[tuple[str, str, str, str]]:
    """(key, declared, found, hint) for everything in which the host is not the declared platform; empty when it is."""
    if declared.vendor != found.vendor:
        hint = "the serving interpreter decides: name one whose vLLM is built for the declared vendor"
        if declared.vendor not in (*found.host_vendors, "cpu"):
            hint = f"no probe sees a device of vendor {declared.vendor} here"
        return [("vendor", declared.vendor, f"{found.vendor} ({found.arch}, {found.name})", hint)]
    wrong = []
    if found.arch != declared.arch:
        hint = "rules, FP8 format and kernels follow the architecture"
        wrong.append(("arch", declared.arch, f"{found.arch} ({found.name})", hint))
    if len(found.devices) < declared.devices:
        hint = "check the visible-devices variable and the container's --device options"
        wrong.append(("devices", str(declared.devices), str(len(found.devices)), hint))
    if memory := _memory_mismatch(declared, found):
        wrong.append(("memory_gib", *memory))
    return wrong
