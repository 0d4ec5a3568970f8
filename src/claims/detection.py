"""Detection checks: what the project's readers make of a tool's published output, and what its rules then expect.

Samples are in ``data/detection.yaml``. A check runs the code of ``adrbench.device`` that ``verify`` runs on a
host, so a sample that is no longer understood shows as a claim that no longer holds. No card is involved.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml
from adrbench.claims.registry import Context, Finding, check
from adrbench.device import listings, rules, smi, smijson
from adrbench.device.identify import identify
from adrbench.device.tools import Probe

PATHS = ("/dev/kfd", "/dev/mkfd", "/opt/hyhal")


@cache
def _samples(path: Path) -> dict[str, dict[str, Any]]:
    return dict(yaml.safe_load(path.read_text(encoding="utf-8")))


def _management(text: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Cards of hy-smi's output in any of its forms, and what was wrong with its JSON."""
    try:
        value, problems = smijson.read(text)
        return smi.from_json(value), problems
    except smijson.Unreadable as error:
        return smi.from_lines(text) or smi.from_table(text), [str(error)]


def probes(sample: dict[str, Any]) -> list[Probe]:
    """The host's probes that a sample gives text for, as ``adrbench.device.probe`` would make them."""
    found = [Probe(path, "ok", "", facts={"path": path}) for path in sample.get("paths", []) if path in PATHS]
    if "lsmod" in sample:
        found.append(Probe("lsmod", "ok", "", facts={"modules": listings.lsmod(sample["lsmod"])}))
    if "lspci" in sample:
        found.append(Probe("lspci", "ok", "", facts={"accelerators": listings.lspci(sample["lspci"])}))
    if text := sample.get("rocminfo"):
        facts = {"agents": listings.rocminfo(text), "hygon": smi.names_hygon(text)}
        found.append(Probe("rocminfo", "ok", "", facts=facts))
    if text := sample.get("hy-smi"):
        cards, problems = _management(text)
        facts = {"cards": cards, "hygon": smi.names_hygon(text), "problems": problems}
        found.append(Probe("hy-smi", "malformed" if problems else "ok", "", facts=facts))
    return found


def serving(sample: dict[str, Any]) -> dict[str, Any]:
    """What the serving interpreter would say: torch's devices, with the architecture as this project reads it."""
    torch = sample.get("torch")
    if torch is None:
        return {}
    devices = [
        {"index": d["index"], "name": d["name"], "arch": listings.plain_arch(d["gcn_arch"])} for d in torch["devices"]
    ]
    return {"torch": torch | {"devices": devices}}


@check("detected", kind="derived", gives="vendor arch name driver hosts conflicts problems")
def detected(context: Context, sample: str, wanted: str = "amd") -> Finding:
    """Vendor and architecture that the project finds on a host of which only this sample is known.

    ``wanted`` is the declared vendor, which decides only where the probes leave it open; ``hosts`` are the
    vendors that the host's own tools name, ``problems`` what had to be repaired in a tool's output.
    """
    known = _samples(context.data / "detection.yaml")
    if sample not in known:
        raise ValueError(f"{context.data / 'detection.yaml'}: no sample {sample!r}; there are: {', '.join(known)}")
    seen = probes(known[sample])
    said = serving(known[sample])
    found = identify(seen, said, wanted)
    problems = [text for probe in seen for text in probe.facts.get("problems", [])]
    values: dict[str, Any] = {
        "vendor": found.vendor,
        "arch": found.arch,
        "name": found.name,
        "driver": found.driver,
        "hosts": list(found.host_vendors),
        "conflicts": list(found.conflicts),
        "problems": problems,
    }
    text = f"{sample}: vendor {found.vendor}, architecture {found.arch}, card {found.name}; {'; '.join(found.evidence)}"
    return Finding(values, text, f"src/device on config/claims/data/detection.yaml, {sample}")


@check(
    "device-rules", kind="derived", gives="candidates candidates_with_aiter fp8 maximum scale_maximum aiter_fa reason"
)
def device_rules(_context: Context, arch: str) -> Finding:
    """What the project's rules expect of an architecture: backends worth an arm, FP8 format, ROCM_AITER_FA's outcome.

    ``aiter_fa`` is ``valid``, or ``refused``, which a smoke test must then see with ``reason``.

    Raises:
        ValueError: a word that is no architecture, such as a card's marketing name.
    """
    fp8, asked = rules.fp8(arch), rules.backend(arch, "ROCM_AITER_FA", aiter=True)
    values: dict[str, Any] = {
        "candidates": list(rules.candidates(arch)),
        "candidates_with_aiter": list(rules.candidates(arch, aiter=True)),
        "fp8": fp8.dtype,
        "maximum": fp8.maximum,
        "scale_maximum": fp8.scale_maximum,
        "aiter_fa": asked.outcome,
        "reason": asked.reason,
    }
    text = f"{arch}: {', '.join(values['candidates'])}; {fp8.dtype} to {fp8.maximum:g}; ROCM_AITER_FA {asked.outcome}"
    return Finding(values, text, "src/device/rules.py")


@check("no-architecture", kind="derived", gives="refused error")
def no_architecture(_context: Context, word: str) -> Finding:
    """Whether the rules refuse a word that is a card's name and not an architecture."""
    try:
        rules.vendor(word)
    except ValueError as error:
        return Finding({"refused": True, "error": str(error)}, str(error), "src/device/rules.py")
    return Finding({"refused": False, "error": None}, f"{word!r} is taken as an architecture", "src/device/rules.py")
