"""The view: everything a report shows, in no language and no markup.

A page, a Markdown file and a test read the same view. A text in it is a ``Phrase`` (a key of the
catalogue with its arguments), a ``Text`` of the configuration (both languages), a plain string that needs
no translation, or a looked-up ``Cell``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from adrbench.config.section import Text
from adrbench.report.lookup import MISSING, Cell
from adrbench.report.team import DeviceRow, Item, Layer, Remark, SchemeRow, Way


@dataclass(frozen=True)
class Phrase:
    """A text of the catalogue. ``args`` are shown as they are: cells, phrases, texts, strings, or lists of them."""

    key: str
    args: dict[str, Any] = field(default_factory=dict)


Shown = Phrase | Text | Cell | str


def phrase(key: str, **args: Any) -> Phrase:
    return Phrase(key, args)


NOT_MEASURED = Phrase("unverified")


@dataclass(frozen=True)
class Header:
    number: str
    title: Text
    question: Text
    status_word: Shown
    status_text: Shown
    date: Cell
    platform_name: str
    platform_title: Text
    device: Shown
    unverified: Phrase | None
    policy: str
    confidence: Cell
    metric: Phrase | None
    minimum_gain: Cell
    gain_rule: str


@dataclass(frozen=True)
class Summary:
    """The lines at the top: decided what, by how much, where the time goes, what is missing, what next."""

    decided: Shown
    by_how_much: list[Shown]
    bottleneck: Shown | None
    missing: list[Shown]
    next_steps: list[Shown]
    compares: bool = True

    @property
    def has_intervals(self) -> bool:
        """Whether options were compared, so that the brackets of their numbers have to be explained."""
        return self.compares and self.by_how_much != [Phrase("summary.nothing_compared")]

    @property
    def lines(self) -> list[tuple[str, list[Shown]]]:
        """(key of the title, its text) of each line that this ADR has."""
        middle: list[Shown] = [] if self.bottleneck is None else [self.bottleneck]
        found = [
            ("summary.decision", [self.decided]),
            ("summary.by_how_much" if self.compares else "section.checks", self.by_how_much),
            ("summary.bottleneck_title", middle),
            ("summary.missing_title", self.missing),
            ("summary.next_title", self.next_steps),
        ]
        return [(title, texts) for title, texts in found if texts]


@dataclass(frozen=True)
class ModelFacts:
    architecture: Cell
    parameters: Cell
    weight_bytes: Cell
    dummy: bool
    accuracy_of: str | None
    embedded: bool
    vllm: Cell
    served_versions: list[Cell]


@dataclass(frozen=True)
class Integration:
    """A level of block A as exercised here."""

    layer: Layer
    judged: Shown
    exercised: Shown
    resolved: Cell
    equal: Cell
    compared: Cell
    state: Shown
    note: Shown


@dataclass(frozen=True)
class Measured:
    """A quantity of block B beside the team's statement."""

    row: DeviceRow
    judged: Shown
    here: Shown


@dataclass(frozen=True)
class Phase:
    name: str
    share: Cell
    seconds: Cell
    steps: Cell
    tokens: Cell


@dataclass(frozen=True)
class ClassShare:
    """Share of an operation class in the time of each phase, in the order of the phases."""

    name: str
    shares: list[Cell]


@dataclass(frozen=True)
class Ceiling:
    """What the device reaches in a loop that does nothing else."""

    name: Shown
    value: Cell
    datasheet: Cell = MISSING
    reached: Cell = MISSING
    doubt: Phrase | None = None


@dataclass(frozen=True)
class Performance:
    arm: str
    rows: list[Measured]
    datasheet: Shown
    ceiling: Cell
    ceilings: list[Ceiling]
    phases: list[Phase]
    classes: list[ClassShare]
    on_device: bool
    step: Cell
    step_bytes: Cell
    kv_share: Cell
    rate: Cell
    utilisation: Cell
    nearby: Cell
    threshold: Cell
    verdict: str | None
    notes: list[str]
    overhead: Cell


@dataclass(frozen=True)
class Scheme:
    """A row of block C: the team's statement, and what was measured by an arm or why nothing was."""

    title: Shown
    row: SchemeRow | None
    arm: str | None
    memory: Cell
    computed: Cell
    delta: Cell
    judged: Shown
    throughput: list[Cell]
    support: list[Shown]
    state: Shown


@dataclass(frozen=True)
class TierRow:
    """A workload as asked, and the prompt lengths that the baseline's rounds really sent."""

    name: str
    asked_low: Cell
    asked_high: Cell
    achieved: Cell
    output_tokens: Cell
    prompts: Cell
    concurrency: Cell
    cache_hits: Cell
    preemptions: Cell


@dataclass(frozen=True)
class ServingRow:
    """One arm in one tier, over its rounds."""

    arm: str
    title: Shown
    tier: str
    latencies: dict[str, list[Cell]]
    output_tokens_per_s: Cell
    goodput: Cell
    relative: Cell
    pool: Cell


@dataclass(frozen=True)
class DecodeRow:
    """Decode alone of one arm in one tier that sent all requests at once, over its rounds."""

    arm: str
    title: Shown
    tier: str
    tpot: Cell
    relative: Cell


@dataclass(frozen=True)
class DeviceLoad:
    """What the host's tools said while an arm was loaded, in its first round."""

    title: Shown
    start: Cell
    memory: Cell
    power: Cell
    clock: Cell
    load: Cell
    absent: list[str]


@dataclass(frozen=True)
class KernelChecks:
    """The kernel checks of this platform: where they ran, how many cases, what they proved and what not."""

    mode: Cell
    cases: Cell
    proved: list[str]
    reasons: list[tuple[str, Cell]]


@dataclass(frozen=True)
class NoiseRow:
    tier: str
    metric: Shown
    a: Cell
    b: Cell
    ratio: Cell
    floor: Cell


@dataclass(frozen=True)
class TaskRow:
    """An accuracy task: does it measure anything on this model?"""

    name: str
    metric: Cell
    samples: Cell
    prompt_tokens: Cell
    mean: Cell
    control: Cell
    difference: Cell
    verdict: Shown


@dataclass(frozen=True)
class DeltaRow:
    arm: str
    title: Shown
    tasks: list[tuple[str, Cell, Cell, Cell]]
    mean: Cell
    pairs: Cell
    more: Cell
    exact: Cell
    note: Phrase

    @property
    def open(self) -> bool:
        """Whether the accuracy gate is undecided."""
        return self.note.key != "accuracy.enough"


@dataclass(frozen=True)
class GateRow:
    """One gate; ``words``: what it measures in the field's words, with its code."""

    option: str
    option_title: Shown
    gate: str
    words: Shown
    metric: str
    title: Shown
    tier: str
    value: Cell
    limit: Cell
    verdict: str
    needs: Shown
    basis: Shown

    @property
    def unbounded(self) -> bool:
        """Whether the data bound the value on no side at all."""
        return bool(self.value) and self.value.low is None and self.value.high is None and self.verdict == "undecided"


@dataclass(frozen=True)
class OptionRow:
    """An option of the decision: the arm that stands for it, its gates in words, its objective."""

    name: str
    title: Shown
    arm: str | None
    state: str
    reason: Shown
    gates: dict[str, str]
    gate_words: dict[str, Shown]
    objective: Cell
    gain: Cell
    verdict: str
    violations: list[Shown]
    backend: Cell = MISSING
    refusal: Cell = MISSING
    columns: tuple[Cell, ...] = ()


@dataclass(frozen=True)
class Candidate:
    """A backend of ADR 0010 on this platform."""

    option: OptionRow
    remark: Remark | None
    expected: dict[str, str]


@dataclass(frozen=True)
class WayRow:
    way: Way
    integration: Integration | None
    judged: Shown


@dataclass(frozen=True)
class CheckRow:
    item: Item
    state: str
    evidence: Shown


@dataclass(frozen=True)
class ClaimRow:
    """A statement of the team's document that does not hold."""

    id: str
    statement: Shown
    verdict: str
    corrected: Shown
    where: str


@dataclass(frozen=True)
class Claims:
    """What the claim checks said of this ADR's document: counts by verdict, and those that do not hold."""

    version: Cell
    checked: Cell
    counts: list[Phrase]
    refuted: list[ClaimRow]


@dataclass(frozen=True)
class Rejection:
    reason: str
    count: Cell
    stages: str
    last: str


@dataclass(frozen=True)
class Proof:
    """An evidence file."""

    number: int
    name: str
    path: str
    finished: Cell
    digest: str
    raw_files: int
