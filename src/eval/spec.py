"""The specification of an accuracy job."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from adrbench.job import JobError
from pydantic import BaseModel, ConfigDict, Field, ValidationError


class TaskSpec(BaseModel):
    """One task of the run; ``length_tokens`` is the length of the user message.

    ``task`` is its class, where several lengths of one class have names of their own.
    """

    model_config = ConfigDict(extra="forbid")

    name: str
    task: str | None = None
    length_tokens: int = Field(ge=128)
    samples: int = Field(ge=2)
    max_new_tokens: int | None = Field(None, gt=0)
    seed: int = 0

    @property
    def kind(self) -> str:
        """The task class."""
        return self.task or self.name


class EvalSpec(BaseModel):
    """One arm's accuracy run.

    ``server`` goes to the serving context manager as it is. ``data`` names folders of real test
    sets by collection (``longbench``, ``ruler``); a task without one gets generated texts.
    ``eval_python`` is an interpreter, or ``@FILE`` with ``{"python": ...}`` where Snakemake makes the environment.
    ``model_evidence`` is the evidence of the model job: its digest enters this job's evidence.
    """

    model_config = ConfigDict(extra="forbid")

    platform: str
    arm: dict[str, Any]
    server: dict[str, Any]
    eval_python: str
    opencompass_version: str = "0.5.4"
    model: str
    tasks: list[TaskSpec] = Field(min_length=1)
    control: bool = False
    concurrency: int = Field(4, gt=0)
    timeout_s: float = Field(3600.0, gt=0)
    request_timeout_s: int = Field(600, gt=0)
    thinking: Literal["none", "off", "on"] = "none"
    data: dict[str, str] = {}
    model_evidence: str | None = None


def parse_spec(spec: dict[str, Any]) -> EvalSpec:
    """The validated specification.

    Raises:
        JobError: ``spec``, naming the key, its value and what is allowed.
    """
    try:
        parsed = EvalSpec.model_validate(spec)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise JobError("spec", f"eval specification: {where}: {first['msg']} (found {first.get('input')!r})") from None
    if "name" not in parsed.arm:
        raise JobError("spec", "eval specification: arm.name is missing")
    return parsed.model_copy(update={"eval_python": interpreter(parsed.eval_python)})


def interpreter(value: str) -> str:
    """The path of an interpreter, read from a file when ``value`` is ``@FILE``.

    Raises:
        JobError: ``spec`` when the file does not say.
    """
    if not value.startswith("@"):
        return value
    try:
        return str(json.loads(Path(value[1:]).read_text(encoding="utf-8"))["python"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise JobError("spec", f"eval_python: {value[1:]} names no interpreter ({error!r})") from None
