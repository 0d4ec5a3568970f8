"""The specification of a calibration job."""

from __future__ import annotations

from typing import Any

from adrbench import specs
from pydantic import BaseModel, ConfigDict, Field


class SchemeSpec(BaseModel):
    """A scheme with static values, and the parameters under which arms simulate it."""

    model_config = ConfigDict(extra="forbid")

    name: str
    parameters: dict[str, Any] = {}


class CalibrateSpec(BaseModel):
    """One model's calibration: ``segments`` texts of ``tokens`` tokens, from ``seed``."""

    model_config = ConfigDict(extra="forbid")

    platform: str
    model: str
    model_evidence: str
    schemes: list[SchemeSpec] = Field(min_length=1)
    segments: int = Field(4, ge=1)
    tokens: int = Field(1024, ge=64)
    seed: int = 0
    dtype: str = "bfloat16"


def parse_spec(raw: dict[str, Any]) -> CalibrateSpec:
    """The validated specification.

    Raises:
        JobError: ``spec``, naming the key and what is wrong with it.
    """
    return specs.parse(CalibrateSpec, raw, "calibrate")
