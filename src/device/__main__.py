"""Device verification: what the host is, whether it is the declared platform, and the FP8 self-check.

    python -m adrbench.device --spec SPEC --output results/<platform>/device.json

SPEC is ``refuse.Spec`` as JSON: ``platform``, ``declared`` {vendor, arch, devices, memory_gib},
``serve_python`` (absolute path), and optionally ``needs_vllm``, ``vllm_version``, ``declared_in``, ``environment``,
``limit_s``.

Runs in the analysis interpreter; torch and vLLM answer from the serving interpreter, as a subprocess.
Nothing serves on a platform whose device check did not pass.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from adrbench import evidence
from adrbench.device import probe, rules, serving
from adrbench.device.identify import Found, identify
from adrbench.device.refuse import Spec, require_fp8, require_identity, require_platform, require_serving
from adrbench.device.tools import Probe
from adrbench.job import JobError, run, say
from pydantic import ValidationError

UNVERIFIED = {
    "hygon": "unverified on DCU: the DCU probes were written from recorded outputs and replayed, not run on a card",
    "amd": "unverified on AMD GPUs: their probes were written from recorded outputs and replayed, not run on a card",
}


def _tell(result: Probe) -> None:
    say(f"{result.name:<20} {result.status:<9} {result.summary}")


def parse(asked: dict[str, Any]) -> Spec:
    """The specification, checked.

    Raises:
        JobError: ``bad-spec``, naming the key.
    """
    try:
        spec = Spec.model_validate(asked)
        rules.vendor(spec.declared.arch)
    except ValidationError as error:
        keys = (f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
        raise JobError("bad-spec", "; ".join(keys)) from None
    except ValueError as error:
        raise JobError("bad-spec", f"declared.arch: {error}") from None
    return spec


def resolved(found: Found, record: dict[str, Any], verdict: dict[str, Any]) -> dict[str, Any]:
    """What the platform turned out to be, flat, for reports to look up."""
    torch, vllm = record.get("torch") or {}, record.get("vllm") or {}
    runtimes = ((name, torch.get(name.lower())) for name in ("HIP", "CUDA"))
    aiter = bool(vllm.get("aiter"))
    return {
        "vendor": found.vendor,
        "arch": found.arch,
        "name": found.name,
        "host_vendors": list(found.host_vendors),
        "driver": found.driver,
        # A CUDA build of torch on a host without a device still computes on the CPU.
        "runtime": "CPU" if found.vendor == "cpu" else next((f"{n} {v}" for n, v in runtimes if v), "CPU"),
        "python": record["python"]["version"],
        "torch": torch.get("version"),
        "vllm": vllm.get("version"),
        "vllm_platform": vllm.get("platform"),
        "vllm_platform_class": vllm.get("platform_class"),
        "packages": record.get("packages", {}),
        "fp8_dtype": verdict.get("resolved_dtype"),
        "kv_cache_dtypes": vllm.get("kv_cache_dtypes"),
        "attention_backends": vllm.get("attention_backends"),
        "aiter": vllm.get("aiter"),
        "candidate_backends": list(rules.candidates(found.arch, aiter=aiter)) if found.arch else [],
    }


def save_raw(output: Path, probes: list[Probe]) -> list[str]:
    """What each probe said, word for word, beside the evidence, in place of an earlier run's; the file names."""
    shutil.rmtree(evidence.raw_folder(output), ignore_errors=True)
    names = []
    for number, one in enumerate(probes):
        if one.raw:
            names.append(f"{number:02d}-{one.name.strip('/').replace('/', '-').replace(' ', '-')}.txt")
            evidence.write_text(evidence.raw_folder(output) / names[-1], one.raw)
    return names


def notes(spec: Spec, found: Found, verdict: dict[str, Any]) -> list[str]:
    """What a reader of the evidence must know beside its numbers."""
    found_notes = [UNVERIFIED[found.vendor]] if found.vendor in UNVERIFIED else []
    if verdict["status"] == "not_run":
        found_notes.append(f"FP8 self-check not run: {'; '.join(verdict['problems'])}")
    unused = [vendor for vendor in found.host_vendors if vendor != found.vendor]
    if unused:
        found_notes.append(f"the host also has {', '.join(unused)}, which {spec.serve_python} does not use")
    return found_notes


def work(asked: dict[str, Any], output: Path) -> None:
    """Probe, compare with the declaration, check FP8, write the evidence."""
    started = evidence.now()
    spec = parse(asked)
    probes = probe.probe_host(tell=_tell)
    say(f"asking {spec.serve_python} (importing vLLM takes a while)")
    record, ended = serving.ask(spec.serve_python, spec.limit_s, spec.environment)
    probes.append(serving.as_probe(spec.serve_python, record, ended))
    _tell(probes[-1])
    names = save_raw(output, probes)
    require_serving(spec, record, probes[-1])
    found = identify(probes, record, spec.declared.vendor)
    require_platform(spec, found, record)
    require_identity(spec, found)
    verdict = require_fp8(spec, record)
    measured = {
        "devices": [dict(device) for device in found.devices],
        "cpu": next((p.facts for p in probes if p.name == "/proc/cpuinfo"), {}),
        "probes": [one.record() for one in probes],
        "fp8": verdict,
        "seen_by": list(found.evidence),
    }
    evidence.write(
        output,
        evidence.Evidence(
            stage="device",
            platform=spec.platform,
            asked=asked,
            resolved=resolved(found, record, verdict),
            measured=measured,
            files=evidence.digest_raw(output, names),
            notes=notes(spec, found, verdict),
            started_at=started,
            finished_at=evidence.now(),
        ),
    )
    count = len(found.devices)
    say(f"{spec.platform}: {found.vendor} {found.arch}, {count} x {found.name}; FP8 self-check {verdict['status']}")


if __name__ == "__main__":
    run("device", work)
