"""A strategy's tables: the schemes' places, the team's rules, memory, agreement, published figures. In no markup."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from adrbench.config.decision import Strategy
from adrbench.config.strategy import Cited
from adrbench.report.accuracy import delta
from adrbench.report.context import Context, both
from adrbench.report.lookup import MISSING, Cell, Source
from adrbench.report.view import OptionRow, Phrase, Shown, phrase

LONG_REQUEST = "32768"
MEASURED = ("agreement", "sure_agreement", "kl_nats", "perplexity_ratio")


@dataclass(frozen=True)
class SchemePlace:
    """One scheme of the strategy: what it is, what it costs, and its place."""

    name: str
    title: Shown
    arm: str | None
    integration: str
    simulated: bool
    required: bool
    form: Shown
    role: Shown
    delta: Cell
    gate: str
    ratio: Cell
    kl: Cell
    reason: Shown


@dataclass(frozen=True)
class Premise:
    """A premise held against the evidence of one option."""

    option: Shown
    value: Cell
    limit: Cell
    side: str
    verdict: Shown


@dataclass(frozen=True)
class RuleRow:
    """One rule of the team."""

    id: str
    title: Shown
    effect: Shown
    options: list[Shown]
    premise: Shown
    verdict: Shown
    premises: list[Premise]


@dataclass(frozen=True)
class MemoryRow:
    """Memory of one scheme; ``kind`` says whether its pool was measured or computed."""

    title: Shown
    bits: Cell
    ratio: Cell
    short: Cell
    long: Cell
    pool: Cell
    kind: Shown
    requests: Cell
    cited: Cell


@dataclass(frozen=True)
class AgreementRow:
    """One arm against the baseline over one range of context lengths; ``control``: the baseline against itself."""

    title: Shown
    bucket: str
    control: bool
    cells: list[Cell]
    perplexity: Cell


@dataclass(frozen=True)
class McNemarRow:
    """A task on which one side alone was right in some pairs."""

    title: Shown
    task: str
    baseline_only: Cell
    arm_only: Cell
    p_value: Cell


@dataclass(frozen=True)
class CitedRow:
    """A published figure beside ours."""

    title: Shown
    entry: Cited
    ours: Cell
    agreement: Cell


@dataclass(frozen=True)
class StrategyView:
    """All tables of a strategy. ``figure``: file name of the Pareto figure, by language suffix."""

    winner: str | None
    arch: Cell
    limit: Cell
    memory_at_most: Cell
    places: list[SchemePlace]
    rules: list[RuleRow]
    memory: list[MemoryRow]
    length: Cell
    lengths: tuple[Cell, Cell]
    cited_model: str
    agreement: list[AgreementRow]
    lumped: Cell
    mcnemar: list[McNemarRow]
    cited: list[CitedRow]
    figure: str

    @property
    def control(self) -> AgreementRow | None:
        """The baseline against itself, over all positions."""
        return next((row for row in self.agreement if row.control and row.bucket == "all"), None)


def _titles(context: Context) -> dict[str, Shown]:
    decision = context.spec.decision
    assert isinstance(decision, Strategy)
    return {option.name: option.title for option in decision.options}


def agreement_cell(context: Context, arm: str | None, bucket: str, key: str, unit: str) -> Cell:
    """One figure of an arm's replay against the baseline's."""
    if arm is None:
        return MISSING
    return context.store.interval(
        "agreement", "measured", "arms", arm, "buckets", bucket, key, value="value", unit=unit
    )


def _places(context: Context, decision: Strategy) -> list[SchemePlace]:
    options = {option.name: option for option in decision.options}
    places = []
    for number, found in enumerate(context.store.raw("decide", "strategy", "schemes") or []):
        option, arm, key = options[found["option"]], found["arm"], ("strategy", "schemes", number)
        declared = context.arm(arm) if arm else None
        notes = [phrase("strategy.lifted", rules=found["lifted"])] if found["lifted"] else []
        rank = context.store.cell("decide", *key, "rank", unit="count")
        role = phrase(f"strategy.role.{found['role']}")
        places.append(
            SchemePlace(
                name=option.name,
                title=option.title,
                arm=arm,
                integration=option.integration,
                simulated=declared is not None and declared.kv_simulation is not None,
                required=found["role"] == "must",
                form=phrase(
                    "strategy.form",
                    granularity=Phrase(f"granularity.{option.granularity}"),
                    format=option.number_format,
                    integration=Phrase(f"integration.{option.integration}"),
                ),
                role=phrase("strategy.ranked", role=role, rank=rank) if rank else role,
                delta=delta(context.store, arm) if arm and arm != context.baseline else MISSING,
                gate=found["gate"] or "none",
                ratio=context.store.cell("decide", *key, "memory_ratio", unit="ratio"),
                kl=agreement_cell(context, arm, "all", "kl_nats", "nats"),
                reason=phrase("strategy.reason", reason=both(found["reason"]), notes=notes) if notes
                else both(found["reason"]),
            )
        )  # fmt: skip
    return places


VERDICTS = ("holds", "refuted", "undecided", "unmeasured")
QUANTITY_UNITS = {
    "delta": "points", "delta_over": "points", "scale_bytes_per_token": "bytes", "wide_share": "fraction",
    "outlier_head_share": "fraction",
}  # fmt: skip


def _counted(number: int, found: dict[str, Any]) -> Shown:
    """A rule's verdict: one word where its premises agree, otherwise how many schemes have which."""
    words = [result["verdict"] for result in found["results"]]
    if len(set(words)) < 2:
        return Phrase(f"premise.{found['verdict']}")
    source = (Source("decide", f"strategy.rules.{number}.results"),)
    counts = {word: words.count(word) for word in VERDICTS if word in words}
    return phrase(
        "premise.counts",
        counts=[
            phrase("premise.count", verdict=Phrase(f"premise.{word}"), count=Cell(n, "count", sources=source))
            for word, n in counts.items()
        ],
    )


def _rules(context: Context, titles: dict[str, Shown]) -> list[RuleRow]:
    rows = []
    for number, found in enumerate(context.store.raw("decide", "strategy", "rules") or []):
        premises = []
        for index, result in enumerate(found["results"]):
            key, unit = ("strategy", "rules", number, "results", index), QUANTITY_UNITS[result["quantity"]]
            premises.append(
                Premise(
                    option=titles[result["option"]],
                    value=context.store.interval("decide", *key, value="value", unit=unit),
                    limit=context.store.cell("decide", *key, "limit", unit=unit),
                    side=result["side"],
                    verdict=Phrase(f"premise.{result['verdict']}"),
                )
            )
        rows.append(
            RuleRow(
                id=found["id"],
                title=both(found["title"]),
                effect=Phrase(f"effect.{found['effect']}"),
                options=[titles[name] for name in found["options"]],
                premise=both(found["premise"]) if found["premise"] else Phrase("premise.none"),
                verdict=_counted(number, found),
                premises=premises,
            )
        )
    return rows


def memory_rows(context: Context, titles: dict[str, tuple[Shown, str]]) -> list[MemoryRow]:
    """Memory of each named arm. ``titles``: row title and arm by name."""
    store, rows = context.store, []
    for title, arm in titles.values():
        key = ("measured", "arms", arm)
        if store.raw("memory", *key) is None:
            continue
        lengths = sorted(store.raw("memory", *key, "layout", "request_ratio") or {"": None}, key=lambda n: int(n or 0))
        model = next(iter(store.raw("memory", *key, "cited") or {}), None)
        kind = store.raw("memory", *key, "pool", "kind")
        hybrid = store.cell("memory", *key, "cited", model or "", "pool_request_ratio", unit="ratio")
        rows.append(
            MemoryRow(
                title=title,
                bits=store.cell("memory", *key, "layout", "bits_per_value", unit="number"),
                ratio=store.cell("memory", *key, "layout", "ratio", unit="ratio"),
                short=store.cell("memory", *key, "layout", "request_ratio", lengths[0], unit="ratio"),
                long=store.cell("memory", *key, "layout", "request_ratio", lengths[-1], unit="ratio"),
                pool=store.cell("memory", *key, "pool", "tokens", unit="tokens"),
                kind=Phrase(f"memory.{kind}") if kind else Phrase("unverified"),
                requests=store.cell("memory", *key, "pool", "requests", unit="number"),
                cited=hybrid or store.cell("memory", *key, "cited", model or "", "ratio", unit="ratio"),
            )
        )
    return rows


def _lengths(context: Context) -> tuple[Cell, Cell]:
    """Shortest and longest request whose bytes are given."""
    asked = context.store.raw("memory", "asked", "lengths") or []
    cells = [context.store.cell("memory", "asked", "lengths", index, unit="tokens") for index in range(len(asked))]
    return (cells[0], cells[-1]) if cells else (MISSING, MISSING)


def bucket_names(arm: dict[str, Any]) -> list[str]:
    """Ranges of context length in rising order, all positions first."""
    return sorted(arm.get("buckets", {}), key=lambda name: 0 if name == "all" else int(name.partition("-")[0]))


def agreement_rows(context: Context, arms: list[tuple[Shown, str]]) -> list[AgreementRow]:
    """Every bucket of every arm, the baseline against itself first."""
    units = {"agreement": "share", "sure_agreement": "share", "kl_nats": "nats", "perplexity_ratio": "ratio4"}
    measured = context.store.raw("agreement", "measured", "arms") or {}
    rows = []
    for title, arm in sorted(arms, key=lambda item: item[1] != context.baseline):
        for bucket in bucket_names(measured.get(arm) or {}):
            cells = [agreement_cell(context, arm, bucket, key, units[key]) for key in MEASURED]
            control = arm == context.baseline
            own = agreement_cell(context, arm, bucket, "perplexity", "number")
            shown = Phrase("agreement.control") if control else title
            rows.append(AgreementRow(shown, bucket, control, cells, own))
    return rows


def _mcnemar(context: Context, titles: dict[str, tuple[Shown, str]]) -> list[McNemarRow]:
    rows = []
    for title, arm in titles.values():
        for task, found in (context.store.raw("decide", "accuracy", arm, "tasks") or {}).items():
            if not found.get("mcnemar") or not found["mcnemar"]["baseline_only"] + found["mcnemar"]["arm_only"]:
                continue
            key: tuple[Any, ...] = ("accuracy", arm, "tasks", task, "mcnemar")
            rows.append(
                McNemarRow(
                    title=title,
                    task=task,
                    baseline_only=context.store.cell("decide", *key, "baseline_only", unit="count"),
                    arm_only=context.store.cell("decide", *key, "arm_only", unit="count"),
                    p_value=context.store.cell("decide", *key, "p_value", unit="number"),
                )
            )
    return rows


def strategy(context: Context) -> StrategyView | None:
    """The tables of a strategy; None for a decision of another kind."""
    decision = context.spec.decision
    if not isinstance(decision, Strategy):
        return None
    places, titles = _places(context, decision), _titles(context)
    arms = {place.name: (place.title, place.arm) for place in places if place.arm}
    measured = context.store.raw("agreement", "measured", "arms") or {}
    first = next(iter(measured), "")
    word, option = (context.store.raw("decide", "status", key) for key in ("word", "option"))
    return StrategyView(
        winner=option if word == "Accepted" else None,
        arch=context.store.cell("decide", "strategy", "arch"),
        limit=context.store.cell("decide", "strategy", "limit", unit="points"),
        memory_at_most=context.store.cell("decide", "strategy", "memory_at_most", unit="ratio"),
        places=places,
        rules=_rules(context, titles),
        memory=memory_rows(context, arms),
        length=context.store.cell("memory", "measured", "length", unit="tokens"),
        lengths=_lengths(context),
        cited_model=next(iter(context.store.raw("memory", "asked", "cited") or {}), ""),
        agreement=agreement_rows(context, list(arms.values())),
        lumped=context.store.cell("agreement", "measured", "arms", first, "buckets", "all", "lumped_probability",
                                  unit="fraction"),
        mcnemar=_mcnemar(context, arms),
        cited=[
            CitedRow(titles[entry.option], entry, place.delta, place.kl)
            for entry in decision.cited
            for place in places
            if place.name == entry.option
        ],
        figure=f"figures/{context.spec.adr}-pareto{'' if context.spec.language == 'en' else '.zh'}.svg",
    )  # fmt: skip


def dissent(view: StrategyView) -> list[Shown]:
    """Schemes that pass the gate and take no more memory than the accepted one, yet do not win."""
    winner = next((place for place in view.places if place.name == view.winner), None)
    most = winner.ratio.amount if winner and winner.ratio else 1.0
    return [
        phrase("strategy.dissent", option=place.title, delta=place.delta, ratio=place.ratio, reason=place.reason)
        for place in view.places
        if place.gate == "passed" and place is not winner and place.ratio and place.ratio.amount <= most
    ]


def by_how_much(view: StrategyView) -> list[Shown]:
    """The required schemes, and the smallest of each verdict of the gate; the table has them all."""
    measured = [place for place in view.places if place.delta and place.ratio]
    smallest = {place.gate: place for place in sorted(measured, key=lambda place: -place.ratio.amount)}
    shown = [place for place in measured if place.required or place in smallest.values()]
    return [
        phrase(
            "strategy.option",
            option=place.title,
            delta=place.delta,
            ratio=place.ratio,
            gate=Phrase(f"verdict.{place.gate}"),
        )
        for place in shown
    ] or [Phrase("summary.nothing_compared")]


def next_steps(context: Context, winner: str) -> list[Shown]:
    """What follows from an accepted strategy: nothing, a flag, or a backend to build."""
    decision = context.spec.decision
    assert isinstance(decision, Strategy)
    option = next((option for option in decision.options if option.name == winner), None)
    if option is None or option.integration == "default":
        return [phrase("next.keep", option=option.title if option else context.title(context.baseline))]
    return [phrase(f"strategy.next.{option.integration}", option=option.title)]


def turning(options: list[OptionRow], context: Context) -> list[Shown]:
    """What would decide each undecided scheme, what excludes it meanwhile, and required schemes without an arm."""
    lines: list[Shown] = []
    schemes = context.store.raw("decide", "strategy", "schemes") or []
    decided = context.store.raw("decide", "options") or []
    for option, raw, scheme in zip(options, decided, schemes, strict=True):
        rules = ", ".join(scheme["excluded_by"])
        if scheme["role"] == "must" and not scheme["arm"] and not rules:
            lines.append(phrase("turning.blocked", option=option.title, reason=both(scheme["reason"])))
        for gate in raw["gates"]:
            if gate["verdict"] == "undecided" and gate.get("needs"):
                key = "strategy.turning_excluded" if rules else "strategy.turning"
                values: dict[str, Shown] = {"rules": rules} if rules else {}
                lines.append(Phrase(key, values | {"option": option.title, "needs": both(gate["needs"])}))
    return lines
