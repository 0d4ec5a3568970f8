"""What a job needs to start one arm's server; part of every serving job's specification."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Literal

from adrbench.model.shapes import RANDOM_WEIGHTS
from adrbench.paths import interpreter
from pydantic import BaseModel, ConfigDict, Field, field_validator


def random_weights(args: Sequence[str]) -> bool:
    """Whether an argv of ``vllm serve`` makes vLLM fill the model with random weights."""
    words = " ".join(args).replace("=", " ").split()
    return any(pair == ("--load-format", "dummy") for pair in itertools.pairwise(words))


def weight_notes(args: Sequence[str]) -> list[str]:
    """What the evidence of a server says of its weights."""
    return [RANDOM_WEIGHTS] if random_weights(args) else []


class Expect(BaseModel):
    """Settings that vLLM must have resolved, or the measurement is of something else. None: any value."""

    model_config = ConfigDict(extra="forbid")

    attention_backend: str | None = None
    kv_cache_dtype: str | None = None
    block_size: int | None = None
    vllm_version: str | None = None
    plugin: str | None = Field(
        None, description="mechanism that our plugin must report as active in the engine process"
    )
    kv_simulation: str | None = Field(
        None, description="KV-cache scheme that our plugin must report as simulated in the engine process"
    )


class ServerSpec(BaseModel):
    """One arm's server.

    ``args`` is the argv after ``vllm serve MODEL``, without host, port, API key and served name,
    which the job owns. ``plugin`` holds settings of our ``vllm.general_plugins`` entry point.
    """

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    python: str
    model: str
    args: list[str] = []
    env: dict[str, str] = {}
    plugin: dict[str, Any] = {}
    expect: Expect = Expect()
    port: int | None = None
    device_kind: Literal["cpu", "nvidia", "amd", "hygon"] = "cpu"
    ready_timeout_s: float = 300.0
    stop_grace_s: float = 20.0

    @field_validator("python")
    @classmethod
    def _known_interpreter(cls, value: str) -> str:
        return interpreter(value)
