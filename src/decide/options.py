"""Each option of a decision: which arm measures it, its gates, its objective, and whether it may win."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from adrbench.config.decision import Option
from adrbench.config.section import Text
from adrbench.decide import gates, objective
from adrbench.decide.accuracy import Missing
from adrbench.decide.context import Context
from adrbench.decide.multiplicity import holm
from adrbench.decide.spec import ArmInfo
from adrbench.decide.verdict import Accuracy, GateResult, ObjectiveResult, OptionResult
from adrbench.decide.words import text


@dataclass(frozen=True)
class Candidate:
    """An option, its arm on this platform, and why it is not measured (None when it is).

    ``runnable``: the platform can run it, as far as declared.
    """

    option: Option
    arm: str | None
    runnable: bool
    reason: Text | None


def _ignored(context: Context, name: str) -> Text | None:
    """Where an option is a backend that was asked for by flag: what vLLM made of it instead."""
    for document in context.integrations.values():
        asked = (document.asked.get("server") or {}).get("args") or []
        if document.measured.get("ignored") and name in asked:
            backend = document.resolved.get("attention_backend")
            return text(
                f"vLLM was asked for {name}, ignored the flag and resolved {backend}",
                f"已用参数指定 {name}, vLLM 忽略该参数并解析为 {backend}",
            )
    return None


def refusal(context: Context, arm: ArmInfo) -> Text:
    """Why an arm that must not start does not: in the server's words where it was tried."""
    document = context.integrations.get(f"refusal-{arm.name}")
    if document is not None and document.measured.get("refused"):
        said = document.measured["text"]
        return text(f"the server refused to start: {said}", f"服务拒绝启动: {said}")
    return text(
        f"the server must refuse to start on this platform (expected: {arm.expect_failure})",
        f"在该平台上服务应当拒绝启动 (预期: {arm.expect_failure})",
    )


def _same_setting(context: Context, arm: str) -> Text | None:
    """Why an arm is no option of its own: vLLM resolved the setting that it was made for as the baseline's."""
    key = context.spec.decision.varies
    if key is None or arm == context.baseline or context.baseline not in context.runs:
        return None
    ours, theirs = (
        next(run for tiers in context.runs[name].values() for run in tiers.values()).document.resolved.get(key)
        for name in (arm, context.baseline)
    )
    if ours is None or ours != theirs:
        return None
    asked = next((info.model_dump().get(key) for info in context.spec.arms if info.name == arm), None)
    return text(
        f"vLLM was asked for {key} {asked} and resolved {ours}, as for the baseline: the same configuration",
        f"要求 {key} 为 {asked}, vLLM 实际解析为 {ours}, 与 baseline 相同: 是同一配置",
    )


def candidate(context: Context, option: Option) -> Candidate:
    """How this platform stands to an option."""
    spec = context.spec
    known = {arm.name: arm for arm in spec.arms}
    arm = next((known[name] for name in option.arms if name in known), None)
    if option.name in spec.blocked:
        return Candidate(option, arm.name if arm else None, False, spec.blocked[option.name])
    if arm is None:
        undeclared = text("the platform declares no arm for it", "该平台未声明对应的 arm")
        return Candidate(option, None, False, _ignored(context, option.name) or undeclared)
    if arm.expect_failure is not None:
        return Candidate(option, arm.name, False, refusal(context, arm))
    if arm.name in context.refused:
        why = context.refused[arm.name]
        reason = text(f"refused as a comparison with the baseline: {why}", f"拒绝与 baseline 比较: {why}")
        return Candidate(option, arm.name, True, reason)
    if arm.name not in context.runs:
        return Candidate(
            option, arm.name, True, text(f"arm {arm.name} is not measured yet", f"arm {arm.name} 尚未测量")
        )
    same = _same_setting(context, arm.name)
    return Candidate(option, arm.name, same is None, same)


def _unmeasured(context: Context, found: Candidate) -> OptionResult:
    assert found.reason is not None
    told = found.option.name in context.spec.blocked or _ignored(context, found.option.name) is not None
    # An option that this platform can only run as the baseline is as blocked as one that it cannot run.
    blocked = told or (found.arm is not None and not found.runnable)
    return OptionResult(
        name=found.option.name, title=found.option.title, arm=found.arm, state="blocked" if blocked else "absent",
        reason=found.reason, violations=context.spec.violations.get(found.arm or "", []), gates=[],
        objective=objective.unmeasured(context, found.reason), eligible=False,
    )  # fmt: skip


def _arm_p_value(gates_of: list[GateResult], raw: float | None) -> float:
    """p value of "some gate is not met, or there is no gain": the greatest of the parts (intersection-union test).

    A gate's interval errs on either side, so that half of the permitted error is for its passing wrongly; twice its
    one-sided p value is held against the whole.
    """
    parts = [2 * gate.p_met for gate in gates_of if gate.p_met is not None]
    return min(1.0, max([1.0 if raw is None else raw, *parts]))


def evaluate(
    context: Context,
    candidates: list[Candidate],
    accuracy: Mapping[str, Accuracy | Missing],
    settled: Mapping[str, OptionResult],
) -> list[OptionResult]:
    """Every option of the decision, in the file's order.

    Args:
        settled: options that an earlier look put out, by name; they count in every correction, and stay as they were.
    """
    fresh = [c for c in candidates if c.option.name not in settled]
    others = [c for c in fresh if c.reason is None and c.arm is not None and c.arm != context.baseline]
    arms = [c.arm for c in others if c.arm is not None]
    goals, raw = objective.evaluate(context, arms, len(settled))
    error = 1 - context.confidence
    checked = gates.together(
        {arm: gates.evaluate(context, arm, accuracy[arm]) for arm in arms},
        error,
        sum(gate.p_missed is not None for option in settled.values() for gate in option.gates),
    )
    own = {arm: _arm_p_value(checked[arm], raw.get(arm)) for arm in arms}
    adjusted = holm(own | {f"settled/{name}": 1.0 for name in settled})
    results = []
    for found in candidates:
        if found.option.name in settled:
            results.append(settled[found.option.name])
        elif found.reason is not None or found.arm is None:
            results.append(_unmeasured(context, found))
        elif found.arm == context.baseline:
            results.append(_measured(context, found, [], objective.of_baseline(context), None))
        else:
            results.append(_measured(context, found, checked[found.arm], goals[found.arm], adjusted[found.arm]))
    return results


def _measured(
    context: Context, found: Candidate, checked: list[GateResult], goal: ObjectiveResult, p_value: float | None
) -> OptionResult:
    assert found.arm is not None
    broken = context.spec.violations.get(found.arm, [])
    passed = all(gate.verdict == "passed" for gate in checked)
    beyond_doubt = goal.verdict == "better" and p_value is not None and p_value <= 1 - context.confidence
    return OptionResult(
        name=found.option.name,
        title=found.option.title,
        arm=found.arm,
        state="measured",
        reason=None,
        violations=broken,
        gates=checked,
        objective=goal,
        eligible=passed and not broken and (beyond_doubt or goal.verdict == "baseline"),
        p_value=p_value,
    )
