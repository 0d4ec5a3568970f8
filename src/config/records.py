"""Specifications of the jobs that turn evidence into records: verdict, lock, report, seal, page, figures.

Like those of measuring jobs (``jobs.py``), each holds the values that its job depends on and no others.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from adrbench.config import inputs
from adrbench.config.decision import Decision, Facts, Strategy
from adrbench.config.load import Run
from adrbench.config.servers import server
from adrbench.decide.interleave import Order
from adrbench.decide.spec import ElsewhereSpec
from adrbench.paths import ROOT

# What is drawn from the ceilings and profiles of a platform.
FIGURES = ("roofline", "shares", "bandwidth")


def figures(run: Run, language: str, ceiling_path: str, profiles: dict[str, str]) -> dict[str, Any]:
    return {
        "platform": run.platform.name,
        "language": language,
        "ceiling": ceiling_path,
        "profiles": profiles,
    }


def decide(run: Run, adr: str, evidence: dict[str, Any]) -> dict[str, Any]:
    """``DecideSpec`` of a comparison, ``FactsSpec`` of a record of facts; only the decision's own arms enter."""
    decision = run.decisions[adr]
    if isinstance(decision, Facts):
        return facts(run, decision, evidence)
    if isinstance(decision, Strategy):
        return strategy(run, decision, evidence)
    policy = decision.policy_for(run.platform.name)
    mine = inputs.arms(decision, run.platform)
    arms = [arm.model_dump(mode="json") for arm in mine]
    violations = {arm.name: [vars(violation) for violation in run.violations(arm, policy)] for arm in mine}
    return (
        _said(run)
        | _elsewhere(run, adr)
        | {
            "platform": run.platform.name,
            "decision": decision.model_dump(mode="json"),
            "policy": policy,
            "violations": violations,
            "arms": arms,
            "tiers": [tier.model_dump(mode="json") for tier in run.platform.tiers],
            "evidence": evidence,
            "gain_rule": decision.objective.gain_rule,
            "order_seed": run.platform.serve.order_seed,
        }
    )


def _several_hosts(run: Run) -> dict[str, Any]:
    """Said only where it is so: other platforms' documents keep their specifications."""
    return {"several_hosts": True} if run.platform.device.hosts == "several" else {}


def accuracy_elsewhere(run: Run, adr: str) -> dict[str, str]:
    """Accuracy of another model that a comparison shows beside its own evidence: arm -> path, of the files that exist.

    No other file is named: another platform's evidence is no target of this run.
    """
    decision, other = run.decisions.get(adr), run.accuracy_platform
    if other is None or not isinstance(decision, Decision) or decision.delta is None:
        return {}
    paths = {arm.name: f"results/{other.name}/eval/{arm.name}.json" for arm in other.arms}
    found = {arm: path for arm, path in paths.items() if Path(path).is_file()}
    return found if other.baseline.name in found else {}


def _elsewhere(run: Run, adr: str) -> dict[str, Any]:
    """``ElsewhereSpec`` of a comparison; said only where there is something to show."""
    other, paths = run.accuracy_platform, accuracy_elsewhere(run, adr)
    if other is None or not paths:
        return {}
    alike = ("attention_backend", "kv_cache_dtype", "plugin", "kv_simulation")
    mine = {arm.name: [getattr(arm, key) for key in alike] for arm in run.platform.arms}
    measured = [arm for arm in other.arms if arm.name in paths]
    found = {
        "platform": other.name,
        "title": other.title,
        "baseline": other.baseline.name,
        "titles": {arm.name: arm.title for arm in measured if arm.title},
        "same": [arm.name for arm in measured if mine.get(arm.name) == [getattr(arm, key) for key in alike]],
        "several_hosts": other.device.hosts == "several",
        "eval": paths,
    }
    return {"elsewhere": ElsewhereSpec.model_validate(found).model_dump(mode="json")}


def _said(run: Run) -> dict[str, Any]:
    """What a verdict must know of the platform, likewise."""
    return _several_hosts(run) | ({"random_weights": True} if run.platform.random_weights else {})


def noise_floor(run: Run, serve: dict[str, Any]) -> dict[str, Any]:
    """Specification of the baseline against itself.

    Args:
        serve: round -> tier -> path, of all rounds of the baseline.
    """
    order = Order({arm.name: len(run.rounds(arm)) for arm in run.serving_arms()}, run.platform.serve.order_seed)
    return _several_hosts(run) | {
        "platform": run.platform.name,
        "baseline": run.platform.baseline.name,
        "confidence": 0.95,
        "blocks": {number: order.block(run.platform.baseline.name, int(number)) for number in serve},
        "serve": serve,
    }


def strategy(run: Run, decision: Strategy, evidence: dict[str, Any]) -> dict[str, Any]:
    policy = decision.policy_for(run.platform.name)
    mine = inputs.arms(decision, run.platform)
    return _said(run) | {
        "platform": run.platform.name,
        "decision": decision.model_dump(mode="json"),
        "policy": policy,
        "baseline": run.platform.baseline.name,
        "arch": run.platform.device.arch,
        "arms": [arm.model_dump(mode="json") for arm in mine],
        "violations": {arm.name: [vars(broken) for broken in run.violations(arm, policy)] for arm in mine},
        "evidence": evidence,
    }


def facts(run: Run, decision: Facts, evidence: dict[str, Any]) -> dict[str, Any]:
    return {
        "platform": run.platform.name,
        "decision": decision.model_dump(mode="json"),
        "policy": decision.policy_for(run.platform.name),
        "baseline": run.platform.baseline.name,
        "baseline_title": run.platform.baseline.title and run.platform.baseline.title.model_dump(mode="json"),
        "declared": run.platform.device.model_dump(mode="json"),
        "tiers": [tier.model_dump(mode="json") for tier in run.platform.tiers],
        "evidence": evidence,
    }


def lock(run: Run, adr: str, verdict: str, folder: str, python: str) -> dict[str, Any]:
    """``LockSpec`` (lock/spec.py): the servers that the decision may choose among."""
    decision = run.decisions[adr]
    comparison = isinstance(decision, Decision)
    arms = [arm for arm in inputs.arms(decision, run.platform) if arm.expect_failure is None] if comparison else []
    # A lock serves with the arm's own mechanism: what a measurement expects of it is not part of it.
    keys = ("python", "model", "args", "env", "plugin")
    servers = {arm.name: server(run, arm, folder, python) for arm in arms}
    return {
        "platform": run.platform.name,
        "adr": adr,
        "number": decision.number,
        "verdict": verdict,
        "mechanisms": decision.mechanisms if isinstance(decision, Decision) else [],
        "arms": {name: {key: found[key] for key in keys} for name, found in servers.items()},
        "package": str(ROOT / "pythonpath"),
    }


def seal(
    run: Run,
    adr: str,
    decide_spec: dict[str, Any],
    report_evidence: Callable[[str], dict[str, Any]],
    lock_spec: dict[str, Any],
) -> dict[str, Any]:
    """``SealSpec`` (report/seal.py): what makes a report again from the same evidence."""
    return {
        "platform": run.platform.name,
        "adr": adr,
        "decision_file": str(ROOT / run.main.decisions / f"{adr}.yaml"),
        "decide": decide_spec,
        "lock": lock_spec,
        "reports": {
            language: report(run, adr, language, report_evidence(adr)) for language in run.main.report.languages
        },
    }


def figure_files(run: Run, language: str) -> dict[str, str]:
    """Figures beside the reports of one language, by name."""
    suffix = ".zh.svg" if language == "zh" else ".svg"
    return {name: f"reports/{run.platform.name}/profile/{name}{suffix}" for name in FIGURES}


def page(run: Run, evidence: dict[str, dict[str, Any]], **files: list[str]) -> dict[str, Any]:
    """``SiteSpec`` of the page, its figures and the tidy tables (report/site.py).

    Args:
        evidence: paths by stage of each decision, its verdict's among them.
        files: ``claim_files``, ``imported``, ``kernels``, ``documents``.
    """
    return {
        "platform": run.platform.model_dump(mode="json"),
        "decisions": [
            {"adr": adr, "decision": run.decisions[adr].model_dump(mode="json"), "evidence": paths}
            for adr, paths in evidence.items()
        ],
        "rejected": f"results/{run.platform.name}/rejected",
        **files,
    }


def report(run: Run, adr: str, language: str, evidence: dict[str, Any]) -> dict[str, Any]:
    return {
        "platform": run.platform.model_dump(mode="json"),
        "decision": run.decisions[adr].model_dump(mode="json"),
        "adr": adr,
        "language": language,
        "evidence": evidence,
        "rejected": f"results/{run.platform.name}/rejected",
        "languages": run.main.report.languages,
        "figures": figure_files(run, language) if evidence.get("profile") else {},
    }
