"""Compare all replays with the baseline's first one: token agreement, divergence, perplexity.

    python -m adrbench.agreement.compare --spec JSON --output results/<platform>/agreement/compare.json

Specification: ``spec.CompareSpec``. The baseline's second replay, on another server start, is the A/A control: what
it differs from the first one by is noise, and an arm below it differs from nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from adrbench import evidence
from adrbench.agreement.__main__ import RAW
from adrbench.agreement.buckets import by_bucket
from adrbench.agreement.divergence import positions
from adrbench.agreement.replay import Replay
from adrbench.agreement.spec import CompareSpec, parse_spec
from adrbench.decide.comparable import difference
from adrbench.evidence import Evidence, EvidenceError, now
from adrbench.job import JobError, run, say


def identity(document: Evidence) -> dict[str, Any]:
    """What must not differ between two replays that are compared, by name."""
    asked = document.asked
    return {
        "platform": document.platform,
        "text": asked.get("text"),
        "top": asked.get("top"),
        "chunk_tokens": asked.get("chunk_tokens"),
        "model_digest": (asked.get("identity") or {}).get("model_digest"),
        "vllm_version": document.resolved.get("vllm_version"),
    }


def load(path: Path) -> tuple[Evidence, Replay]:
    """One replay and its arrays.

    Raises:
        JobError: ``evidence`` when a file is missing, damaged or changed since it was measured.
    """
    try:
        document = evidence.read(path)
        bad = evidence.verify_files(path)
    except EvidenceError as error:
        raise JobError("evidence", str(error)) from None
    if bad:
        raise JobError("evidence", f"{bad[0]}; rerun the replay")
    return document, Replay.load(evidence.raw_folder(path) / RAW)


def compared(spec: CompareSpec) -> dict[str, dict[str, Any]]:
    """Figures by arm; under the baseline's own name its A/A control, when it was replayed twice.

    Raises:
        JobError: ``not-comparable`` when a replay differs from the baseline's in more than the arm.
    """
    rounds = spec.replays[spec.baseline]
    first = min(rounds)
    reference, base = load(Path(rounds[first]))
    found = {}
    for arm, paths in spec.replays.items():
        others = [path for number, path in sorted(paths.items()) if (arm, number) != (spec.baseline, first)]
        if not others:
            continue
        document, replayed = load(Path(others[0]))
        if (differs := difference(identity(reference), identity(document))) is not None:
            raise JobError("not-comparable", f"{others[0]} against {rounds[first]}: {differs}; rerun both replays")
        try:
            values = by_bucket(positions(base, replayed), spec.edges, spec.confidence)
        except ValueError as error:
            raise JobError("spec", f"agreement specification: {error}") from None
        simulated = document.resolved.get("kv_simulation")
        found[arm] = {"evidence": others[0], "buckets": values, "kv_simulation": simulated}
    return found


def work(raw: dict[str, Any], output: Path) -> None:
    spec, began = parse_spec(CompareSpec, raw), now()
    arms = compared(spec)
    paths = [path for rounds in spec.replays.values() for path in rounds.values()]
    evidence.write(
        output,
        Evidence(
            stage="agreement",
            platform=spec.platform,
            tier="compare",
            asked=spec.model_dump(mode="json"),
            resolved={"replays": {path: evidence.digest_file(Path(path)) for path in sorted(paths)}},
            measured={"baseline": spec.baseline, "arms": arms},
            notes=[
                "kl_nats is a lower bound of KL(baseline || arm): tokens that both sides name among their best, and "
                "the token that follows, are compared one by one, all others as one; lumped_probability is the "
                "baseline's share in the lump",
                "intervals: bootstrap over segments, expanded percentiles (Hesterberg 2015)",
            ],
            started_at=began,
            finished_at=now(),
        ),
    )
    for arm, values in arms.items():
        whole = values["buckets"]["all"]
        say(f"{arm}: agreement {whole['agreement']['value']:.4f}, KL at least {whole['kl_nats']['value']:.2e} nats")


if __name__ == "__main__":
    run("agreement", work)
