"""One look of an adaptive run: judge what has been measured, drop what is out, say what to measure next.

    python -m adrbench.decide.adaptive --spec JSON --output results/<platform>/adaptive/<adr>/look<rounds>.json

The workflow (rules/adaptive.smk) adds the rounds that a look asks for as jobs like any others and then looks again.
The document is a ``verdict.Verdict`` whose ``adaptive`` says what was run, what was saved, and why it stopped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from adrbench.config.section import Text
from adrbench.decide import stopping
from adrbench.decide.__main__ import gather, judge
from adrbench.decide.context import Context
from adrbench.decide.spec import DecideSpec, parse_spec
from adrbench.decide.status import is_out, why_out
from adrbench.decide.verdict import AdaptiveRun, Dropped, LookTaken, Verdict
from adrbench.decide.words import text
from adrbench.evidence import Evidence, write_json
from adrbench.job import JobError, run, say
from pydantic import BaseModel, ConfigDict, ValidationError


class AdaptiveSpec(BaseModel):
    """One look.

    Args:
        decide: specification of a decide job over what has been measured; its ``looks`` are the plan.
        previous: document of the look before; None at the first.
        per_block: arm -> starts per round (the baseline may run twice), of all arms of the full grid.
        devices: arm -> devices that its server occupies.
    """

    model_config = ConfigDict(extra="forbid")

    platform: str
    decide: dict[str, Any]
    rounds: int
    previous: str | None = None
    per_block: dict[str, int]
    devices: dict[str, int]
    budget_minutes: float | None


def read(path: str) -> Verdict:
    """The document of a look.

    Raises:
        JobError: ``evidence``, naming the file, when it is missing or no such document.
    """
    try:
        found = Verdict.model_validate(json.loads(Path(path).read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise JobError("evidence", f"{path}: not the document of a look ({error}); delete it and rerun") from None
    if found.adaptive is None:
        raise JobError("evidence", f"{path}: adaptive is null: not the document of a look; delete it and rerun")
    return found


def minutes(documents: list[Evidence]) -> float:
    """Minutes from the first start to the last finish of documents of one job."""
    begun = min(datetime.fromisoformat(document.started_at) for document in documents)
    ended = max(datetime.fromisoformat(document.finished_at) for document in documents)
    return max(0.0, (ended - begun).total_seconds() / 60)


def serving_minutes(context: Context, devices: Mapping[str, int]) -> dict[tuple[str, int], float]:
    """(arm, round) -> accelerator minutes of its server, prompts and warm-up included."""
    return {
        (arm, number): devices[arm] * minutes([run.document for run in tiers.values()])
        for arm, rounds in context.runs.items()
        for number, tiers in rounds.items()
    }


def mean_minutes(spent: Mapping[tuple[str, int], float], arms: Mapping[str, int]) -> dict[str, float]:
    """arm -> mean accelerator minutes of a start; the mean of all for an arm that never ran."""
    overall = sum(spent.values()) / len(spent) if spent else 0.0
    own = {arm: [m for (name, _), m in spent.items() if name == arm] for arm in arms}
    return {arm: sum(found) / len(found) if found else overall for arm, found in own.items()}


def _reason(stop: stopping.Stop | None, spec: AdaptiveSpec, most: int, spent: float, saved: float) -> Text:
    share = f"{saved:.0%}"
    if stop is None:
        return text("another round follows", "继续下一轮")
    budget = f"{spent:.1f} / {spec.budget_minutes or 0:g}"
    why = {
        "decided": ("decided", "已判定"),
        "plan": ("the plan is used up", "计划已用完"),
        "budget": (
            f"the budget would be exceeded by another round ({budget} accelerator minutes spent)",
            f"再加一轮将超出预算 (已用 {budget} 加速器分钟)",
        ),
        "needs other evidence": (
            "more rounds would not decide it (accuracy or a comparable arm is missing)",
            "增加轮次无法判定 (缺精度样本或可比的 arm)",
        ),
    }[stop]
    en = f"{why[0]} after {spec.rounds} of {most} planned rounds; {share} of the full grid's server minutes were saved"
    return text(en, f"{why[1]}: 计划 {most} 轮, 已跑 {spec.rounds} 轮; 相对完整网格节省 {share} 的服务分钟")


def _accuracy_minutes(context: Context, devices: Mapping[str, int]) -> float:
    return sum(devices[arm] * minutes([document]) for arm, document in context.evals.items())


def _taken(
    spec: AdaptiveSpec, context: Context, verdict: Verdict, before: Verdict | None, spent: dict[tuple[str, int], float]
) -> LookTaken:
    """What this look added to the one before."""
    known = before.adaptive.rounds if before and before.adaptive else {}
    new = {run: value for run, value in spent.items() if run[1] > known.get(run[0], 0)}
    out_before = {option.name for option in before.options if is_out(option)} if before else set()
    dropped = [
        Dropped(option=option.name, arm=option.arm, reason=why_out(option))
        for option in verdict.options
        if option.state == "measured" and is_out(option) and option.name not in out_before
    ]
    return LookTaken(
        rounds=spec.rounds,
        confidence=context.confidence,
        starts=len(new),
        minutes=sum(new.values()),
        arms=list(dict.fromkeys(arm for arm, _ in new)),
        dropped=dropped,
        status=verdict.status.word,
    )


def account(spec: AdaptiveSpec, context: Context, verdict: Verdict, before: Verdict | None) -> AdaptiveRun:
    """What was run, what it cost, and what follows."""
    looks, devices = context.spec.looks, spec.devices
    spent = serving_minutes(context, devices)
    mean = mean_minutes(spent, spec.per_block)
    each = {arm: mean[arm] * starts for arm, starts in spec.per_block.items()}
    total = sum(spent.values()) + _accuracy_minutes(context, devices)
    left = None if spec.budget_minutes is None else spec.budget_minutes - total
    proposed = verdict.status.word == "Proposed"
    after = stopping.step(verdict.options, context.baseline, proposed, spec.rounds, looks[-1], each, left)
    # A decision that no round was needed for (fewer than two options can run) saves nothing: there is no grid.
    grid = looks[-1] * sum(each.values()) if spent else 0.0
    saved = 1 - sum(spent.values()) / grid if len(spent) < looks[-1] * sum(spec.per_block.values()) and grid else 0.0
    earlier = before.adaptive.looks if before and before.adaptive else []
    return AdaptiveRun(
        spec=spec.model_dump(mode="json", exclude={"previous"}),
        planned=looks,
        looks=[*earlier, _taken(spec, context, verdict, before, spent)],
        stop=after.stop,
        reason=_reason(after.stop, spec, looks[-1], total, saved),
        rounds={arm: max(rounds) for arm, rounds in context.runs.items()},
        next=list(after.arms),
        budget_minutes=spec.budget_minutes,
        spent_minutes=total,
        starts=len(spent),
        grid_starts=looks[-1] * sum(spec.per_block.values()) if spent else 0,
        minutes=sum(spent.values()),
        grid_minutes=grid,
        saved=saved,
    )


def _check(spec: AdaptiveSpec, decide: DecideSpec, before: Verdict | None) -> None:
    if before is not None and (before.decision, before.platform) != (decide.decision.id, decide.platform):
        raise JobError("evidence", f"{spec.previous}: it is a look at {before.decision} on {before.platform}")


def check_plan(output: Path, planned: list[int]) -> None:
    """Refuse a plan other than that of the looks already taken: one that changes after a look has no error rate.

    Raises:
        JobError: ``plan-changed``, naming the earlier look and what to delete.
    """
    for path in sorted([*output.parent.glob("look*.json"), output.parent.with_suffix(".json")]):
        if path != output and path.is_file() and (was := read(str(path)).adaptive) and was.planned != planned:
            documents = f"{output.parent} and {output.parent.with_suffix('.json')}"
            raise JobError(
                "plan-changed",
                f"{path}: looks were planned at {was.planned} rounds, now at {planned} (adaptive.first and .most); "
                "a plan that changes after a look has no error rate. Restore it, or begin again: "
                f"delete {documents} (the rounds that are measured are kept)",
            )


def look(spec: AdaptiveSpec, before: Verdict | None) -> Verdict:
    """Judge the present rounds; what an earlier look put out stays out.

    Args:
        before: document of the look before; None at the first.
    """
    decide = parse_spec(spec.decide)
    _check(spec, decide, before)
    context = gather(decide)
    settled = [
        option.model_copy(update={"decided_at": option.decided_at or before.adaptive.looks[-1].rounds})
        for option in (before.options if before else [])
        if before and before.adaptive and option.state == "measured" and is_out(option)
    ]
    verdict = judge(context, settled)
    return verdict.model_copy(update={"adaptive": account(spec, context, verdict, before)})


def at_look(spec: AdaptiveSpec, rounds: int) -> AdaptiveSpec:
    """The specification of an earlier look: the rounds that existed then."""
    raw = spec.model_dump(mode="json")
    serve = raw["decide"]["evidence"].get("serve", {})
    raw["decide"]["evidence"]["serve"] = {
        arm: {number: tiers for number, tiers in own.items() if int(number) <= rounds * spec.per_block.get(arm, 1)}
        for arm, own in serve.items()
    }
    return AdaptiveSpec.model_validate(raw | {"rounds": rounds})


def replay(path: Path) -> Verdict:
    """The verdict of an adaptive run, computed again from the evidence: every look, from the first.

    Raises:
        JobError: ``evidence``, naming the file, when it does not follow from the evidence.
    """
    found = read(str(path))
    assert found.adaptive is not None
    spec, verdict = AdaptiveSpec.model_validate(found.adaptive.spec), None
    for rounds in (number for number in found.adaptive.planned if number <= spec.rounds):
        verdict = look(at_look(spec, rounds), verdict)
    if verdict is None or verdict != found:
        raise JobError("evidence", f"{path}: does not follow from its evidence any more; delete it and run it again")
    return verdict


def work(raw: dict[str, Any], output: Path) -> None:
    try:
        spec = AdaptiveSpec.model_validate(raw)
    except ValidationError as error:
        raise JobError("spec", f"look specification: {error}") from None
    check_plan(output, spec.decide.get("looks", []))
    verdict = look(spec, read(spec.previous) if spec.previous else None)
    assert verdict.adaptive is not None
    write_json(output, verdict.model_dump(mode="json"))
    say(f"{verdict.decision} after {spec.rounds} rounds: {verdict.status.word}: {verdict.status.text.en}")
    for dropped in verdict.adaptive.looks[-1].dropped:
        say(f"dropped {dropped.reason.en}")
    say(verdict.adaptive.reason.en)


if __name__ == "__main__":
    run("adaptive", work)
