"""Readers of ``lspci -nn``, ``lsmod``, ``rocminfo`` and ``nvidia-smi``: text in, facts out."""

from __future__ import annotations

import csv
import re
from typing import Any

from adrbench.device.smi import MIB, number

PCI_VENDORS = {"1002": "amd", "10de": "nvidia", "1d94": "hygon"}
# A Hygon CPU puts 1d94 on every host bridge, an AMD one 1002 on its own parts: only these classes compute.
ACCELERATOR_CLASSES = ("0300", "0302", "0380", "0b40", "1200")
# Hygon device id -> architecture (claims C2; public lists, unverified on DCU).
HYGON_ARCH = {
    "54b7": "gfx906", "55b7": "gfx906", "62b7": "gfx926", "6210": "gfx928", "6211": "gfx928",
    "6320": "gfx936", "6370": "gfx936", "6430": "gfx938",
}  # fmt: skip
MODULES = {"amdgpu": "amd", "hydcu": "hygon", "hycu": "hygon", "nvidia": "nvidia"}

PCI_LINE = re.compile(
    r"^(?P<address>\S+)\s+(?P<kind>.+?)\s+\[(?P<class>[0-9a-f]{4})\]:\s+(?P<name>.*)\s"
    r"\[(?P<vendor>[0-9a-f]{4}):(?P<device>[0-9a-f]{4})\]"
)
AGENT = re.compile(r"^Agent \d+\s*$", re.MULTILINE)
ISA = re.compile(r"amdgcn-amd-amdhsa--(gfx[0-9a-f]+)(?=[:\s]|$)")
FIELD = re.compile(r"^[ \t]*(?P<key>[A-Za-z][\w ]*?):[ \t]+(?P<value>\S.*?)[ \t]*$", re.MULTILINE)
POOL = re.compile(r"Segment:\s+GLOBAL;[^\n]*\n\s*Size:\s+(\d+)\(0x[0-9a-f]+\) KB")

NVIDIA_FIELDS = (
    "index", "name", "uuid", "driver_version", "memory.total", "memory.used", "compute_cap", "power.limit",
    "mig.mode.current",
)  # fmt: skip


def accelerator(address: str, kind: str, vendor: str, device: str, name: str = "") -> dict[str, Any] | None:
    """One PCI function as an accelerator, or None when it is none of the three vendors' compute parts."""
    if vendor not in PCI_VENDORS or kind not in ACCELERATOR_CLASSES:
        return None
    found = {"address": address, "class": kind, "id": f"{vendor}:{device}", "vendor": PCI_VENDORS[vendor], "name": name}
    if vendor == "1d94" and device in HYGON_ARCH:
        found["arch"] = HYGON_ARCH[device]
    return found


def lspci(text: str) -> list[dict[str, Any]]:
    """Accelerators of ``lspci -nn``, by class code and vendor id and not by what the line calls them."""
    matches = (PCI_LINE.match(line) for line in text.splitlines())
    found = (accelerator(m["address"], m["class"], m["vendor"], m["device"], m["name"]) for m in matches if m)
    return [f for f in found if f]


def lsmod(text: str) -> dict[str, str]:
    """Accelerator kernel modules that are loaded: name -> vendor."""
    loaded = {line.split()[0] for line in text.splitlines() if line.split()}
    return {name: vendor for name, vendor in MODULES.items() if name in loaded}


def plain_arch(text: str) -> str:
    """``gfx942:sramecc+:xnack-`` -> ``gfx942``: the features behind the colon are not the architecture."""
    return text.split(":")[0].strip()


def rocminfo(text: str) -> list[dict[str, Any]]:
    """GPU agents of ``rocminfo``: architecture, names, memory.

    Output without agent headings (a cut log) still yields the architecture of its ISA lines. A
    ``...-generic`` ISA, which newer releases list beside the real one, is no architecture.
    """
    found = []
    for block in AGENT.split(text)[1:] or [text]:
        fields: dict[str, str] = {}
        for match in FIELD.finditer(block):
            fields.setdefault(match["key"], match["value"])
        isa = ISA.search(block)
        named = re.fullmatch(r"gfx[0-9a-f]+", plain_arch(fields.get("Name", "")))
        if not (isa or named):
            continue  # a processor: agents of that kind have no ISA
        agent: dict[str, Any] = {"arch": isa[1] if isa else plain_arch(fields["Name"])}
        for ours, theirs in (("name", "Marketing Name"), ("vendor_name", "Vendor Name")):
            if fields.get(theirs):
                agent[ours] = fields[theirs]
        if pools := [int(size) for size in POOL.findall(block)]:
            agent["memory_bytes"] = max(pools) * 1024
        if units := number(fields.get("Compute Unit", "")):
            agent["compute_units"] = int(units)
        found.append(agent)
    return found


def nvidia_smi(text: str) -> list[dict[str, Any]]:
    """Cards of ``nvidia-smi --query-gpu=<NVIDIA_FIELDS> --format=csv,noheader,nounits``.

    Raises:
        ValueError: when a line does not have one cell per field or an index that is no number.
    """
    cards = []
    for cells in csv.reader(text.splitlines(), skipinitialspace=True):
        said = dict(zip(NVIDIA_FIELDS, (cell.strip() for cell in cells), strict=True))
        one: dict[str, Any] = {"index": int(said["index"]), "name": said["name"], "uuid": said["uuid"],
                               "driver": said["driver_version"]}  # fmt: skip
        for name, key in (("memory_bytes", "memory.total"), ("memory_used_bytes", "memory.used")):
            if (mib := number(said[key])) is not None:
                one[name] = int(mib) * MIB
        if re.fullmatch(r"\d+\.\d+", said["compute_cap"]):
            one["arch"] = "sm_" + said["compute_cap"].replace(".", "")
        if (limit := number(said["power.limit"])) is not None:
            one["power_limit_w"] = limit
        if said["mig.mode.current"] in ("Enabled", "Disabled"):
            one["mig"] = said["mig.mode.current"] == "Enabled"
        cards.append(one)
    return cards
