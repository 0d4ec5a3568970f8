"""JSON as management tools really print it.

``hy-smi --json`` has been seen without commas between members, with blank keys that repeat, and
behind a warning line. Only damage with exactly one reading is repaired; anything else is given
back as unreadable, because a half-guessed number would end up in a report.
"""

from __future__ import annotations

import json
import re
from typing import Any

TOKEN = re.compile(
    r'\s*(?:("(?:[^"\\]|\\.)*")|([{}\[\],:])|(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null)(?![\w.%]))'
)


class Unreadable(ValueError):
    """The text has no single reading as JSON; the message says where it stops making sense."""


def _tokens(text: str) -> list[str]:
    tokens, at = [], 0
    while text[at:].strip():
        match = TOKEN.match(text, at)
        if match is None:
            raise Unreadable(f"unexpected text at character {at}: {text[at : at + 20]!r}")
        tokens.append(match[1] or match[2] or match[3])
        at = match.end()
    return tokens


def _with_commas(tokens: list[str]) -> tuple[str, int, int]:
    """The tokens with a comma between a finished value and the next member; (text, added, dropped).

    Two values that follow each other can only be two members: there is no other JSON in which
    they meet. A comma before a closing bracket is dropped for the same reason.
    """
    out: list[str] = []
    added = dropped = 0
    for token in tokens:
        previous = out[-1] if out else ""
        ended = previous not in ("", "{", "[", ",", ":")
        if ended and token not in ("}", "]", ",", ":"):
            out.append(",")
            added += 1
        elif previous == "," and token in ("}", "]"):
            out.pop()
            dropped += 1
        out.append(token)
    return "".join(out), added, dropped


def _members(problems: list[str]) -> Any:
    """An object hook that drops blank keys and refuses a key with two different values."""

    def hook(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members: dict[str, Any] = {}
        for key, value in pairs:
            if not key.strip():
                problems.append("blank key dropped")
            elif key in members and members[key] != value:
                raise Unreadable(f"key {key!r} has two values, {members[key]!r} and {value!r}")
            else:
                members[key] = value
        return members

    return hook


def read(text: str) -> tuple[Any, list[str]]:
    """The JSON object in ``text``, and the problems that had to be repaired to read it.

    Raises:
        Unreadable: when there is no JSON object, or more than one way to read it.
    """
    start, end = text.find("{"), text.rfind("}")
    if start < 0 or end < start:
        raise Unreadable("no JSON object")
    around = ["text around the JSON object ignored"] if (text[:start] + text[end + 1 :]).strip() else []
    body = text[start : end + 1]
    problems = list(around)
    try:
        return json.loads(body, object_pairs_hook=_members(problems)), sorted(set(problems))
    except json.JSONDecodeError:
        problems = list(around)
    repaired, added, dropped = _with_commas(_tokens(body))
    if added:
        problems.append(f"{added} missing comma(s) added")
    if dropped:
        problems.append(f"{dropped} stray comma(s) dropped")
    try:
        return json.loads(repaired, object_pairs_hook=_members(problems)), sorted(set(problems))
    except json.JSONDecodeError as error:
        raise Unreadable(f"not JSON even with its commas repaired: {error.msg}") from None
