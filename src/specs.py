"""A job's specification as its pydantic model, with one form of refusal."""

from __future__ import annotations

from typing import Any, TypeVar

from adrbench.job import JobError
from pydantic import BaseModel, ValidationError

M = TypeVar("M", bound=BaseModel)


def parse(model: type[M], raw: dict[str, Any], stage: str) -> M:
    """The validated specification of a job of ``stage``.

    Raises:
        JobError: ``spec``, naming the key and what is wrong with it.
    """
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "(whole specification)"
        raise JobError("spec", f"{stage} specification: {where}: {first['msg']}") from None
