"""Secrets do not belong into a configuration: it travels in specifications, evidence, logs and reports."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from adrbench.redact import is_secret_name, looks_secret

# Variables that make vLLM unpickle what it is sent, or let anybody change a running server.
UNSAFE_VARIABLES = {
    "VLLM_ALLOW_INSECURE_SERIALIZATION": "it makes vLLM unpickle what it is sent",
    "VLLM_SERVER_DEV_MODE": "it opens endpoints that change a running server",
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "it lets a request load files of the host",
}


def texts(value: Any, where: str = "") -> Iterator[tuple[str, str]]:
    """Every text of a nested value, with its place."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from texts(inner, f"{where}.{key}" if where else str(key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            name = inner.get("name", index) if isinstance(inner, dict) else index
            yield from texts(inner, f"{where}[{name}]")
    elif isinstance(value, str):
        yield where, value


def problems(values: dict[str, Any], file: str) -> list[str]:
    """Texts of a platform that look like secrets, and variables that hold one or are unsafe; no value is repeated."""
    found = [
        f"{file}: {where}: this looks like a token or a password; a configuration ends up in evidence, logs and "
        "reports: remove it (models are local folders, nothing is fetched with it)"
        for where, text in texts(values)
        if looks_secret(text)
    ]
    environments = [("serve.env", values.get("serve", {}).get("env", {}))]
    environments += [(f"arms[{arm['name']}].env", arm.get("env", {})) for arm in values.get("arms", [])]
    for where, environment in environments:
        for name in environment:
            if is_secret_name(name):
                found.append(f"{file}: {where}.{name}: a secret does not belong into a configuration; remove it")
            elif reason := UNSAFE_VARIABLES.get(name):
                found.append(f"{file}: {where}.{name}: {reason}; remove it")
    return found
