"""The claims job: every statement of the documents against a vLLM tree, data and evidence.

    python -m adrbench.claims --spec '{"platform": "cpu", "versions": ["0.18.1"],
        "claims": ["config/claims/adr0010.yaml"], "wheels": "results/claims/wheels"}' --output FILE

Without a wheel and without a network, claims that need the tree are unverified and say so; the job
does not fail.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from adrbench import evidence, job
from adrbench.claims import runner, schema
from adrbench.claims.behaviour import BACKENDS_ROW, Probe
from adrbench.claims.registry import Context, Text, Unverifiable
from adrbench.claims.tree import Tree, TreeError, WheelUnavailable, get_tree, installed_tree
from adrbench.paths import interpreter
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator


class Spec(BaseModel):
    """What to check, and what to check it against.

    ``versions``: vLLM versions, the first of which decides the verdict; ``installed`` is the one of
    ``serve_python``. ``wheels``: folder for fetched wheels and unpacked trees. ``serve_python``: an
    interpreter with torch, for behaviour and cast checks. ``evidence_root``: the platform's results.
    """

    model_config = ConfigDict(extra="forbid")

    platform: str
    versions: list[str] = Field(default=["0.18.1"], min_length=1)
    claims: list[Path] = Field(min_length=1)
    data: Path | None = None
    wheels: Path = Path("results/claims/wheels")
    serve_python: str | None = None
    evidence_root: Path | None = None

    @field_validator("wheels")
    @classmethod
    def _anywhere(cls, value: Path) -> Path:
        """Absolute: the probes run in another working folder."""
        return value.absolute()

    @field_validator("serve_python")
    @classmethod
    def _known_interpreter(cls, value: str | None) -> str | None:
        """The interpreter that a file names, where it is given as ``@FILE``; absolute unless it is on PATH."""
        if value is None:
            return None
        found = interpreter(value)
        return os.path.abspath(found) if "/" in found else found


def read_spec(raw: dict[str, Any]) -> Spec:
    """The specification, validated.

    Raises:
        JobError: naming the key and what is wrong with it.
    """
    try:
        return Spec.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise job.JobError(
            "spec", f"claims specification: {key}: {first['msg']}; keys: {', '.join(Spec.model_fields)}"
        ) from None


def open_version(name: str, spec: Spec) -> runner.Version:
    """The tree of one version, or the reason why it cannot be had.

    Raises:
        JobError: its wheel is there but damaged, or is not vLLM's.
    """
    job.say(f"vLLM {name}: opening its source")
    try:
        if name == "installed":
            if spec.serve_python is None:
                return runner.Version(name, None, Text(en="needs serve_python", zh="需要 serve_python"))
            return runner.Version(name, installed_tree(spec.serve_python))
        return runner.Version(name, get_tree(name, spec.wheels))
    except WheelUnavailable as error:
        job.say(str(error))
        reason = Text(en=f"needs the wheel of vLLM {name} ({error})", zh=f"需要 vLLM {name} 的 wheel ({error})")
        return runner.Version(name, None, reason)
    except TreeError as error:
        raise job.JobError("tree", str(error)) from None


def architectures(probe: Probe, tree: Tree | None) -> dict[str, Any]:
    """What vLLM's platform code selects and refuses by architecture: input of the rules for arms."""
    if tree is None:
        return {}
    try:
        rows: dict[str, Any] = probe.rows(tree)[BACKENDS_ROW]
        return rows
    except Unverifiable as reason:
        job.say(str(reason))
        return {}


def work(raw: dict[str, Any], output: Path) -> None:
    started = evidence.now()
    spec = read_spec(raw)
    try:
        claims = schema.load(spec.claims)
    except schema.ClaimError as error:
        raise job.JobError("claim", str(error)) from None
    job.say(f"{len(claims)} claims in {len(spec.claims)} files")
    versions = [open_version(name, spec) for name in dict.fromkeys(spec.versions)]
    probe = Probe(spec.serve_python)
    base = Context(
        data=spec.data or spec.claims[0].parent / "data",
        probe=probe,
        evidence_root=spec.evidence_root,
        torch_python=spec.serve_python,
    )
    try:
        measured = runner.run(claims, base, versions, job.say)
    except schema.ClaimError as error:
        raise job.JobError("claim", str(error)) from None
    measured["architectures"] = architectures(probe, versions[0].tree)
    resolved = {
        "versions": {
            v.name: {"tree": v.tree.version, "python_files": len(v.tree.files)}
            if v.tree
            else {"missing": v.reason.en if v.reason else ""}
            for v in versions
        },
        "claim_files": {str(path): evidence.digest_file(path) for path in spec.claims},
    }
    evidence.write(
        output,
        evidence.Evidence(
            stage="claims",
            platform=spec.platform,
            asked=raw,
            resolved=resolved,
            measured=measured,
            notes=["behaviour claims ran vLLM's Python with a pretended architecture: no device, unverified on DCU"],
            started_at=started,
            finished_at=evidence.now(),
        ),
    )
    job.say(", ".join(f"{count} {verdict}" for verdict, count in sorted(measured["counts"].items())))


if __name__ == "__main__":
    job.run("claims", work)
