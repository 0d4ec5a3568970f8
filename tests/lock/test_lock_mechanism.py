"""Exactly one mechanism puts a backend into vLLM, or the lock is refused (C14)."""

from __future__ import annotations

from typing import Any

import pytest
from adrbench.lock.mechanism import LockRefused, mechanism_of
from adrbench.serve.spec import ServerSpec

AITER = {"VLLM_ROCM_USE_AITER": "1"}
UNIFIED = AITER | {"VLLM_ROCM_USE_AITER_UNIFIED_ATTENTION": "1"}


def server(args: list[str] | None = None, env: dict[str, str] | None = None, **plugin: Any) -> ServerSpec:
    return ServerSpec(python="python3", model="/models/m", args=args or [], env=env or {}, plugin=plugin)


@pytest.mark.parametrize(
    ("spec", "name", "backend"),
    [
        (server(), "flag", None),
        (server(["--attention-backend", "TRITON_ATTN"]), "flag", "TRITON_ATTN"),
        (server(["--attention_backend=TRITON_ATTN"]), "flag", "TRITON_ATTN"),
        (server(["-ac", '{"backend": "TRITON_ATTN"}']), "flag", "TRITON_ATTN"),
        (server(env=UNIFIED), "priority", "ROCM_AITER_UNIFIED_ATTN"),
        (server(["--attention-backend", "ROCM_AITER_UNIFIED_ATTN"], UNIFIED), "flag", "ROCM_AITER_UNIFIED_ATTN"),
        (server(mechanism="L2", priority=["ROCM_ATTN"]), "priority", "ROCM_ATTN"),
        (server(mechanism="L3", backend="CPU_ATTN"), "register", "CPU_ATTN"),
        (server(["--attention-backend", "CUSTOM"], mechanism="L3", backend="CUSTOM"), "register", "CUSTOM"),
        (server(mechanism="L3", backend="CUSTOM", scheme="int8_per_token_head"), "register", "CUSTOM"),
    ],
)
def test_one_mechanism_is_recognised(spec: ServerSpec, name: str, backend: str | None) -> None:
    found = mechanism_of(spec)
    assert (found.name, found.backend) == (name, backend)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (server(["--attention-backend", "A"], mechanism="L2", priority=["B"]), ["C14", "priority B", "flag A"]),
        (server(["--attention-backend", "A"], mechanism="L3", backend="B"), ["C14", "register B", "flag A"]),
        (server(env=UNIFIED, mechanism="L2", priority=["B"]), ["C14", "priority B", "ROCM_AITER_UNIFIED_ATTN"]),
        (server(env=UNIFIED, mechanism="L3", backend="B"), ["C14", "register B", "ROCM_AITER_UNIFIED_ATTN"]),
        (server(["--attention-backend", "TRITON_ATTN"], UNIFIED), ["C14", "TRITON_ATTN", "ROCM_AITER_UNIFIED_ATTN"]),
        (server(["--attention-backend", "A", "-ac", '{"backend": "B"}']), ["C14", "A and B"]),
        (server(env={"VLLM_ATTENTION_BACKEND": "A"}), ["C15"]),
        (server(simulate="int4"), ["simulate", "cannot be locked"]),
        (server(["--load-format", "dummy"]), ["random weights", "real model"]),
    ],
)
def test_two_mechanisms_are_refused(spec: ServerSpec, words: list[str]) -> None:
    with pytest.raises(LockRefused) as refused:
        mechanism_of(spec)
    assert [word for word in words if word not in str(refused.value)] == []
