"""Accuracy of each arm against the baseline, from per-sample scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from adrbench.config.section import Text
from adrbench.decide import paired
from adrbench.decide.comparable import refuse_eval
from adrbench.decide.context import Context
from adrbench.decide.mcnemar import mcnemar
from adrbench.decide.planning import pairs_needed
from adrbench.decide.records import number
from adrbench.decide.verdict import Accuracy, McNemar, MeanDifference, TaskDifference
from adrbench.decide.words import text


@dataclass(frozen=True)
class Missing:
    """Why there is no accuracy difference: ``reason``, what would give one; ``basis``, what the gate says of it."""

    reason: Text
    basis: Text = field(default_factory=lambda: text("not measured", "未测量"))


# Nothing that is measured on such a platform can change it: no gate on accuracy is ever evaluable there.
RANDOM_WEIGHTS = Missing(
    text("an accuracy run on a platform with real weights", "在使用真实权重的平台上的精度评测"),
    text("not measured: random weights", "未测量: 权重为随机值"),
)


def _scores(path: str, tasks: dict[str, Any]) -> dict[str, list[float]]:
    return {
        name: [
            number(value, path, f"measured.tasks.{name}.scores[{i}]", least=0.0)
            for i, value in enumerate(task["scores"])
        ]
        for name, task in tasks.items()
    }


def _pair(baseline: dict[str, list[float]], arm: dict[str, list[float]]) -> dict[str, list[float]] | Missing:
    """Differences per task, or why the two runs do not pair."""
    if set(baseline) != set(arm):
        odd = ", ".join(sorted(set(baseline) ^ set(arm)))
        return Missing(
            text(f"the tasks differ between the baseline and the arm: {odd}", f"baseline 与该 arm 的任务不一致: {odd}")
        )
    for name in baseline:
        if len(baseline[name]) != len(arm[name]):
            counts = f"{name}: {len(baseline[name])} / {len(arm[name])}"
            return Missing(text(f"the samples do not pair ({counts})", f"样本无法配对 ({counts})"))
    return {name: paired.differences(baseline[name], arm[name]) for name in baseline}


def by_class(differences: Mapping[str, list[float]], tasks: Mapping[str, Any]) -> list[list[float]]:
    """Differences of each task class: several lengths of one class are one task of more pairs, not more tasks.

    Args:
        tasks: ``measured.tasks`` of an accuracy run; a task without a class of its own is one.
    """
    classes: dict[str, list[float]] = {}
    for name, values in differences.items():
        classes.setdefault(tasks[name].get("task") or name, []).extend(values)
    return list(classes.values())


def _binary(baseline: list[float], arm: list[float]) -> McNemar | None:
    found = mcnemar(baseline, arm)
    return McNemar(**asdict(found)) if found else None


def _limit(context: Context) -> float | None:
    return next((gate.limit for gate in context.spec.decision.gates if gate.metric == "accuracy_delta"), None)


def compare(context: Context, arm: str) -> Accuracy | Missing:
    """Accuracy of ``arm`` against the baseline."""
    if context.spec.random_weights:
        return RANDOM_WEIGHTS
    paths = context.spec.evidence.eval
    for name in (context.baseline, arm):
        if name not in context.evals:
            return Missing(text(f"the accuracy run of arm {name}", f"arm {name} 的精度评测"))
    reason = refuse_eval(context.evals, context.baseline, arm, context.spec.several_hosts)
    if reason:
        return Missing(
            text(
                f"an accuracy run under the baseline's conditions ({reason})",
                f"与 baseline 条件一致的精度评测 ({reason})",
            )
        )
    both = [_scores(paths[name], context.evals[name].measured["tasks"]) for name in (context.baseline, arm)]
    differences = _pair(*both)
    if isinstance(differences, Missing):
        return differences
    tasks, measured = {}, context.evals[arm].measured["tasks"]
    for name, values in differences.items():
        found = paired.mean_interval([values], context.confidence)
        means = [sum(scores[name]) / len(scores[name]) for scores in both]
        tasks[name] = TaskDifference(
            baseline=means[0], arm=means[1], delta=found.value, low=found.low, high=found.high, n=len(values),
            task=measured[name].get("task"), length_tokens=measured[name].get("length_tokens"),
            mcnemar=_binary(both[0][name], both[1][name]),
        )  # fmt: skip
    per_task = by_class(differences, measured)
    pairs, limit = sum(map(len, per_task)), _limit(context)
    total = paired.mean_interval(per_task, context.confidence, limit)
    decided = limit is None or total.high <= limit or total.low > limit
    needed = None if decided or limit is None else pairs_needed(per_task, limit, context.confidence)
    return Accuracy(
        tasks=tasks,
        mean=MeanDifference(
            delta=total.value,
            low=total.low,
            high=total.high,
            pairs=pairs,
            p_over=total.p_over,
            p_under=total.p_under,
        ),
        more_pairs=None if needed is None else max(1, needed - pairs),
        exact_agreement=paired.agreement(per_task),
    )
