"""Run all claims against one or more vLLM trees: verdicts, counts, and what an upgrade would break."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from adrbench.claims.registry import VERSIONED, Context, Text
from adrbench.claims.schema import Claim
from adrbench.claims.tree import Tree
from adrbench.claims.verdict import Outcome, judge_claim, unverified


@dataclass(frozen=True)
class Version:
    """One vLLM version asked for: its tree, or the reason why there is none."""

    name: str
    tree: Tree | None
    reason: Text | None = None


def _versioned(claim: Claim) -> bool:
    return any(part.registered.kind in VERSIONED for part in claim.parts)


def judge_versions(claim: Claim, base: Context, versions: Sequence[Version]) -> dict[str, Outcome]:
    """Outcome by version; a claim that no tree decides has the one outcome, for the first version."""
    if not _versioned(claim):
        return {versions[0].name: judge_claim(claim, base)}
    outcomes = {}
    for version in versions:
        if version.tree is None:
            reason = version.reason or Text(en=f"needs vLLM {version.name}", zh=f"需要 vLLM {version.name}")
            outcomes[version.name] = unverified(reason)
        else:
            outcomes[version.name] = judge_claim(claim, replace(base, tree=version.tree))
    return outcomes


def drift_rows(outcomes: dict[str, dict[str, Outcome]]) -> list[dict[str, Any]]:
    """Claims whose verdict or place is not the same in all versions that could be checked."""
    rows = []
    for claim_id, by_version in outcomes.items():
        checked = {v: o for v, o in by_version.items() if o.verdict != "unverified"}
        if len({(o.verdict, o.where) for o in checked.values()}) > 1:
            verdicts = {v: o.verdict for v, o in by_version.items()}
            rows.append({"id": claim_id, "verdicts": verdicts, "where": {v: o.where for v, o in by_version.items()}})
    return rows


def _by_version(outcomes: dict[str, Outcome]) -> dict[str, dict[str, Any]]:
    """Verdict, place and correction in each version; the evidence in words where it is not the usual place."""
    return {
        version: {
            "verdict": outcome.verdict,
            "where": outcome.where,
            "corrected": outcome.corrected.model_dump() if outcome.corrected else None,
            "found": outcome.found if outcome.verdict != "holds" else "",
        }
        for version, outcome in outcomes.items()
    }


def run(
    claims: Sequence[Claim], base: Context, versions: Sequence[Version], say: Callable[[str], None] = lambda _: None
) -> dict[str, Any]:
    """What goes into the evidence: verdicts by claim id, counts, and drift between versions.

    The verdict of a claim is the one against the first version. ``drift`` lists only differences;
    ``counts_by_version`` counts the claims that a tree decides.
    """
    outcomes: dict[str, dict[str, Outcome]] = {}
    for number, claim in enumerate(claims, 1):
        outcomes[claim.id] = judge_versions(claim, base, versions)
        if number % 50 == 0:
            say(f"{number} of {len(claims)} claims checked")
    first = versions[0].name
    verdicts = {}
    for claim in claims:
        by_version = outcomes[claim.id]
        entry = by_version[first].as_json() | {"kind": claim.kind, "document": claim.place.document}
        entry["by_version"] = _by_version(by_version) if _versioned(claim) else {}
        verdicts[claim.id] = entry
    by_kind: dict[str, Counter[str]] = {}
    for claim in claims:
        by_kind.setdefault(claim.kind, Counter())[outcomes[claim.id][first].verdict] += 1
    tree_claims = [c for c in claims if _versioned(c)]
    return {
        "version": first,
        "verdicts": verdicts,
        "counts": dict(Counter(entry["verdict"] for entry in verdicts.values())),
        "counts_by_kind": {kind: dict(counter) for kind, counter in by_kind.items()},
        "counts_by_version": {
            v.name: dict(Counter(outcomes[c.id][v.name].verdict for c in tree_claims)) for v in versions
        },
        "drift": drift_rows({c.id: outcomes[c.id] for c in tree_claims}) if len(versions) > 1 else [],
    }
