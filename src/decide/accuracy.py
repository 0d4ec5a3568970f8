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
from adrbench.decide.records import number, read_eval
from adrbench.decide.spec import DecideSpec, ElsewhereSpec
from adrbench.decide.verdict import Accuracy, Elsewhere, McNemar, MeanDifference, TaskDifference
from adrbench.decide.words import text
from adrbench.evidence import Evidence
from adrbench.job import JobError


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


@dataclass(frozen=True)
class EvalRuns:
    """Accuracy runs of one platform by arm: documents, their files, and whether the platform is several hosts."""

    documents: Mapping[str, Evidence]
    paths: Mapping[str, str]
    several_hosts: bool


def compare(context: Context, arm: str) -> Accuracy | Missing:
    """Accuracy of ``arm`` against the baseline."""
    if context.spec.random_weights:
        return RANDOM_WEIGHTS
    return between(
        EvalRuns(context.evals, context.spec.evidence.eval, context.spec.several_hosts),
        context.baseline,
        arm,
        context.confidence,
        _limit(context),
    )


def between(runs: EvalRuns, baseline: str, arm: str, confidence: float, limit: float | None) -> Accuracy | Missing:
    """Accuracy of one arm against another, paired by sample.

    Args:
        limit: of the gate that the difference is held against, in points; None: there is none, nothing is planned.
    """
    for name in (baseline, arm):
        if name not in runs.documents:
            return Missing(text(f"the accuracy run of arm {name}", f"arm {name} 的精度评测"))
    reason = refuse_eval(runs.documents, baseline, arm, runs.several_hosts)
    if reason:
        return Missing(
            text(
                f"an accuracy run under the baseline's conditions ({reason})",
                f"与 baseline 条件一致的精度评测 ({reason})",
            )
        )
    measured = runs.documents[arm].measured["tasks"]
    both = [_scores(runs.paths[name], runs.documents[name].measured["tasks"]) for name in (baseline, arm)]
    differences = _pair(*both)
    if isinstance(differences, Missing):
        return differences
    tasks = {}
    for name, values in differences.items():
        found = paired.mean_interval([values], confidence)
        means = [sum(scores[name]) / len(scores[name]) for scores in both]
        tasks[name] = TaskDifference(
            baseline=means[0], arm=means[1], delta=found.value, low=found.low, high=found.high, n=len(values),
            task=measured[name].get("task"), length_tokens=measured[name].get("length_tokens"),
            mcnemar=_binary(both[0][name], both[1][name]),
        )  # fmt: skip
    return _mean(tasks, by_class(differences, measured), confidence, limit)


def _mean(
    tasks: dict[str, TaskDifference], per_task: list[list[float]], confidence: float, limit: float | None
) -> Accuracy:
    """The whole: the mean over task classes, and how many more pairs would decide its gate."""
    pairs = sum(map(len, per_task))
    total = paired.mean_interval(per_task, confidence, limit)
    decided = limit is None or total.high <= limit or total.low > limit
    needed = None if decided or limit is None else pairs_needed(per_task, limit, confidence)
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


def _unreadable(error: JobError) -> Missing:
    return Missing(text(f"a readable accuracy run ({error})", f"可读的精度评测 ({error})"))


def _readable(other: ElsewhereSpec) -> tuple[EvalRuns, dict[str, Missing]]:
    """The other platform's accuracy runs, and by arm why one cannot be used."""
    documents: dict[str, Evidence] = {}
    broken: dict[str, Missing] = {}
    for arm, path in other.eval.items():
        try:
            documents |= read_eval(other.platform, {arm: path})
        except JobError as error:
            broken[arm] = _unreadable(error)
    return EvalRuns(documents, other.eval, other.several_hosts), broken


def elsewhere(spec: DecideSpec, confidence: float) -> Elsewhere | None:
    """Accuracy of the other platform that the specification names; None where it names none.

    It informs and decides nothing: a file that cannot be read, or is of another platform or arm, is a reason under
    ``refused``, and stops no decision.
    """
    other = spec.elsewhere
    if other is None:
        return None
    runs, broken = _readable(other)
    found: dict[str, Accuracy | Missing] = {}
    for arm in sorted({*runs.documents, *broken} - {other.baseline}):
        reason = broken.get(arm) or broken.get(other.baseline)
        try:
            found[arm] = reason or between(runs, other.baseline, arm, confidence, None)
        except JobError as error:  # a score that is none: only what compares them sees it
            found[arm] = _unreadable(error)
    return Elsewhere(
        platform=other.platform,
        title=other.title,
        baseline=other.baseline,
        titles=other.titles,
        same=other.same,
        accuracy={arm: c for arm, c in found.items() if isinstance(c, Accuracy)},
        refused={arm: c.reason for arm, c in found.items() if isinstance(c, Missing)},
    )
