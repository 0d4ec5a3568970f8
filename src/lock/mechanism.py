"""Which mechanism puts an arm's attention backend into vLLM: exactly one, or the lock is refused (C14). Pure.

flag      ``--attention-backend``, in any of its spellings, or nothing: vLLM's own choice
priority  the plugin's L2, or one of vLLM's variables that put an aiter backend first
register  the plugin's L3: a registered class, selected by the flag where it stands for CUSTOM
"""

from __future__ import annotations

from dataclasses import dataclass

from adrbench.config import policy
from adrbench.lock.spec import MechanismName
from adrbench.serve.spec import ServerSpec, random_weights

# Variables that change the order of `_get_backend_priorities` (vllm/platforms/rocm.py:309-352), and what they prefer.
AITER = "VLLM_ROCM_USE_AITER"
PRIORITY_VARIABLES = {
    "VLLM_ROCM_USE_AITER_UNIFIED_ATTENTION": "ROCM_AITER_UNIFIED_ATTN",
    "VLLM_ROCM_USE_AITER_MHA": "ROCM_AITER_FA",
}
PLUGIN_KEYS = {"mechanism", "priority", "backend", "base", "scheme"}


class LockRefused(ValueError):
    """The arm cannot be locked; the text says which mechanisms meet or what is not allowed."""


@dataclass(frozen=True)
class Mechanism:
    """``backend`` None: vLLM's own choice."""

    name: MechanismName
    backend: str | None


def flag_values(args: list[str]) -> list[str]:
    """Backends that an argv of ``vllm serve`` names, each once."""
    found = [
        setting.value
        for setting in policy.settings(args)
        if setting.path == ("attention-backend",) or setting.path == ("attention-config", "backend")
    ]
    return list(dict.fromkeys(found))


def variable_choice(env: dict[str, str]) -> str | None:
    """The backend that vLLM's variables put first, None when they put none."""
    if env.get(AITER, "0") != "1":
        return None
    return next((backend for name, backend in PRIORITY_VARIABLES.items() if env.get(name) == "1"), None)


def mechanism_of(server: ServerSpec) -> Mechanism:
    """The one mechanism of an arm.

    A variable that prefers the backend which the flag names is no second mechanism: an explicit choice is only
    validated, the list is not consulted (vllm/platforms/rocm.py:453-457).

    Raises:
        LockRefused: none or several are active, or the plugin does more than choose a backend.
    """
    if random_weights(server.args):
        raise LockRefused(
            "it was measured with random weights (--load-format dummy); decide on a real model and lock that"
        )
    if "VLLM_ATTENTION_BACKEND" in server.env:
        raise LockRefused("VLLM_ATTENTION_BACKEND does not exist in vLLM (C15); remove it from the arm's `env`")
    extra = sorted(set(server.plugin) - PLUGIN_KEYS)
    if extra:
        raise LockRefused(f"the plugin's {', '.join(extra)} is for measuring, not for serving; it cannot be locked")
    flags, variable = flag_values(server.args), variable_choice(server.env)
    if len(flags) > 1:
        raise LockRefused(f"--attention-backend is given with {' and '.join(flags)} (C14); keep one of them")
    flag = flags[0] if flags else None
    if server.plugin.get("mechanism") == "L3":
        backend = str(server.plugin["backend"])
        if (flag and flag != backend) or variable:
            raise LockRefused(_two(f"register {backend}", f"flag {flag}" if flag else f"variables for {variable}"))
        return Mechanism("register", backend)
    if server.plugin.get("mechanism") == "L2":
        backend = str(server.plugin["priority"][0])
        if flag or variable:
            raise LockRefused(_two(f"priority {backend}", f"flag {flag}" if flag else f"variables for {variable}"))
        return Mechanism("priority", backend)
    if flag and variable and flag != variable:
        raise LockRefused(_two(f"flag {flag}", f"variables for {variable}"))
    if flag is None and variable:
        return Mechanism("priority", variable)
    return Mechanism("flag", flag)


def _two(first: str, second: str) -> str:
    return f"two mechanisms are active (C14): {first} and {second}; keep one of them in the arm"
