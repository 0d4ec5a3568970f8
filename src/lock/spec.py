"""The specification of a lock job, and the document that it writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from adrbench import specs
from adrbench.config.section import Text
from adrbench.serve.spec import ServerSpec
from pydantic import BaseModel, ConfigDict

SCHEMA_VERSION = 1

MechanismName = Literal["flag", "priority", "register"]


class LockSpec(BaseModel):
    """One decision on one platform. ``arms``: servers by arm, empty for a record of facts.

    ``mechanisms`` are those that the decision allows, in order of preference; ``package`` is the folder that puts the
    plugin on PYTHONPATH.
    """

    model_config = ConfigDict(extra="forbid")

    platform: str
    adr: str
    number: str
    verdict: Path
    mechanisms: list[MechanismName]
    arms: dict[str, ServerSpec]
    package: str


class Lock(BaseModel):
    """What was rendered, or why nothing was. ``files``: name -> SHA-256, beside this document.

    ``open``: the decision is not accepted. ``refused``: it is, but would need two mechanisms (C14), or one that it
    does not allow. ``none``: a record of facts.
    """

    model_config = ConfigDict(extra="forbid")

    schema_version: int = SCHEMA_VERSION
    platform: str
    adr: str
    state: Literal["locked", "open", "refused", "none"]
    reason: Text
    option: str | None = None
    arm: str | None = None
    mechanism: MechanismName | None = None
    backend: str | None = None
    evidence_digest: str = ""
    files: dict[str, str] = {}


def parse_spec(raw: dict[str, Any]) -> LockSpec:
    """The validated specification.

    Raises:
        JobError: ``spec``, naming the key and what is wrong with it.
    """
    return specs.parse(LockSpec, raw, "lock")
