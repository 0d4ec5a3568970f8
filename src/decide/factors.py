"""The factors of a comparison: in what two arms really differ, and in what the decision lets them differ.

A decision declares its factors (``Decision.factors``). Arms that differ in another setting are refused as a comparison:
the difference in their numbers would be nobody's. Arms that differ in several factors at once are compared, and the
factors are printed as confounded: no number says whose effect it is (an INT8 cache that only one backend can read).

A factor is a setting as vLLM *resolved* it (``RESOLVED``), an argument that an arm declares for itself
(``--flag``, or ``--config.key`` for a key inside one), or a variable of its own environment (``env:NAME``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from adrbench.config.decision import NO_FACTORS, RESOLVED
from adrbench.config.policy import settings
from adrbench.decide.records import Runs
from adrbench.decide.verdict import Confounded
from adrbench.evidence import Evidence, canonical
from adrbench.job import JobError

# Arguments of an arm that stand for a resolved setting: what they did is read there.
RESOLVED_BY = {
    "attention-backend": "attention_backend",
    "kv-cache-dtype": "kv_cache_dtype",
    "block-size": "block_size",
    "enable-prefix-caching": "prefix_caching",
    "no-enable-prefix-caching": "prefix_caching",
}


def _mechanisms(reports: Iterable[Mapping[str, Any]]) -> list[str]:
    """What the plugin changed in the engine, in words. What the engine chose is ``attention_backend``; a plugin that
    only reports that changes nothing, and how a CPU multiplies is its host's (``serve.cpu_products``)."""
    told = []
    for report in reports:
        if not {"chosen", "cpu_products"} & set(report):
            facts = {
                key: value for key, value in report.items() if key not in {"pid", "process", "engine", "mechanism"}
            }
            words = [
                str(report.get("mechanism", "")),
                *(f"{key} {_told(value)}" for key, value in sorted(facts.items())),
            ]
            told.append(" ".join(word for word in words if word))
    return told


def _own_arguments(document: Evidence) -> Iterator[tuple[str, str]]:
    arm = document.asked.get("arm") or {}
    try:
        found = list(settings([str(token) for token in arm.get("args") or []]))
    except ValueError as error:
        raise JobError("evidence", f"arm {document.arm}: {error}") from None
    for setting in found:
        # A JSON value is told by its keys; the whole would differ with each of them.
        inside = any(len(o.path) > len(setting.path) and o.path[: len(setting.path)] == setting.path for o in found)
        if not inside and setting.path[0] not in RESOLVED_BY:
            yield f"--{'.'.join(setting.path)}", setting.value


def settings_of(document: Evidence) -> dict[str, str]:
    """factor -> value as text, of everything that an arm may be made to differ in."""
    resolved = document.resolved
    values: dict[str, Any] = {factor: _last(resolved, keys) for factor, keys in RESOLVED.items()}
    values["plugin"] = _mechanisms(resolved.get("plugin") or [])
    values |= dict(_own_arguments(document))
    values |= {f"env:{key}": value for key, value in ((document.asked.get("arm") or {}).get("env") or {}).items()}
    return {factor: _told(value) for factor, value in values.items()}


def _last(resolved: Mapping[str, Any], keys: Iterable[str]) -> list[Any]:
    """What the last of the keys that has a value says, as a list; empty where none has."""
    return [value for key in keys if (value := resolved.get(key)) is not None][-1:]


def _told(value: Any) -> str:
    """A value as a reader would write it."""
    if isinstance(value, list):
        given = [item for item in value if item is not None]
        return ", ".join(item if isinstance(item, str) else canonical(item) for item in given) or "-"
    return str(value)


def differences(baseline: Mapping[str, str], arm: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """factor -> (baseline's value, the arm's), of those that differ; ``-`` where one does not have it."""
    pairs = {factor: (baseline.get(factor, "-"), arm.get(factor, "-")) for factor in dict.fromkeys((*baseline, *arm))}
    return {factor: pair for factor, pair in pairs.items() if pair[0] != pair[1]}


def covers(declared: Iterable[str], factor: str) -> bool:
    """Whether a difference is one of the declared factors: ``--compilation-config`` covers its keys, ``env:VLLM_X_*``
    the variables that begin so."""
    return any(factor.startswith(f"{name}.") or fnmatchcase(factor, name) for name in declared)


def refuse(runs: Runs, baseline: str, arm: str, declared: list[str] | None) -> str | None:
    """Why an arm differs from the baseline in more than the decision lets it; None when it does not.

    Every round of the arm is held against the baseline's first: a round that resolved otherwise is another arm.

    Args:
        declared: the decision's factors; None: whatever an arm declares for itself, but for ``NO_FACTORS``.
    """
    if arm == baseline or not runs.get(baseline):
        return None
    first = _documents(runs, baseline)[0]
    reference = settings_of(first)
    for document in _documents(runs, arm):
        for factor, (theirs, ours) in differences(reference, settings_of(document)).items():
            never = covers((f"--{flag}" for flag in NO_FACTORS), factor)
            if never or (declared is not None and not covers(declared, factor)):
                why = "is never a factor" if never else f"is not a factor of the decision ({', '.join(declared or [])})"
                return f"{factor}: baseline {theirs[:160]}, arm {ours[:160]} (round {document.round}); it {why}"
    return None


def _documents(runs: Runs, arm: str) -> list[Evidence]:
    """One document of each round: its tiers share a server."""
    return [next(iter(tiers.values())).document for _, tiers in sorted(runs[arm].items())]


def confounded(runs: Runs, baseline: str, arms: Collection[str]) -> list[Confounded]:
    """Factors in which one of ``arms`` differs from the baseline, when more than one factor does."""
    if not runs.get(baseline):
        return []
    reference, found = settings_of(_documents(runs, baseline)[0]), []
    for arm in runs:
        compared = arm in arms and arm != baseline
        differing = differences(reference, settings_of(_documents(runs, arm)[0])) if compared else {}
        if len(differing) > 1:
            found += [
                Confounded(arm=arm, factor=factor, baseline=theirs, value=ours)
                for factor, (theirs, ours) in differing.items()
            ]
    return found
