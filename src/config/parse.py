"""Data against a model of the configuration: each error names file, key, value and remedy."""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Iterator
from typing import Any, TypeVar

from adrbench.config.files import ConfigError
from pydantic import BaseModel, ValidationError

M = TypeVar("M", bound=BaseModel)

# Of an error's text.
SHOWN_CHARACTERS, SHOWN_PROBLEMS = 200, 40


def _where(loc: tuple[int | str, ...], data: Any) -> str:
    """A location as a reader would write it: list items by their name where they have one."""
    text = ""
    for part in loc:
        if isinstance(part, int):
            item = data[part] if isinstance(data, list) and part < len(data) else None
            name = item.get("name") or item.get("id") if isinstance(item, dict) else None
            text += f"[{name or part}]"
            data = item
        else:
            text += f".{part}" if text else part
            data = data.get(part) if isinstance(data, dict) else None
    return text or "(whole file)"


def _allowed_keys(model: type[BaseModel], loc: tuple[int | str, ...]) -> list[str]:
    """Keys that the section around a location knows."""
    current: Any = model
    for part in loc[:-1]:
        if isinstance(part, str) and hasattr(current, "model_fields") and part in current.model_fields:
            annotation = current.model_fields[part].annotation
            inner = [a for a in (annotation, *getattr(annotation, "__args__", ())) if hasattr(a, "model_fields")]
            current = inner[0] if inner else annotation
    return list(getattr(current, "model_fields", {}))


def shown(value: Any) -> str:
    """A value in an error's text, cut where it is long."""
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."


def _explain(path: str, data: Any, model: type[BaseModel], error: ValidationError) -> str:
    lines = []
    for issue in error.errors()[:SHOWN_PROBLEMS]:
        loc = issue["loc"]
        where = _where(loc, data)
        if issue["type"] == "extra_forbidden":
            keys = _allowed_keys(model, loc)
            near = difflib.get_close_matches(str(loc[-1]), keys, 1)
            hint = f"; did you mean `{near[0]}`?" if near else f"; allowed are {', '.join(keys)}"
            lines.append(f"{path}: {where}: unknown key (value {shown(issue['input'])}){hint}")
        elif issue["type"] == "missing":
            lines.append(f"{path}: {where}: this key is needed")
        else:
            message = issue["msg"].removeprefix("Value error, ")
            value = "" if isinstance(issue["input"], (dict, list)) else f"{shown(issue['input'])} is not valid; "
            lines.append(f"{path}: {where}: {value}{message}")
    if error.error_count() > SHOWN_PROBLEMS:
        lines.append(f"{path}: {error.error_count() - SHOWN_PROBLEMS} further problems")
    return "\n".join(lines)


def _unprintable(value: Any, loc: tuple[int | str, ...] = ()) -> Iterator[tuple[int | str, ...]]:
    """Where a text has control characters: no argument can hold NUL, and no report should print the others."""
    if isinstance(value, str) and any(unicodedata.category(sign) == "Cc" and sign not in "\n\t" for sign in value):
        yield loc
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _unprintable(inner, (*loc, str(key)))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _unprintable(inner, (*loc, index))


def parse(model: type[M], data: Any, path: str) -> M:
    """Validate ``data`` as ``model``.

    Raises:
        ConfigError: one line per problem.
    """
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: a mapping of keys is needed, found {type(data).__name__}")
    if found := list(_unprintable(data)):
        lines = [f"{path}: {_where(loc, data)}: control characters are not allowed; remove them" for loc in found]
        raise ConfigError("\n".join(lines[:SHOWN_PROBLEMS]))
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise ConfigError(_explain(path, data, model, error)) from None
