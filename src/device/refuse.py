"""The device job's specification, and the refusals it makes: pure functions of what was probed.

Each raises ``JobError`` with a stable reason, and a text that names the platform file's key, what it
declares, what was found, and the remedy.
"""

from __future__ import annotations

from typing import Any

from adrbench.device import fp8, serving
from adrbench.device.identify import Declared, Found, mismatches
from adrbench.device.tools import Probe
from adrbench.job import JobError
from adrbench.paths import interpreter
from pydantic import BaseModel, ConfigDict, Field, field_validator


class Spec(BaseModel):
    """The job's specification.

    ``needs_vllm``: something will be served; false only describes the host. ``vllm_version``: the declared release, to
    be held against the real one (a vendor's local part such as ``+das.dtk2604`` may follow). ``declared_in``: the
    file that holds the declaration, for messages. ``environment``: variables that the server will run with.
    ``limit_s``: for the serving interpreter's answer.
    """

    model_config = ConfigDict(extra="forbid")

    platform: str
    declared: Declared
    serve_python: str
    needs_vllm: bool = True
    vllm_version: str | None = None
    declared_in: str | None = None
    environment: dict[str, str] = Field(default_factory=dict)
    limit_s: float = Field(serving.LIMIT_S, gt=0)

    @field_validator("serve_python")
    @classmethod
    def _known_interpreter(cls, value: str) -> str:
        return interpreter(value)

    def key(self, name: str) -> str:
        """Where the platform file declares ``name``."""
        return f"{self.declared_in or f'config/platforms/{self.platform}.yaml'}: {name}"


def require_serving(spec: Spec, record: dict[str, Any], answer: Probe) -> None:
    """Refuse a serving interpreter that cannot serve, where serving was asked for.

    Raises:
        JobError: ``no-serving-python``, ``no-torch``, ``no-vllm`` or ``wrong-vllm``, naming the interpreter.
    """
    where = f"{spec.key('serve.python')} is {spec.serve_python}"
    if not record:
        remedy = "name an interpreter that starts"
        raise JobError("no-serving-python", f"{where}: {answer.status}: {answer.summary}; {remedy}")
    if not spec.needs_vllm:
        return
    if answer.status == "timeout":
        raise JobError("no-vllm", f"{where}: {answer.summary}; raise limit_s, or look for a stuck driver")
    for name, reason, package in (("torch", "no-torch", "torch"), ("vllm", "no-vllm", "vLLM")):
        part = record.get(name)
        if part is None:
            remedy = "name an interpreter that has it, or set needs_vllm to false to describe the host only"
            raise JobError(reason, f"{where}: {package} is not installed in it; {remedy}")
        if "problem" in part:
            remedy = "on a DCU host, source the toolkit's env.sh first" if ".so" in part["problem"] else "repair it"
            raise JobError(reason, f"{where}: {package} does not import: {part['problem']}; {remedy}")
    found = str(record["vllm"]["version"])
    if spec.vllm_version and found != spec.vllm_version and not found.startswith(spec.vllm_version + "+"):
        key = spec.key("serve.vllm_version")
        remedy = "name the interpreter of that release, or declare this one"
        raise JobError(
            "wrong-vllm", f"{key}: declared {spec.vllm_version}, found {found} in {spec.serve_python}; {remedy}"
        )


def require_platform(spec: Spec, found: Found, record: dict[str, Any]) -> None:
    """Refuse a vLLM that sees no device although the declared one is there; elsewhere the host is just the wrong one.

    Raises:
        JobError: ``vllm-platform``.
    """
    vllm = record.get("vllm") or {}
    there = spec.declared.vendor in (*found.host_vendors, "cpu")
    if spec.needs_vllm and there and vllm.get("platform") not in ("cpu", "cuda", "rocm"):
        raise JobError(
            "vllm-platform",
            f"{spec.key('serve.python')} is {spec.serve_python}: its vLLM {vllm.get('version')} resolves "
            f"{vllm.get('platform_class')}, so it sees no device, although the host has one of vendor "
            f"{spec.declared.vendor}; name an interpreter whose vLLM is built for that device",
        )


def require_identity(spec: Spec, found: Found) -> None:
    """Refuse a host that is not the declared platform, or whose probes contradict each other.

    Raises:
        JobError: ``wrong-device``, or ``device-conflict``.
    """
    wrong = [
        f"{spec.key('device.' + key)}: declared {declared}, found {seen}; {hint}"
        for key, declared, seen, hint in mismatches(spec.declared, found)
    ]
    if wrong:
        lines = [
            f"this host is not platform '{spec.platform}':",
            *wrong,
            f"seen by: {'; '.join(found.evidence) or 'no probe found an accelerator'}",
            f"remedy: run on the declared device, or change these keys (or serve.python, now {spec.serve_python})",
        ]
        raise JobError("wrong-device", "\n  ".join(lines))
    if found.conflicts:
        text = "; ".join(found.conflicts)
        raise JobError("device-conflict", f"{spec.key('device.arch')}: {text}; the architecture must be certain")


def require_fp8(spec: Spec, record: dict[str, Any]) -> dict[str, Any]:
    """The verdict of gate G24 for the declared architecture.

    Raises:
        JobError: ``fp8-self-check`` when it failed, or could not run although something will be served.
    """
    vllm = record.get("vllm")
    why = f"vLLM: {vllm.get('problem', 'did not get that far')}" if vllm else "the serving interpreter has no vLLM"
    verdict = fp8.check(spec.declared.arch, record.get("fp8"), why)
    if verdict["status"] == "failed" or (verdict["status"] == "not_run" and spec.needs_vllm):
        raise JobError(
            "fp8-self-check",
            f"{spec.key('device.arch')} is {spec.declared.arch}: FP8 self-check (G24) {verdict['status']}: "
            f"{'; '.join(verdict['problems'])}; correct the declaration, or use a vLLM built for this device",
        )
    return verdict
