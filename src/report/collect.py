"""From evidence to the view of one ADR. Pure, apart from reading the files it is given."""

from __future__ import annotations

from adrbench.config.decision import Decision, Strategy
from adrbench.device import rules
from adrbench.report import (
    accuracy,
    bottleneck,
    cells,
    checklist,
    dissent,
    elsewhere,
    facts,
    integration,
    past,
    performance,
    provenance,
    schemes,
    serving,
    standing,
    statements,
    strategy,
    team,
    verdicts,
)
from adrbench.report.adr import Report
from adrbench.report.context import Context, both
from adrbench.report.doubts import doubts
from adrbench.report.lookup import Cell, Source, Store
from adrbench.report.spec import Spec
from adrbench.report.view import (
    Candidate,
    Header,
    Integration,
    KernelChecks,
    ModelFacts,
    OptionRow,
    Phrase,
    Shown,
    WayRow,
    phrase,
)
from adrbench.report.view_records import StatementRow


def open_store(spec: Spec) -> Store:
    """All documents of a report: evidence files, and the platform and decision files it is about."""
    store = Store.open(spec.evidence.named())
    store.add("platform", spec.platform.model_dump(mode="json"))
    store.add("decision", spec.decision.model_dump(mode="json"))
    return store


def _device(context: Context) -> Shown:
    """What the host turned out to be."""
    store = context.store
    name = store.cell("device", "resolved", "name")
    if not name:
        return Phrase("unverified")
    return phrase("header.device", name=name, arch=store.cell("device", "resolved", "arch"),
                  runtime=store.cell("device", "resolved", "runtime"))  # fmt: skip


def header(context: Context) -> Header:
    spec, store = context.spec, context.store
    status = store.raw("decide", "status") or {}
    metric = Phrase(f"metric.{spec.decision.objective.metric}") if isinstance(spec.decision, Decision) else None
    return Header(
        number=spec.decision.number,
        title=spec.decision.title,
        question=spec.decision.question,
        status_word=verdicts.status_word(context),
        status_text=both(status.get("text")) or Phrase("unverified"),
        date=provenance.date(store),
        platform_name=spec.platform.name,
        platform_title=spec.platform.title,
        device=_device(context),
        unverified=standing.unverified(context),
        policy=spec.decision.policy_for(spec.platform.name),
        confidence=store.cell("decide", "confidence", unit="fraction"),
        metric=metric,
        minimum_gain=store.cell("decision", "objective", "minimum_gain", unit="fraction"),
        gain_rule=spec.decision.objective.gain_rule
        if isinstance(spec.decision, Decision)
        else "strategy"
        if isinstance(spec.decision, Strategy)
        else "facts",
    )


def model_facts(context: Context) -> ModelFacts:
    store = context.store
    versions: dict[str, Cell] = {}
    for arm in context.served_arms():
        if served := context.resolved(arm, "vllm_version"):
            versions.setdefault(str(served.value), served)
    return ModelFacts(
        architecture=store.cell("model", "measured", "architecture"),
        parameters=store.cell("model", "measured", "parameters", unit="count"),
        weight_bytes=store.cell("model", "measured", "weight_bytes", unit="bytes"),
        dummy=bool(store.raw("model", "measured", "dummy")) or context.spec.platform.random_weights,
        accuracy_of=context.spec.platform.accuracy_platform,
        embedded=context.spec.platform.model.source == "embedded",
        vllm=store.cell("device", "resolved", "vllm"),
        served_versions=list(versions.values()),
    )


def expected(context: Context, arch: str, backend: str) -> str:
    """What asking for a backend does on an architecture: as vLLM's own platform code said when the claims job ran it
    for a pretended device, else by the device rules. ``unproven`` stays: selection is not a served request.

    aiter is taken to be installed: whether it imports is a fact of a host, not of an architecture.
    """
    by_rule = rules.backend(arch, backend, aiter=True).outcome
    said = context.store.raw("claims", "measured", "architectures", arch, "explicit", backend)
    if said is None:
        return by_rule
    if str(said).startswith("ValueError"):
        return "refused"
    return "valid" if by_rule == "refused" else by_rule


def candidates(context: Context, options: list[OptionRow], notes: team.Document) -> list[Candidate]:
    """Each option as a backend: what is expected of it by architecture, and what is known of it."""
    return [
        Candidate(
            option=option,
            remark=notes.candidates.get(option.name),
            expected={arch: expected(context, arch, option.name) for arch in notes.architectures},
        )
        for option in options
    ]


def versions(context: Context) -> list[tuple[str, Cell]]:
    """Versions of what measured, from the evidence of whoever used them."""
    store = context.store
    first_eval = next(iter(store.names("eval/")), "eval")
    found = [
        ("vLLM", store.cell("device", "resolved", "vllm")),
        ("torch", store.cell("device", "resolved", "torch")),
        ("Python", store.cell("device", "resolved", "python")),
        ("Triton", store.cell("kernels", "measured", "triton")),
        ("OpenCompass", store.cell(first_eval, "resolved", "opencompass_version")),
    ]
    return [(name, cell) for name, cell in found if cell]


def kernel_checks(context: Context) -> KernelChecks | None:
    """What the kernel checks proved, and the reason for each format that they did not prove."""
    store = context.store
    if not store.has("kernels"):
        return None
    cases = store.raw("kernels", "measured", "cases") or []
    reasons = store.raw("kernels", "measured", "not_proved") or {}
    return KernelChecks(
        mode=store.cell("kernels", "measured", "mode"),
        cases=Cell(len(cases), "count", sources=(Source("kernels", "measured.cases"),)),
        proved=list(store.raw("kernels", "measured", "proved") or []),
        reasons=[(name, store.cell("kernels", "measured", "not_proved", name)) for name in reasons],
    )


def ways(context: Context, notes: team.Document, levels: list[Integration]) -> list[WayRow]:
    """The notes' ways of choosing a backend, each with the level of block A that exercises it."""
    by_name = {level.layer.name: level for level in levels}
    return [WayRow(way, by_name.get(way.name), statements.judged(context, way.claims)) for way in notes.ways]


def command(spec: Spec) -> str:
    """The shell command that makes this report."""
    name = spec.platform.name
    return f"snakemake reports/{name}/{spec.adr}.md --cores 1 --config platform={name}"


def collect(spec: Spec, store: Store) -> Report:
    """Everything that the ADR of this specification shows."""
    context, own, shared = Context(spec, store), team.document(spec.adr), team.shared()
    gates = verdicts.gate_rows(context)
    options = verdicts.option_rows(context, gates, own.columns)
    checks = facts.checks(context)
    measured = performance.performance(context, shared)
    levels = [integration.integration(context, layer) for layer in shared.layers]
    delta = spec.decision.delta if isinstance(spec.decision, Decision | Strategy) else None
    chosen = strategy.strategy(context)
    return Report(
        adr=spec.adr,
        baseline=context.baseline,
        header=header(context),
        summary=verdicts.summary(context, options, checks, measured),
        model=model_facts(context),
        integrations=levels,
        performance=measured,
        bottleneck=bottleneck.bottleneck(context, measured.arm),
        doubts=doubts(context),
        cells=cells.notes(context),
        schemes=schemes.scheme_rows(context, own),
        candidates=candidates(context, options, own) if own.candidates else [],
        architectures=own.architectures,
        ways=ways(context, own, levels),
        tiers_asked=serving.tier_rows(context),
        rounds=serving.rounds(context),
        stalls=serving.stalls(context),
        tiers=context.tiers,
        serving=serving.serving_rows(context),
        decode=serving.decode_rows(context),
        loads=serving.device_loads(context),
        noise=serving.noise_rows(context),
        tasks=accuracy.task_rows(context),
        deltas=accuracy.delta_rows(context),
        elsewhere=elsewhere.elsewhere(context),
        options=options,
        gates=gates,
        resolutions=spec.decision.resolutions,
        delta_definition=delta or "",
        cautions=verdicts.cautions(context),
        kernels=kernel_checks(context),
        claims=statements.claims(context, own.statements_of or [spec.adr.upper()]),
        versions=versions(context),
        checklist_title=own.checklist_title,
        checklist=checklist.rows(context, own.checklist),
        rejections=provenance.rejections(spec.rejected),
        proofs=provenance.proofs(store),
        command=command(spec),
        team_document=own.document or Phrase("statements.document"),
        replaces=bool(own.document),
        related=own.related,
        context=own.context,
        sections=own.sections,
        stack=facts.stack(context),
        checks=checks,
        reference=facts.reference(context),
        statements=[StatementRow(row, statements.judged(context, row.claims)) for row in own.statements],
        column_titles=[column.title for column in own.columns],
        consequences=own.consequences,
        strategy=chosen,
        dissent=strategy.dissent(chosen) if chosen else dissent.dissent(context, options, gates, checks),
        turning=dissent.turning(context, options, gates, checks),
        lock=past.lock(context),
        history=past.history(context),
        history_store=f"{store.raw('history', 'store')}/{spec.adr}",
    )
