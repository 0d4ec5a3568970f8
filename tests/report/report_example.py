"""The example as files: evidence, verdict, history and lock below a folder, and the specifications over them.

Its documents are those of ``report_example_stages.py``, ``report_example_profile.py``, ``report_example_verdict.py``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml
from adrbench.evidence import Evidence, write, write_json
from adrbench.paths import ROOT
from report_example_profile import ceiling, counters, profile
from report_example_stages import (
    SPEED,
    TIERS,
    both,
    claim,
    claims,
    decision,
    device,
    evaluation,
    integration,
    integrations,
    kernels,
    model,
    platform,
    serve,
)
from report_example_verdict import history, lock, verdict


def singles(claim_file: Path) -> dict[str, Evidence]:
    """Evidence that a platform has once."""
    return {
        "device": device(),
        "model": model(),
        "kernels": kernels(),
        "ceiling": ceiling(),
        "profile": profile(),
        "counters": counters(),
        **integrations(),
        "claims": claims(claim_file),
    }


def write_refusal(path: Path, text: str) -> None:
    """Evidence of a server that refused to start, as it must."""
    write(path, integration("rocm-aiter-fa", measured={"refused": True, "text": text}))


def build(folder: Path, adr: str = "adr0011", language: str = "en") -> dict[str, Any]:
    """Write the evidence below ``folder``; the report's specification as JSON data."""
    results = folder / "results" / "cpu"
    found: dict[str, Any] = {"serve": {}, "eval": {}, "integrate": {}, "profile": {}}
    for arm in SPEED:
        for number in (1, 2) if arm == "auto" else (1,):
            for tier in TIERS:
                path = results / "serve" / arm / f"r{number}" / f"{tier}.json"
                write(path, serve(arm, number, tier))
                found["serve"].setdefault(arm, {}).setdefault(str(number), {})[tier] = str(path)
        found["eval"][arm] = str(results / "eval" / f"{arm}.json")
        write(results / "eval" / f"{arm}.json", evaluation(arm))
    claim_file = folder / "claims.yaml"
    entry = {"id": "ADR0011-C-int8-flag", "statement": {"en": "flag `int8`", "zh": "接 `int8`"}}
    claim_file.write_text(yaml.safe_dump({"claims": [entry]}))
    for name, document in singles(claim_file).items():
        path = results / f"{name}.json"
        write(path, document)
        if name in ("L1", "L2", "L3"):
            found["integrate"][name] = str(path)
        elif name == "profile":
            found["profile"]["auto"] = str(path)
        elif name == "counters":
            found["counters"] = {"auto": str(path)}
        else:
            found[name] = str(path)
    found["history"] = str(results / "history" / f"{adr}.json")
    write_json(results / "history" / f"{adr}.json", history(adr))
    folder_of_lock = folder / "reports" / "cpu" / "lock" / adr
    found["lock"] = str(folder_of_lock / "lock.json")
    write_json(folder_of_lock / "lock.json", lock(adr))
    for name in ("serve.sh", "RESTORE.md"):
        (folder_of_lock / name).write_text("made by a test\n")
    found["decide"] = str(results / "decide" / f"{adr}.json")
    write_json(results / "decide" / f"{adr}.json", verdict(adr))
    for number, reason in enumerate(("incomplete", "incomplete", "client-bound")):
        record = {
            "stage": "serve",
            "reason": reason,
            "message": f"tier short: {number} of 16 | failed",
            "at": f"2026-11-29T17:0{number}",
        }
        write_json(results / "rejected" / f"serve-{number}.json", record)
    return {
        "platform": platform().model_dump(mode="json"),
        "decision": decision(adr),
        "adr": adr,
        "language": language,
        "evidence": found,
        "rejected": str(results / "rejected"),
        "languages": ["en", "zh"],
        "figures": _figures(folder),
    }


def _figures(folder: Path) -> dict[str, str]:
    """Files in the place of figures; a report only links to them."""
    names = {
        name: folder / "reports" / "cpu" / "figures" / f"{name}.svg" for name in ("roofline", "shares", "bandwidth")
    }
    for path in names.values():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    return {name: str(path) for name, path in names.items()}


def site(folder: Path, adrs: tuple[str, ...] = ("adr0011", "adr0010")) -> dict[str, Any]:
    """Write the evidence of several decisions below ``folder``; the page's specification as JSON data."""
    specs = [build(folder, adr) for adr in adrs]
    claims = folder / "results/cpu/claims.json"
    claim_file = ROOT / "config/claims/adr0011.yaml"
    entries = yaml.safe_load(claim_file.read_text(encoding="utf-8"))["claims"][:40]
    own = folder / "claims/adr0011.yaml"
    own.parent.mkdir(exist_ok=True)
    own.write_text(yaml.safe_dump({"claims": entries}, allow_unicode=True), encoding="utf-8")
    words = ("holds", "false", "moved", "imprecise", "unverified")
    document = json.loads(claims.read_text(encoding="utf-8"))
    document["measured"]["verdicts"] |= {
        entry["id"]: claim(words[n % 5], f"found in place {n}", f"vllm/x.py:{n}", both(f"corrected {n}"))
        | {"needs": both("a device") if words[n % 5] == "unverified" else None}
        for n, entry in enumerate(entries)
    }
    write_json(claims, document)
    return {
        "platform": specs[0]["platform"],
        "decisions": [{key: spec[key] for key in ("adr", "decision", "evidence")} for spec in specs],
        "rejected": specs[0]["rejected"],
        "claim_files": [str(own)],
    }
