"""What must be equal for two measurements to be compared, whatever the decision.

An arm may differ from the baseline in what it declares (backend, KV dtype, block size, plugin, its own
arguments and environment), as far as the decision names it a factor (``factors``). A difference in anything else
makes the comparison meaningless, and it is refused: endpoint, content form (G25), prompts, model and tokenizer (one
digest), vLLM build (the full version, a vendor's suffix included), policy, host, and what the server says it is.

Where a platform declares several hosts of one kind (``device.hosts``), rounds of several are compared, but side by side
only those of one host (``schedule.elsewhere``). The folder in which the project lay on each does not matter then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from adrbench.decide.records import Runs, TierRun
from adrbench.evidence import Evidence, canonical

# Time limits do not change what is measured.
NOT_COMPARED = {"client_timeout_s", "ready_timeout_s", "timeout_s"}


def _declared_arguments(arm: Mapping[str, Any]) -> Counter[str]:
    # `auto` is the default and may be given explicitly.
    tokens = [*(arm.get("args") or []), "--kv-cache-dtype", str(arm.get("kv_cache_dtype") or "auto")]
    for key, flag in (("attention_backend", "--attention-backend"), ("block_size", "--block-size")):
        if arm.get(key) is not None:
            tokens += [flag, str(arm[key])]
    return Counter(tokens)


def _elsewhere(value: Any, folders: list[str]) -> Any:
    """A value in which the project's and the working folder are left out of paths."""
    if isinstance(value, str):
        for folder in folders:
            value = value.replace(f"{folder}/", "")
        return value
    if isinstance(value, dict):
        return {key: _elsewhere(inner, folders) for key, inner in value.items()}
    return [_elsewhere(inner, folders) for inner in value] if isinstance(value, list) else value


def _folders(server: Mapping[str, Any], platform: str) -> list[str]:
    """The folders that a server was started from: where the project's environments lie, and its converted model."""
    python, model = str(server.get("python")), str(server.get("model"))
    ends = python.partition("/.envs/"), model.partition(f"/models/{platform}")
    return sorted({before for before, found, _ in ends if found and before.startswith("/")}, key=len, reverse=True)


def _server(document: Evidence, several_hosts: bool) -> dict[str, Any]:
    """The server's settings without what the arm itself declares.

    On several hosts the project may lie in several folders: there its own paths are compared from that folder on.
    """
    asked = document.asked
    server, arm = asked.get("server") or {}, asked.get("arm") or {}
    if several_hosts:
        server, arm = (_elsewhere(one, _folders(server, document.platform)) for one in (server, arm))
    arguments = Counter(server.get("args") or [])
    arguments.subtract(_declared_arguments(arm))
    own = arm.get("env") or {}
    return {
        "server.args (of all arms)": sorted((+arguments).elements()),
        "server.env (of all arms)": {k: v for k, v in (server.get("env") or {}).items() if k not in own},
        "server.python": server.get("python"),
        "server.model": server.get("model"),
    }


def host_of(document: Evidence) -> Any:
    """Name of the host that a measurement says it ran on."""
    return document.resolved.get("host", document.asked.get("host"))


def serve_identity(document: Evidence, several_hosts: bool = False) -> dict[str, Any]:
    """What must not differ between arms and rounds of one tier, by name."""
    asked, resolved = document.asked, document.resolved
    settings = {f"serve.{k}": v for k, v in (asked.get("serve") or {}).items() if k not in NOT_COMPARED}
    return {
        "platform": document.platform,
        "host": None if several_hosts else host_of(document),
        "policy": asked.get("policy"),
        "content": asked.get("content"),
        "model_digest": asked.get("model_digest"),
        "vllm_version": resolved.get("vllm_version"),
        "tier": asked.get("tier"),
        "prompts_sha256": asked.get("prompts_sha256"),
        **settings,
        **_server(document, several_hosts),
    }


def eval_identity(document: Evidence, several_hosts: bool = False) -> dict[str, Any]:
    """What must not differ between the accuracy runs of two arms, by name."""
    asked, resolved = document.asked, document.resolved
    identity = asked.get("identity") or {}
    return {
        "platform": document.platform,
        "host": None if several_hosts else host_of(document),
        "model_digest": identity.get("model_digest"),
        "vllm_version": resolved.get("vllm_version"),
        "opencompass_version": resolved.get("opencompass_version"),
        "endpoint": resolved.get("endpoint"),
        **{
            key: asked.get(key) for key in ("tasks", "data_sha256", "content", "thinking", "temperature", "concurrency")
        },
        **_server(document, several_hosts),
    }


def difference(baseline: Mapping[str, Any], arm: Mapping[str, Any]) -> str | None:
    """The first thing in which two identities differ, with both values; None when they are equal."""
    for key in dict.fromkeys((*baseline, *arm)):
        if canonical(baseline.get(key)) != canonical(arm.get(key)):
            return f"{key}: baseline {canonical(baseline.get(key))[:160]}, arm {canonical(arm.get(key))[:160]}"
    return None


def refuse_serve(runs: Runs, baseline: str, arm: str, several_hosts: bool = False) -> str | None:
    """Why an arm's serving evidence cannot be compared with the baseline's; None when it can.

    Each tier of each round is held against the baseline's first round of that tier.
    """
    reference: dict[str, TierRun] = {}
    for _, tiers in sorted(runs.get(baseline, {}).items()):
        for tier, run in tiers.items():
            reference.setdefault(tier, run)
    for _, tiers in sorted(runs.get(arm, {}).items()):
        for tier, run in tiers.items():
            if tier in reference:
                both = [serve_identity(one.document, several_hosts) for one in (reference[tier], run)]
                found = difference(both[0], both[1])
                if found:
                    return f"{run.path} against {reference[tier].path}: {found}"
    return None


def refuse_eval(documents: Mapping[str, Evidence], baseline: str, arm: str, several_hosts: bool = False) -> str | None:
    """Why an arm's accuracy cannot be compared with the baseline's; None when it can."""
    return difference(*(eval_identity(documents[name], several_hosts) for name in (baseline, arm)))
