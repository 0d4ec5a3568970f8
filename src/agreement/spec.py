"""Specifications of the two agreement jobs: the replay of one arm, and the comparison of all arms."""

from __future__ import annotations

from typing import Any, TypeVar

from adrbench import specs
from pydantic import BaseModel, ConfigDict, Field, model_validator


class TextSpec(BaseModel):
    """The text that is replayed: ``segments`` documents of ``tokens`` tokens each, from ``seed``."""

    model_config = ConfigDict(extra="forbid")

    segments: int = Field(ge=2)
    tokens: int = Field(ge=64)
    seed: int = 0


class ReplaySpec(BaseModel):
    """One replay: one arm on one fresh server.

    ``server`` goes to the serving context manager as it is. ``top`` log-probabilities are asked at each position.
    ``chunk_tokens`` limits the tokens of one prefill step (None: as the server does by default).
    """

    model_config = ConfigDict(extra="forbid")

    platform: str
    arm: dict[str, Any]
    round: int = Field(ge=1)
    server: dict[str, Any]
    model: str
    model_evidence: str | None = None
    text: TextSpec
    top: int = Field(20, ge=1)
    concurrency: int = Field(1, ge=1)
    chunk_tokens: int | None = Field(None, ge=1)
    request_timeout_s: float = Field(600.0, gt=0)


class CompareSpec(BaseModel):
    """The comparison of all replays with the baseline's first one.

    ``replays``: arm -> round -> evidence. ``edges`` split positions by the number of tokens before them: ``[256]``
    gives the buckets 1-256 and 257-(tokens - 1).
    """

    model_config = ConfigDict(extra="forbid")

    platform: str
    baseline: str
    replays: dict[str, dict[int, str]]
    edges: list[int] = []
    confidence: float = Field(0.95, gt=0.5, lt=1)

    @model_validator(mode="after")
    def _has_baseline(self) -> CompareSpec:
        if not self.replays.get(self.baseline):
            raise ValueError(f"replays: the baseline {self.baseline!r} is missing")
        if sorted(set(self.edges)) != self.edges:
            raise ValueError(f"edges: {self.edges} must rise")
        return self


S = TypeVar("S", bound=BaseModel)


def parse_spec(model: type[S], raw: dict[str, Any]) -> S:
    """The validated specification.

    Raises:
        JobError: ``spec``, naming the key, its value and what is allowed.
    """
    return specs.parse(model, raw, "agreement")
