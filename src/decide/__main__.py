"""Apply one decision file to one platform's evidence.

    python -m adrbench.decide --spec JSON --output results/<platform>/decide/<adr>.json

The specification is ``spec.DecideSpec``, of a record of facts ``facts_spec.FactsSpec``, or ``{"adaptive": PATH}``
where an adaptive run judged already; the document is ``verdict.Verdict``. Nothing is measured here: the same evidence
gives the same document.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from adrbench.decide import accuracy as accuracies
from adrbench.decide import factors, facts, noise_floor, objective, options, schedule, status, steady, strategy
from adrbench.decide.comparable import refuse_serve, serve_identity
from adrbench.decide.context import Context
from adrbench.decide.facts_spec import parse_facts
from adrbench.decide.latency import table as latency_table
from adrbench.decide.noise import table as noise_table
from adrbench.decide.records import digests, load_eval, load_integrate, load_serve
from adrbench.decide.spec import DecideSpec, parse_spec
from adrbench.decide.strategy_spec import parse_strategy
from adrbench.decide.verdict import Look, OptionResult, Verdict
from adrbench.decide.words import text
from adrbench.evidence import write_json
from adrbench.job import JobError, run, say


def gather(spec: DecideSpec) -> Context:
    """Read the evidence, refuse what cannot be compared, find the rounds that do not pair."""
    context = Context(spec, load_serve(spec), load_eval(spec), load_integrate(spec))
    for arm in context.runs:
        why = refuse_serve(context.runs, spec.baseline, arm, spec.several_hosts)
        # An arm of no option is compared with nothing here; it only helps to tell the noise between starts.
        if why is None and arm in context.option_arms:
            why = factors.refuse(context.runs, spec.baseline, arm, spec.decision.factors)
        if why:
            context.refused[arm] = why
    context.blocks = schedule.blocks(spec.evidence.serve)
    context.unpaired = {arm: set(rounds) for arm, rounds in spec.unpaired.items()}
    begun, ended = schedule.starts(context.runs), schedule.ends(context.runs)
    out_of_turn = [*schedule.late(begun, context.blocks), *schedule.parted(begun, ended, context.blocks)]
    if spec.several_hosts:
        out_of_turn += schedule.elsewhere(context.runs, context.blocks, spec.baseline)
    for arm, number in out_of_turn:
        context.unpaired.setdefault(arm, set()).add(number)
    if spec.evidence.noise_floor:
        context.floor = noise_floor.read(spec.evidence.noise_floor, spec.platform, spec.baseline)
        first = {
            tier: serve_identity(run.document, spec.several_hosts)
            for _, tiers in sorted(context.runs.get(spec.baseline, {}).items(), reverse=True)
            for tier, run in tiers.items()
        }
        if why := noise_floor.refuse(context.floor, first):
            raise JobError("evidence", f"{spec.evidence.noise_floor}: not of this baseline ({why}); rerun its job")
    return context


def judge(context: Context, settled: Sequence[OptionResult] = ()) -> Verdict:
    """The verdict, from gathered evidence.

    Args:
        settled: options that an earlier look put out; they stay as they were, and their arms are no longer compared.
    """
    spec, decision = context.spec, context.spec.decision
    context.dropped = {option.arm for option in settled if option.arm}
    others = [arm for arm in context.runs if arm != spec.baseline and arm not in context.refused]
    compared = {arm: accuracies.compare(context, arm) for arm in others}
    candidates = [options.candidate(context, option) for option in decision.options]
    results = options.evaluate(context, candidates, compared, {option.name: option for option in settled})
    found, missing = status.decide(
        results,
        runnable={c.option.name for c in candidates if c.runnable},
        stretch={option.name for option in decision.options if option.stretch},
        minimum_gain=decision.objective.minimum_gain,
        may_exceed=lambda arm, other: objective.may_exceed(context, arm, other),
    )
    refused = [
        text(f"arm {arm} is refused as a comparison: {why}", f"arm {arm} 被拒绝比较: {why}")
        for arm, why in context.refused.items()
        if arm not in {c.arm for c in candidates}  # an option says it itself
    ]
    return Verdict(
        decision=decision.id,
        platform=spec.platform,
        policy=spec.policy or decision.policy_for(spec.platform),
        confidence=decision.confidence,
        look=Look(rounds=context.blocks_present, planned=spec.looks, confidence=context.confidence)
        if spec.looks
        else None,
        gain_rule=spec.gain_rule,
        baseline=spec.baseline,
        status=found,
        options=results,
        accuracy={arm: c for arm, c in compared.items() if not isinstance(c, accuracies.Missing)},
        elsewhere=accuracies.elsewhere(spec, context.confidence),
        noise=noise_table(context),
        latency=latency_table(context),
        confounded=factors.confounded(context.runs, spec.baseline, context.option_arms),
        order=schedule.order(context),
        ordering=schedule.ordering(context),
        drift=schedule.drift(context),
        steady=steady.table(context),
        missing=missing + refused,
        evidence=digests(spec),
    )


def verdict_of(raw: dict[str, Any]) -> Verdict:
    """The verdict of a decision of any kind, from its job's specification.

    Raises:
        JobError: the specification is refused, or evidence cannot be read.
    """
    if "adaptive" in raw:
        # It builds on this module.
        from adrbench.decide.adaptive import replay

        return replay(Path(raw["adaptive"]))
    kind = raw.get("decision", {}).get("kind")
    if kind == "facts":
        return facts.judge(parse_facts(raw))
    if kind == "strategy":
        return strategy.judge(parse_strategy(raw))
    return judge(gather(parse_spec(raw)))


def work(raw: dict[str, Any], output: Path) -> None:
    verdict = verdict_of(raw)
    write_json(output, verdict.model_dump(mode="json"))
    chosen = f" ({verdict.status.option})" if verdict.status.option else ""
    say(f"{verdict.decision}: {verdict.status.word}{chosen}: {verdict.status.text.en}")


if __name__ == "__main__":
    run("decide", work)
