"""What the page shows: parts of all decisions' views, put together once. No markup of its own."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adrbench.report.lookup import Cell, Source
from adrbench.report.page.html import Html, Registry
from adrbench.report.page.strips import Block, blocks
from adrbench.report.site import Decided, Site
from adrbench.report.tidy.rows import claims as claim_rows
from adrbench.report.view import DeltaRow, NoiseRow, Proof, Rejection, ServingRow, TaskRow

# The verdicts that a reader must act on first.
CLAIM_ORDER = ("false", "imprecise", "moved", "unverified", "holds")


@dataclass(frozen=True)
class DecisionView:
    """One decision as the page shows it."""

    decided: Decided
    html: Html
    anchor: str
    status: str
    blocks: list[Block]
    counts: dict[str, int]
    documents: list[tuple[str, str]]

    @property
    def report(self) -> Any:
        return self.decided.report


@dataclass(frozen=True)
class Owned:
    """A row of some decision's view, with what renders its numbers."""

    html: Html
    row: Any


def _starts(owned: Owned) -> float:
    """Server starts that a notice names; 0 where it names none."""
    starts = owned.row.args.get("starts")
    return float(starts.amount) if starts else 0.0


@dataclass(frozen=True)
class PageView:
    site: Site
    decisions: list[DecisionView]
    arms: list[str]
    tiers: list[str]
    serving: list[Owned]
    deltas: list[Owned]
    tasks: list[Owned]
    noise: list[Owned]
    rejections: list[Rejection]
    proofs: list[Proof]
    claims: list[dict[str, Any]]
    figures: list[dict[str, Any]]
    config: dict[str, Any]
    imported: list[dict[str, Any]]

    @property
    def unconfirmed(self) -> Owned | None:
        """What a reader must know of an unverified platform file that ran on its device: as the decision with the most
        server starts tells it, for the page shows those of all."""
        told = [
            Owned(decision.html, row)
            for decision in self.decisions
            if (row := decision.report.header.unverified) is not None and row.key != "header.unverified"
        ]
        return max(told, key=_starts, default=None)

    @property
    def elsewhere(self) -> Owned | None:
        """Accuracy of another model: decisions of one platform show the same, the first that does is taken."""
        for decision in self.decisions:
            if (found := decision.report.elsewhere) is not None:
                return Owned(decision.html, found)
        return None


def _documents(site: Site, adr: str) -> list[tuple[str, str]]:
    """(language, file) of the reports of one decision that lie beside the page."""
    suffixes = {"en": ".md", "zh": ".zh.md"}
    return [(language, f"{adr}{s}") for language, s in suffixes.items() if f"{adr}{s}" in site.spec.documents]


def decision_view(site: Site, decided: Decided, registry: Registry) -> DecisionView:
    status = (decided.store.raw("decide", "status") or {}).get("word") or "none"
    gates = decided.report.gates
    return DecisionView(
        decided=decided,
        html=Html(registry, decided.store),
        anchor=decided.spec.adr,
        status=str(status).lower(),
        blocks=blocks(gates),
        counts=dict(Counter(gate.verdict for gate in gates)),
        documents=_documents(site, decided.spec.adr),
    )


def _once(decisions: Iterable[DecisionView], rows: str, key: Any) -> list[Owned]:
    """Rows that several decisions share, each once."""
    found: dict[Any, Owned] = {}
    for decision in decisions:
        for row in getattr(decision.report, rows):
            found.setdefault(key(row), Owned(decision.html, row))
    return list(found.values())


def serving_rows(site: Site, decisions: list[DecisionView]) -> list[Owned]:
    """Serving of every arm that any decision shows, by tier, the baseline first."""

    def key(row: ServingRow) -> tuple[str, str]:
        return row.tier, row.arm

    arms = site.arms
    order = {arm: index for index, arm in enumerate(arms)}
    tiers = {tier: index for index, tier in enumerate(site.tiers)}
    found = _once(decisions, "serving", key)
    return sorted(found, key=lambda owned: (tiers.get(owned.row.tier, 0), order.get(owned.row.arm, len(arms))))


def _delta_key(row: DeltaRow) -> str:
    return row.arm


def _task_key(row: TaskRow) -> str:
    return row.name


def _noise_key(row: NoiseRow) -> tuple[str, str]:
    return row.tier, str(row.metric)


def claims(site: Site) -> list[dict[str, Any]]:
    """Claims with the worst verdicts first, else in the files' order."""
    rows = list(claim_rows(site))
    return sorted(rows, key=lambda row: CLAIM_ORDER.index(row["verdict"]))


def imported_rows(site: Site) -> list[dict[str, Any]]:
    """Runs of imported results, each number with the imported document it stands in."""
    found = []
    for path, document in zip(site.spec.imported, site.imported, strict=True):
        for index, run in enumerate(document.runs):

            def cell(key: str, unit: str, at: int = index, name: str = str(path), whole: Any = run) -> Cell:
                value = whole
                for part in key.split("."):
                    value = getattr(value, part)
                return Cell(value, unit, sources=(Source(name, f"runs.{at}.{key}"),))

            found.append({"document": document, "run": run, "path": path, "cell": cell})
    return found


def proofs(decisions: list[DecisionView]) -> list[Proof]:
    """Evidence files of all decisions, once each, numbered anew."""
    found: dict[str, Proof] = {}
    for decision in decisions:
        for proof in decision.report.proofs:
            found.setdefault(proof.path, proof)
    return list(found.values())


def build(site: Site, registry: Registry, figures: Path) -> PageView:
    """Everything of the page.

    Args:
        figures: ``figures.json``, as the figures job wrote it.
    """
    drawn = json.loads(figures.read_text(encoding="utf-8"))
    decisions = [decision_view(site, decided, registry) for decided in site.decisions]
    return PageView(
        site=site,
        decisions=decisions,
        arms=site.arms,
        tiers=site.tiers,
        serving=serving_rows(site, decisions),
        deltas=_once(decisions, "deltas", _delta_key),
        tasks=_once(decisions, "tasks", _task_key),
        noise=_once(decisions, "noise", _noise_key),
        rejections=decisions[0].report.rejections,
        proofs=proofs(decisions),
        claims=claims(site),
        figures=drawn["figures"],
        config=drawn["config"],
        imported=imported_rows(site),
    )
