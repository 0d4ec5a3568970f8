"""What the page, its figures and the tidy tables are made from: all decisions of a platform and their evidence."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from adrbench import evidence
from adrbench.config.decision import AnyDecision
from adrbench.config.platform import Platform
from adrbench.evidence import EvidenceError
from adrbench.report.adr import Report
from adrbench.report.collect import collect, open_store
from adrbench.report.imported.schema import Imported
from adrbench.report.imported.schema import read as read_imported
from adrbench.report.lookup import Store
from adrbench.report.spec import EvidencePaths, Spec
from pydantic import BaseModel, ConfigDict, Field


class DecisionSpec(BaseModel):
    """One decision and the files that it reads, its verdict among them."""

    model_config = ConfigDict(extra="forbid")

    adr: str
    decision: AnyDecision
    evidence: EvidencePaths = EvidencePaths()


class SiteSpec(BaseModel):
    """Any number of decisions of one platform.

    ``kernels`` are results of ``benchmarks/decode_attention.py`` that belong to the platform; ``documents``
    the reports that lie beside the page.
    """

    model_config = ConfigDict(extra="forbid")

    platform: Platform
    decisions: list[DecisionSpec] = Field(min_length=1)
    rejected: Path | None = None
    claim_files: list[Path] = []
    imported: list[Path] = []
    kernels: list[Path] = []
    documents: list[str] = []

    def reports(self) -> list[Spec]:
        """Each decision as its Markdown report takes it."""
        return [
            Spec(
                platform=self.platform,
                decision=one.decision,
                adr=one.adr,
                language="en",
                evidence=one.evidence,
                rejected=self.rejected,
            )
            for one in self.decisions
        ]


@dataclass(frozen=True)
class Decided:
    """One decision: its specification, the documents it looks numbers up in, and its view."""

    spec: Spec
    store: Store
    report: Report


@dataclass(frozen=True)
class Site:
    spec: SiteSpec
    decisions: list[Decided]
    imported: list[Imported]

    @property
    def platform(self) -> Platform:
        return self.spec.platform

    @property
    def tiers(self) -> list[str]:
        return [tier.name for tier in self.platform.tiers]

    @property
    def baseline(self) -> str:
        return self.platform.baseline.name

    @cached_property
    def documents(self) -> dict[Path, dict[str, Any]]:
        """Every evidence file of this platform of every decision, once."""
        return {
            document.path: document.data
            for decided in self.decisions
            for document in decided.store.documents.values()
            if document.path is not None and document.data is not None and not document.name.startswith("elsewhere/")
        }

    def of_stage(self, stage: str) -> Iterator[tuple[Path, dict[str, Any]]]:
        """(file, document) of one stage's evidence, in the order of the specification."""
        for path, data in self.documents.items():
            if data.get("stage") == stage:
                yield path, data

    @property
    def profiles(self) -> dict[str, dict[str, Any]]:
        """``measured`` of each profile, by arm (``arm/tier`` where it was taken at a tier's load)."""
        return {
            "/".join(filter(None, (str(data["arm"]), data.get("tier")))): data["measured"]
            for _, data in self.of_stage("profile")
            if data.get("arm") and data.get("tier") not in ("ceiling", "counters")
        }

    @property
    def ceiling(self) -> dict[str, Any]:
        """``measured`` of the ceilings; empty where nobody measured them."""
        for decided in self.decisions:
            document = decided.store.documents.get("ceiling")
            if document is not None and document.data is not None:
                return dict(document.data["measured"])
        return {}

    @property
    def claims(self) -> dict[str, Any]:
        """``measured`` of the claims job; empty where the run has none."""
        for _, data in self.of_stage("claims"):
            return dict(data["measured"])
        return {}

    @property
    def arms(self) -> list[str]:
        """Arms with any evidence, the baseline first, else in the platform file's order."""
        seen = {data.get("arm") for stage in ("serve", "eval") for _, data in self.of_stage(stage)}
        order = sorted(self.platform.arms, key=lambda arm: not arm.baseline)
        return [arm.name for arm in order if arm.name in seen]


def load(spec: SiteSpec) -> Site:
    """Read everything a page needs.

    Raises:
        EvidenceError: a file is damaged or of an unknown schema.
    """
    decisions = []
    for one in spec.reports():
        store = open_store(one)
        decisions.append(Decided(one, store, collect(one, store)))
    return Site(spec, decisions, [read_imported(path) for path in spec.imported])


def raw_file(path: Path, document: dict[str, Any], name: str) -> Any:
    """A raw JSON file of an evidence file; None when it is not there (results are often copied without them).

    Raises:
        EvidenceError: it is there, and is not what was measured.
    """
    raw = evidence.raw_folder(path) / name
    if name not in document["files"] or not raw.is_file():
        return None
    if evidence.digest_file(raw) != document["files"][name]:
        raise EvidenceError(f"{raw}: changed since it was measured; restore it, or delete it to go on without")
    return json.loads(raw.read_text(encoding="utf-8"))
