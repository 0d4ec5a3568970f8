"""The view of one ADR as a whole: all parts, in no language and no markup."""

from __future__ import annotations

import math
from dataclasses import dataclass

from adrbench.config.decision import Resolution
from adrbench.config.section import Text
from adrbench.report.bottleneck import Bottleneck
from adrbench.report.cells import Note
from adrbench.report.doubts import Doubts
from adrbench.report.lookup import Cell
from adrbench.report.strategy import StrategyView
from adrbench.report.team import Consequence
from adrbench.report.view import (
    Candidate,
    CheckRow,
    Claims,
    DecodeRow,
    DeltaRow,
    DeviceLoad,
    GateRow,
    Header,
    Integration,
    KernelChecks,
    ModelFacts,
    NoiseRow,
    OptionRow,
    Performance,
    Phrase,
    Proof,
    Rejection,
    Scheme,
    ServingRow,
    Shown,
    Summary,
    TaskRow,
    TierRow,
    WayRow,
    phrase,
)
from adrbench.report.view_records import CheckCell, Elsewhere, Fact, LockView, Past, ReferenceTable, StatementRow


def _once(shown: list[Shown]) -> list[Shown]:
    """Each text once, in order; empty ones left out."""
    found: list[Shown] = []
    for item in shown:
        if item and item not in found:
            found.append(item)
    return found


@dataclass(frozen=True)
class Report:
    """One ADR."""

    adr: str
    baseline: str
    header: Header
    summary: Summary
    model: ModelFacts
    integrations: list[Integration]
    performance: Performance
    bottleneck: Bottleneck
    doubts: Doubts
    cells: dict[str, list[Note]]
    schemes: list[Scheme]
    candidates: list[Candidate]
    architectures: list[str]
    ways: list[WayRow]
    tiers: list[str]
    tiers_asked: list[TierRow]
    rounds: list[Phrase]
    stalls: list[Phrase]
    serving: list[ServingRow]
    decode: list[DecodeRow]
    loads: list[DeviceLoad]
    noise: list[NoiseRow]
    tasks: list[TaskRow]
    deltas: list[DeltaRow]
    elsewhere: Elsewhere | None
    options: list[OptionRow]
    gates: list[GateRow]
    resolutions: list[Resolution]
    delta_definition: Shown
    cautions: list[Shown]
    kernels: KernelChecks | None
    checklist_title: Text
    checklist: list[CheckRow]
    claims: Claims | None
    versions: list[tuple[str, Cell]]
    rejections: list[Rejection]
    proofs: list[Proof]
    command: str
    team_document: Shown
    replaces: bool
    related: Text
    context: Text
    sections: list[str]
    stack: list[Fact]
    checks: list[CheckCell]
    reference: ReferenceTable | None
    statements: list[StatementRow]
    column_titles: list[Text]
    consequences: list[Consequence]
    strategy: StrategyView | None
    dissent: list[Shown]
    turning: list[Shown]
    lock: LockView
    history: list[Past]
    history_store: str

    @property
    def g06(self) -> Shown:
        """The verdict of gate G06 on decode's bandwidth, or that it is not reliable."""
        return self.doubts.verdict(Phrase(f"g06.{self.performance.verdict}"), "bandwidth")

    @property
    def gate_titles(self) -> list[tuple[str, Shown]]:
        """Gates by id, in the order of the decision file."""
        return list({gate.gate: gate.title for gate in self.gates}.items())

    @property
    def check_bases(self) -> list[Shown]:
        """How the checks' values were made, each way once."""
        return _once([row.basis for row in self.checks])

    @property
    def bases(self) -> list[Shown]:
        """How the gates' intervals were made, each way once."""
        return _once([gate.basis for gate in self.gates])

    @property
    def extreme(self) -> ServingRow | None:
        """The arm and tier whose throughput differs most from the baseline's."""
        compared = [row for row in self.serving if row.relative and row.relative.amount > 0]
        return max(compared, key=lambda row: abs(math.log(row.relative.amount)), default=None)

    @property
    def pools(self) -> list[Phrase]:
        """KV pool of each served arm, in words."""
        first = {row.arm: row for row in reversed(self.serving) if row.pool}
        return [phrase("consequence.pool", title=row.title, pool=row.pool) for row in reversed(first.values())]

    @property
    def version_phrases(self) -> list[Phrase]:
        return [phrase("evidence.version", name=name, version=version) for name, version in self.versions]
