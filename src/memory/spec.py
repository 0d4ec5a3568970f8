"""The specification of a memory job."""

from __future__ import annotations

from typing import Any

from adrbench import specs
from pydantic import BaseModel, ConfigDict, Field, model_validator


class ArmSpec(BaseModel):
    """One arm: the scheme it stores or simulates, and evidence that names its pool, the first that exists."""

    model_config = ConfigDict(extra="forbid")

    name: str
    scheme: str
    parameters: dict[str, Any] = {}
    simulated: bool
    pools: list[str] = []


class MemorySpec(BaseModel):
    """One platform's memory arithmetic. ``model`` is the served model's folder.

    ``cited`` names models by the folder of a published ``config.json``. ``lengths`` are request lengths in tokens,
    ``length`` is the one whose concurrency is given.
    """

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    platform: str
    baseline: str
    model: str
    model_evidence: str | None = None
    arms: list[ArmSpec] = Field(min_length=1)
    cited: dict[str, str] = {}
    lengths: list[int] = [4096, 32768]
    length: int = 32768

    @model_validator(mode="after")
    def _has_baseline(self) -> MemorySpec:
        if self.baseline not in [arm.name for arm in self.arms]:
            raise ValueError(f"arms: the baseline {self.baseline!r} is missing")
        return self


def parse_spec(raw: dict[str, Any]) -> MemorySpec:
    """The validated specification.

    Raises:
        JobError: ``spec``, naming the key and what is wrong with it.
    """
    return specs.parse(MemorySpec, raw, "memory")
