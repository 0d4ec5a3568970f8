"""The computed decision: options, gates, and the lines at the top of the ADR."""

from __future__ import annotations

from adrbench.config.decision import Decision, Strategy
from adrbench.config.policy import arm_flags, trusts_remote_code
from adrbench.config.section import Text
from adrbench.decide import words
from adrbench.report import advice, facts, strategy
from adrbench.report.accuracy import delta
from adrbench.report.context import Context, both
from adrbench.report.doubts import Doubts, doubts
from adrbench.report.elsewhere import delta_elsewhere
from adrbench.report.lookup import MISSING, Cell, Source
from adrbench.report.serving import beside_noise, throughput_range, throughput_ratio
from adrbench.report.team import Column
from adrbench.report.view import GateRow, OptionRow, Performance, Phrase, Shown, Summary, phrase
from adrbench.report.view_records import CheckCell

OBJECTIVE_UNITS = {
    "kv_pool_tokens": "tokens",
    "kv_usable_tokens": "tokens",
    "output_tokens_per_s": "tokens_per_s",
    "total_tokens_per_s": "tokens_per_s",
    "goodput": "requests_per_s",
}
# From worst to best: what a gate says when its tiers disagree.
WORST_FIRST = ("failed", "undecided", "passed")
MOST_MISSING = 4


def gate_unit(metric: str) -> str:
    return {"accuracy_delta": "points", "completion": "fraction"}.get(metric, "ratio")


def gate_rows(context: Context) -> list[GateRow]:
    """Every gate of every option, with interval, verdict, and what would decide it."""
    store, rows = context.store, []
    for number, option in enumerate(store.raw("decide", "options") or []):
        for index, gate in enumerate(option.get("gates") or []):
            key = ("options", number, "gates", index)
            unit = gate_unit(gate["metric"])
            rows.append(
                GateRow(
                    option=option["name"],
                    option_title=both(option["title"]),
                    gate=gate["id"],
                    words=words.gate(gate["id"], gate["metric"], gate["percentile"]),
                    metric=gate["metric"],
                    title=both(gate.get("title")),
                    tier=gate.get("tier") or "",
                    value=store.interval("decide", *key, value="value", unit=unit),
                    limit=store.cell("decide", *key, "limit", unit=unit),
                    verdict=gate["verdict"],
                    needs=both(gate.get("needs")),
                    basis=both(gate.get("basis")),
                )
            )
    return rows


def _violation(item: dict[str, str]) -> Shown:
    """A rule that an option's arm breaks."""
    reason = both({"en": item["reason_en"], "zh": item["reason_zh"]})
    return phrase("violation", where=item["where"], rule=item["rule"], reason=reason)


def _columns(context: Context, arm: str | None, columns: list[Column]) -> tuple[Cell, ...]:
    """An arm's values of the table's own columns: numbers over the rounds of the first tier.

    Words, and numbers that later rounds do not repeat (a start loads what the first one compiled), are the first's.
    """
    cells = []
    for column in columns:
        names = context.documents(arm, context.tiers[0]) if arm else []
        first = context.store.cell(names[0], *column.key.split("."), unit=column.unit) if names else MISSING
        if arm and first and not isinstance(first.value, (str, bool)) and not column.first_round:
            first = context.over_rounds(arm, context.tiers[0], *column.key.split("."), unit=column.unit)
        cells.append(first)
    return tuple(cells)


def option_rows(context: Context, gates: list[GateRow], columns: list[Column]) -> list[OptionRow]:
    """One row per option: state, worst verdict of each gate over the tiers, objective, gain, further columns."""
    store, rows = context.store, []
    for number, option in enumerate(store.raw("decide", "options") or []):
        own: dict[str, set[str]] = {}
        called: dict[str, Shown] = {}
        for gate in gates:
            if gate.option == option["name"]:
                own.setdefault(gate.gate, set()).add(gate.verdict)
                called[gate.gate] = gate.words
        worst = {gate: next((v for v in WORST_FIRST if v in verdicts), "undecided") for gate, verdicts in own.items()}
        objective, key = option.get("objective") or {}, ("options", number, "objective")
        unit, arm = OBJECTIVE_UNITS.get(objective.get("metric", ""), "number"), option.get("arm")
        rows.append(
            OptionRow(
                name=option["name"],
                title=both(option.get("title")),
                arm=arm,
                state=option.get("state", "unverified"),
                reason=both(option.get("reason")),
                gates=worst,
                gate_words=called,
                objective=store.interval("decide", *key, value="value", unit=unit),
                gain=store.interval("decide", *key, value="gain", low="gain_low", high="gain_high", unit="gain"),
                verdict=objective.get("verdict") or "",
                violations=[_violation(item) for item in option.get("violations") or []],
                backend=context.resolved(arm, "attention_backend") if arm else MISSING,
                refusal=store.cell(f"integrate/refusal-{arm}", "measured", "text") if arm else MISSING,
                columns=_columns(context, arm, columns),
            )
        )
    return rows


def _gates_in_words(option: OptionRow) -> Shown:
    """The gates that are not passed, or that all are."""
    by_verdict = {
        verdict: [option.gate_words[gate] for gate, found in option.gates.items() if found == verdict]
        for verdict in ("failed", "undecided")
    }
    told = [
        phrase("summary.gates", verdict=Phrase(f"verdict.{verdict}"), gates=gates)
        for verdict, gates in by_verdict.items()
        if gates
    ]
    return phrase("summary.gates_list", words=told) if told else Phrase("summary.gates_passed")


def _delta_in_words(context: Context, arm: str) -> Shown:
    if context.spec.platform.random_weights:
        other, platform = delta_elsewhere(context, arm), context.spec.platform.accuracy_platform
        if other:
            return phrase("summary.delta_elsewhere", delta=other, platform=platform)
        return Phrase("summary.delta_random")
    found = delta(context.store, arm)
    return phrase("summary.delta", delta=found) if found else Phrase("summary.no_delta")


def _worst_throughput(context: Context, arm: str) -> dict[str, Shown]:
    """Output throughput relative to the baseline in the tier where it is least, and how it stands to the noise."""
    found = [(cell, tier) for tier in context.tiers if (cell := throughput_ratio(context, arm, tier))]
    if not found:
        return {"worst": MISSING, "tier": "", "noise": ""}
    worst, tier = min(found, key=lambda item: item[0].amount)
    noise = beside_noise(context, arm, tier, worst)
    return {"worst": throughput_range(context, arm, tier), "tier": facts.in_tier(tier), "noise": noise}


def baseline_title(context: Context, options: list[OptionRow]) -> Shown:
    """The baseline as this decision's options name it; the arm's title where none of them is the baseline."""
    mine = (option.title for option in options if option.arm == context.baseline)
    return next(mine, context.title(context.baseline))


def _by_how_much(context: Context, options: list[OptionRow], checks: list[CheckCell]) -> list[Shown]:
    """One line per measured option that is not the baseline's; of a record of facts, its checks."""
    decision = context.spec.decision
    if (view := strategy.strategy(context)) is not None:
        return strategy.by_how_much(view)
    if not isinstance(decision, Decision):
        return facts.numbers(context) + facts.in_words(checks)
    lines: list[Shown] = []
    # One server has one pool, whatever its tiers are.
    one_value = decision.objective.metric == "kv_pool_tokens"
    for option in options:
        if option.arm is None or option.arm == context.baseline or not option.objective:
            continue
        values: dict[str, Shown] = {
            "option": option.title,
            "metric": Phrase(f"metric.{decision.objective.metric}"),
            "mean": "" if one_value or len(context.tiers) == 1 else Phrase("summary.mean_of_tiers"),
            "gain": option.gain,
            "baseline": baseline_title(context, options),
            "gates": _gates_in_words(option),
            **_worst_throughput(context, option.arm),
        }
        if decision.delta is None:
            lines.append(Phrase("summary.option_speed", values))
        else:
            lines.append(Phrase("summary.option", values | {"delta": _delta_in_words(context, option.arm)}))
    return lines or [Phrase("summary.nothing_compared")]


def _bottleneck(context: Context, performance: Performance, doubtful: Doubts) -> Shown:
    """Where a step's time goes, and whether decode is bandwidth bound, unless a ceiling contradicts itself."""
    if not performance.utilisation or performance.verdict is None:
        return Phrase("summary.no_profile")
    told = phrase(
        "summary.bottleneck",
        arm=context.title(performance.arm.partition("/")[0]),
        shares=[
            phrase("summary.phase", phase=Phrase(f"phase.{found.name}"), share=found.share)
            for found in performance.phases
        ],
        utilisation=performance.utilisation,
        ceiling=performance.ceiling,
        verdict=doubtful.verdict(Phrase(f"g06.{performance.verdict}"), "bandwidth"),
    )
    if not doubtful.phases:
        return told
    names = [Phrase(f"phase.{name}") for name in doubtful.phases]
    return phrase("doubt.summary", told=told, phases=names, reasons=doubtful.of_verdicts)


def _missing(context: Context) -> list[Shown]:
    found = [both(item) for item in context.store.raw("decide", "missing") or []]
    if not found:
        word = context.store.raw("decide", "status", "word")
        if word == "Accepted" and not isinstance(context.spec.decision, Decision):
            return [Phrase("summary.all_checked")]
        return [
            Phrase({"Accepted": "summary.nothing_missing", "Blocked": "summary.no_options"}.get(word, "unverified"))
        ]
    shown: list[Shown] = list(found[:MOST_MISSING])
    if len(found) > MOST_MISSING:
        rest = Cell(len(found) - MOST_MISSING, "count", sources=(Source("decide", "missing"),))
        shown.append(phrase("summary.more_missing", more=rest))
    return shown


def _metric(name: str) -> Text:
    """A metric of the decide document in words: ``ttft_ms.p99`` is P99 TTFT."""
    metric, _, percentile = name.partition(".p")
    return words.metric(metric, int(percentile) if percentile else None)


# Settings that have words; others (flags, variables) are named as the operator writes them.
FACTORS = ("attention_backend", "kv_cache_dtype", "block_size", "plugin", "prefix_caching", "compilation_mode")


def _setting(factor: str, value: str) -> Shown:
    """A setting's value; of what a plugin reports of itself its mechanism only, the rest stands in the evidence."""
    if value == "-":
        return Phrase("factor.none")
    return value.partition(" ")[0] if factor == "plugin" else value


def _confounded(context: Context) -> list[Shown]:
    """One line for each arm that differs from the baseline in several settings."""
    arms: dict[str, list[Shown]] = {}
    for item in context.store.raw("decide", "confounded") or []:
        factor = item["factor"]
        told = phrase(
            "confounded.setting",
            factor=Phrase(f"factor.{factor}") if factor in FACTORS else f"`{factor}`",
            baseline=_setting(factor, item["baseline"]),
            value=_setting(factor, item["value"]),
        )
        arms.setdefault(item["arm"], []).append(told)
    return [phrase("confounded", arm=context.title(arm), settings=settings) for arm, settings in arms.items()]


def _widened(context: Context, arm: str) -> set[str]:
    """Texts that say why servers of the arm multiplied 16-bit matrices in fp32 (``serve.cpu_products``); empty: none
    did."""
    documents = (name for tier in context.tiers for name in context.documents(arm, tier))
    reports = (report for name in documents for report in context.store.raw(name, "resolved", "plugin") or [])
    widened = [report for report in reports if report.get("cpu_products")]
    return {"cpu_products.asked" if report.get("asked") else "cpu_products" for report in widened}


def cautions(context: Context) -> list[Shown]:
    """What weakens the comparison: unverified code, settings that differ beside the intended one, drift."""
    store, platform = context.store, context.spec.platform
    trusting = [arm.name for arm in platform.arms if trusts_remote_code(platform.serve.args + arm_flags(arm))]
    found: list[Shown] = [phrase("remote_code", arms=", ".join(trusting))] if trusting else []
    found += _confounded(context)
    widened = {arm: _widened(context, arm) for arm in context.served_arms()}
    for reason in sorted(set().union(*widened.values())):
        arms = [context.title(arm) for arm, reasons in widened.items() if reason in reasons]
        found.append(phrase(reason, arms=arms))
    for index, item in enumerate(store.raw("decide", "drift") or []):
        if item["verdict"] == "drift":
            rate = store.interval("decide", "drift", index, value="per_hour", unit="gain")
            found.append(phrase("drift", metric=_metric(item["metric"]), tier=item["tier"], rate=rate))
    return found


def status_word(context: Context) -> Shown:
    """The status, with the option it names."""
    word, option = (context.store.raw("decide", "status", key) for key in ("word", "option"))
    if word is None:
        return Phrase("unverified")
    return phrase("status.option", word=Phrase(f"status.{word}"), option=option) if option else Phrase(f"status.{word}")


def _decided(context: Context, options: list[OptionRow]) -> Shown:
    """The first line: an undecided status names what serves meanwhile, its reasons follow in the fourth line."""
    status = context.store.raw("decide", "status")
    if not status:
        return Phrase("unverified")
    if status["word"] == "Proposed" and isinstance(context.spec.decision, Decision):
        return phrase("summary.undecided", word=status_word(context), baseline=baseline_title(context, options))
    if status["word"] == "Proposed" and isinstance(context.spec.decision, Strategy):
        baseline = baseline_title(context, options)
        return phrase("summary.held", word=status_word(context), text=both(status["text"]), baseline=baseline)
    return phrase("summary.decided", word=status_word(context), text=both(status["text"]))


def summary(
    context: Context,
    options: list[OptionRow],
    checks: list[CheckCell],
    performance: Performance,
) -> Summary:
    """The lines at the top; the bottleneck only where the decision rests on a profile."""
    profiled = "profile" in context.spec.decision.stages
    return Summary(
        compares=isinstance(context.spec.decision, Decision | Strategy),
        decided=_decided(context, options),
        by_how_much=_by_how_much(context, options, checks),
        bottleneck=_bottleneck(context, performance, doubts(context)) if profiled else None,
        missing=_missing(context),
        next_steps=advice.next_steps(context, options),
    )
