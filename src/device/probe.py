"""What the host is: files, kernel modules, PCI, and the vendors' tools, cheapest first.

Every probe runs whatever the others found: a host may carry parts of several vendors, and a probe
that contradicts another is a finding. Order and meaning: claims C3. Unverified on DCU: the DCU
probes have only been replayed from recorded outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from adrbench.device import listings, processor, smi, smijson
from adrbench.device.tools import Probe, first_line, run_tool, unread

ROOT = Path("/")

# Seconds. hy-smi and rocm-smi are Python programs that start slowly; nvidia-smi loads the driver when no
# process holds it, which takes several seconds on a host with eight cards.
LIMITS_S = {"lsmod": 5.0, "lspci": 10.0, "rocminfo": 20.0, "hy-smi": 20.0, "rocm-smi": 20.0, "nvidia-smi": 30.0}

SMI_ARGUMENTS = ("--showproductname", "--showmeminfo", "vram", "--showdriverversion", "--json")


def path_probe(name: str, root: Path, meaning: str, *others: str) -> Probe:
    """Whether a path exists, or one of its ``others`` (older or versioned places)."""
    found = next((p for n in (name, *others) for p in sorted(root.glob(n.lstrip("/")))), None)
    if found is None:
        return Probe(name, "absent", "no such path")
    return Probe(name, "ok", meaning, facts={"path": "/" + str(found.relative_to(root))})


def modules(root: Path, limit_s: float) -> Probe:
    """``lsmod``, or the file that it would read (a container often lacks the program)."""
    command, output = run_tool("lsmod", (), limit_s, root)
    text = output.text if output.status == "ok" else processor.text_of(root / "proc/modules")
    if text is None:
        return unread("lsmod", command, output)
    loaded = listings.lsmod(text)
    words = ", ".join(sorted(loaded)) or "no accelerator module"
    if output.status != "ok":
        words = f"lsmod {output.status}; read /proc/modules: {words}"
    status = output.status if output.status != "absent" else "ok"
    return Probe("lsmod", status, words, command, output.seconds, {"modules": loaded}, text)


def _pci_from_sysfs(root: Path) -> list[dict[str, Any]] | None:
    folder = root / "sys/bus/pci/devices"
    if not folder.is_dir():
        return None
    found = []
    for function in sorted(folder.iterdir()):
        kind, vendor, device = (
            (processor.text_of(function / name) or "").strip().removeprefix("0x")
            for name in ("class", "vendor", "device")
        )
        if one := listings.accelerator(function.name, kind[:4], vendor, device):
            found.append(one)
    return found


def pci(root: Path, limit_s: float) -> Probe:
    """``lspci -nn``, or sysfs where that program is absent or fails."""
    command, output = run_tool("lspci", ("-nn",), limit_s, root)
    listed = listings.lspci(output.text) if output.status == "ok" else _pci_from_sysfs(root)
    if listed is None:
        return unread("lspci", command, output)
    source = "" if output.status == "ok" else f"lspci {output.status}; read /sys/bus/pci: "
    words = ", ".join(f"{d['vendor']} [{d['id']}]" for d in listed) or "no accelerator"
    status = output.status if output.status != "absent" else "ok"
    return Probe("lspci", status, source + words, command, output.seconds, {"accelerators": listed}, output.text)


def rocm_agents(root: Path, limit_s: float) -> Probe:
    """``rocminfo``: the architecture as the runtime sees it."""
    command, output = run_tool("rocminfo", (), limit_s, root)
    if output.status != "ok":
        return unread("rocminfo", command, output)
    agents = listings.rocminfo(output.text)
    facts = {"agents": agents, "hygon": smi.names_hygon(output.text)}
    if not agents:
        return Probe(
            "rocminfo",
            "malformed",
            f"no GPU agent: {first_line(output.text)}",
            command,
            output.seconds,
            facts,
            output.text,
        )
    words = ", ".join(f"{a['arch']} {a.get('name', '')}".strip() for a in agents)
    return Probe("rocminfo", "ok", words, command, output.seconds, facts, output.text)


def management(name: str, root: Path, limit_s: float) -> Probe:
    """``hy-smi`` or ``rocm-smi``: JSON, repaired where it has one reading, else the table it prints without options."""
    command, output = run_tool(name, SMI_ARGUMENTS, limit_s, root)
    if output.status in ("absent", "timeout"):
        return unread(name, command, output)
    problems: list[str] = []
    cards: list[dict[str, Any]] = []
    if output.status == "ok":
        try:
            value, problems = smijson.read(output.text)
            cards = smi.from_json(value)
        except smijson.Unreadable as error:
            problems = [str(error)]
    raw = output.text
    if not cards:
        cards = smi.from_lines(output.text)
    if not cards:
        command, plain = run_tool(name, (), limit_s, root)
        cards, raw = smi.from_table(plain.text), raw + plain.text
    if not cards and output.status == "failed":
        return unread(name, command, output)
    facts = {"cards": cards, "hygon": smi.names_hygon(raw), "problems": problems}
    words = smi.summary(cards) + "".join(f"; {p}" for p in problems)
    good = output.status == "ok" and cards and not problems
    return Probe(name, "ok" if good else "malformed", words, command, output.seconds, facts, raw)


def nvidia(root: Path, limit_s: float) -> Probe:
    """``nvidia-smi`` by query, whose columns are stable, unlike its table."""
    arguments = (f"--query-gpu={','.join(listings.NVIDIA_FIELDS)}", "--format=csv,noheader,nounits")
    command, output = run_tool("nvidia-smi", arguments, limit_s, root)
    if output.status != "ok":
        return unread("nvidia-smi", command, output)
    try:
        cards = listings.nvidia_smi(output.text)
    except ValueError as error:
        return Probe(
            "nvidia-smi", "malformed", f"{error}: {first_line(output.text)}", command, output.seconds, raw=output.text
        )
    return Probe(
        "nvidia-smi",
        "ok" if cards else "malformed",
        smi.summary(cards),
        command,
        output.seconds,
        {"cards": cards},
        output.text,
    )


def cpu(root: Path) -> Probe:
    """/proc/cpuinfo, the affinity mask and the control group."""
    text = processor.text_of(root / "proc/cpuinfo")
    if text is None:
        return Probe("/proc/cpuinfo", "absent", "not readable")
    facts = processor.describe(root)
    words = (
        f"{facts['model']}, {facts['cores_usable']} cores usable, {' '.join(facts['flags']) or 'no flag that matters'}"
    )
    return Probe("/proc/cpuinfo", "ok", words, facts=facts)


def host_probes(root: Path, limit_s: float | None) -> Iterator[Callable[[], Probe]]:
    def limit(name: str) -> float:
        return LIMITS_S[name] if limit_s is None else limit_s

    yield lambda: path_probe("/dev/kfd", root, "ROCm compute driver (AMD or Hygon)")
    yield lambda: path_probe("/dev/mkfd", root, "Hygon compute driver")
    yield lambda: path_probe("/opt/hyhal", root, "Hygon driver's user part", "/usr/local/hyhal")
    yield lambda: path_probe("/opt/dtk", root, "Hygon toolkit", "/opt/dtk-*")
    yield lambda: modules(root, limit("lsmod"))
    yield lambda: pci(root, limit("lspci"))
    yield lambda: rocm_agents(root, limit("rocminfo"))
    yield lambda: management("hy-smi", root, limit("hy-smi"))
    yield lambda: management("rocm-smi", root, limit("rocm-smi"))
    yield lambda: nvidia(root, limit("nvidia-smi"))
    yield lambda: cpu(root)


def probe_host(
    root: Path | None = None, limit_s: float | None = None, tell: Callable[[Probe], None] = lambda _: None
) -> list[Probe]:
    """All host probes in their order. ``limit_s`` replaces each program's own limit; ``tell`` hears of each result."""
    probes = []
    for run in host_probes(root or ROOT, limit_s):
        probes.append(run())
        tell(probes[-1])
    return probes
