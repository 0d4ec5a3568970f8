"""The platform's noise floor: the baseline against itself (A/A), from all of its rounds, as evidence of its own.

    python -m adrbench.decide.noise_floor --spec JSON --output results/<platform>/noise_floor.json

Equal servers differ. The document keeps, per tier and metric, every difference between two starts of the baseline
that ran side by side, and the gain that equal arms would show: no decision of the platform switches for less
(``objective``). It holds all rounds of the baseline that exist, those that adaptive decisions added included.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from adrbench import evidence
from adrbench.decide import noise, schedule
from adrbench.decide.comparable import difference, serve_identity
from adrbench.decide.records import TierRun, read_serve, series
from adrbench.decide.verdict import Document, Noise
from adrbench.evidence import write_json
from adrbench.job import JobError, run, say
from pydantic import BaseModel, ConfigDict, ValidationError

SCHEMA_VERSION = 1


class FloorSpec(BaseModel):
    """``serve``: round -> tier -> path, of the baseline; ``blocks``: round -> block of starts side by side.

    ``several_hosts``: as in ``spec.DecideSpec``.
    """

    model_config = ConfigDict(extra="forbid")

    platform: str
    baseline: str
    confidence: float
    blocks: dict[int, int]
    serve: dict[int, dict[str, str]]
    several_hosts: bool = False


class NoiseFloor(Document):
    """The document.

    ``blocks``: round -> block, of the rounds that are used; ``excluded``: round -> why it is not; ``identity``: tier ->
    what must not differ (``comparable``); ``values``: tier -> metric -> round -> value; ``noise``: tier -> metric;
    ``evidence``: SHA-256 of each file.
    """

    schema_version: int = SCHEMA_VERSION
    platform: str
    baseline: str
    confidence: float
    blocks: dict[int, int]
    excluded: dict[int, str]
    identity: dict[str, dict[str, Any]]
    values: dict[str, dict[str, dict[int, float]]]
    noise: dict[str, dict[str, Noise]]
    evidence: dict[str, str]


def _identities(
    rounds: Mapping[int, Mapping[str, TierRun]], several_hosts: bool
) -> tuple[dict[str, dict[str, Any]], dict[int, str]]:
    """tier -> identity of the first round that has it, and round -> what it differs in: such a round is no repeat."""
    found: dict[str, dict[str, Any]] = {}
    odd: dict[int, str] = {}
    for number, tiers in sorted(rounds.items()):
        for tier, measured in tiers.items():
            own = serve_identity(measured.document, several_hosts)
            if why := difference(found.setdefault(tier, own), own):
                odd[number] = f"{measured.path}: {why}"
    return found, odd


def build(spec: FloorSpec) -> NoiseFloor:
    """The noise floor of the rounds that exist; rounds under other conditions and late ones are left out."""
    runs = read_serve(spec.platform, {spec.baseline: spec.serve})
    identity, excluded = _identities(runs.get(spec.baseline, {}), spec.several_hosts)
    begun, ended = schedule.starts(runs), schedule.ends(runs)
    block_of = {start: spec.blocks[start[1]] for start in begun}
    for _, number in schedule.parted(begun, ended, block_of):
        excluded.setdefault(number, "started long after the runs of its block")
    for _, number in schedule.elsewhere(runs, block_of, spec.baseline) if spec.several_hosts else []:
        excluded.setdefault(number, "ran on another host than the runs of its block")
    place = {n: spec.blocks[n] for n in runs.get(spec.baseline, {}) if n not in excluded}
    values = {
        tier: {
            metric: {number: value for number, value in rounds.items() if number in place}
            for metric, rounds in series(runs, spec.baseline, tier)
        }
        for tier in identity
    }
    table = {
        tier: {
            metric: found
            for metric, by_round in metrics.items()
            if (found := noise.against_itself(by_round, spec.confidence, place.get)) is not None
        }
        for tier, metrics in values.items()
    }
    paths = [path for tiers in spec.serve.values() for path in tiers.values() if Path(path).is_file()]
    return NoiseFloor(
        platform=spec.platform,
        baseline=spec.baseline,
        confidence=spec.confidence,
        blocks=place,
        excluded=excluded,
        identity=identity,
        values=values,
        noise=table,
        evidence={path: evidence.digest_file(Path(path)) for path in sorted(paths)},
    )


def read(path: str, platform: str, baseline: str) -> NoiseFloor:
    """The document of a platform.

    Raises:
        JobError: ``evidence``, naming the file, when it is missing, no such document, or another platform's.
    """
    try:
        found = NoiseFloor.model_validate(json.loads(Path(path).read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise JobError("evidence", f"{path}: no noise floor ({error}); rerun its job") from None
    if found.schema_version != SCHEMA_VERSION or (found.platform, found.baseline) != (platform, baseline):
        raise JobError(
            "evidence", f"{path}: noise floor of {found.baseline} on {found.platform}, needed {baseline} on {platform}"
        )
    return found


def refuse(floor: NoiseFloor, identities: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Why a noise floor is not that of a decision's baseline; None when it is."""
    for tier, identity in identities.items():
        if tier in floor.identity and (odd := difference(floor.identity[tier], identity)):
            return f"tier {tier}: {odd}"
    return None


def work(raw: dict[str, Any], output: Path) -> None:
    try:
        spec = FloorSpec.model_validate(raw)
    except ValidationError as error:
        raise JobError("spec", f"noise floor specification: {error}") from None
    floor = build(spec)
    write_json(output, floor.model_dump(mode="json"))
    for tier, metrics in floor.noise.items():
        found = metrics.get("output_tokens_per_s")
        if found is not None:
            least = "unknown" if found.floor is None else f"{found.floor:.1%}"
            say(f"{tier}: output tokens/s of {found.rounds} equal starts: SD {found.sd:.1%}, two differ by {least}")


if __name__ == "__main__":
    run("noise_floor", work)
