"""A job's specification as its pydantic model, with one form of refusal."""

from __future__ import annotations

from typing import Any, TypeVar

from adrbench.job import JobError
from pydantic import BaseModel, ValidationError

M = TypeVar("M", bound=BaseModel)


def parse(model: type[M], raw: dict[str, Any], stage: str) -> M:
    """The validated specification of a job of ``stage``.

    Raises:
        JobError: ``spec``, naming the key, what is wrong with it, and its value where it is a plain one.
    """
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "(whole specification)"
        found = "" if isinstance(first["input"], dict | list) else f" (found {str(first['input'])[:200]})"
        raise JobError("spec", f"{stage} specification: {where}: {first['msg']}{found}") from None
