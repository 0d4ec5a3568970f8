"""What a claim expects of one found value, and the verdict when it is not met. Pure functions.

A condition is a plain value (equality), or a mapping with exactly one operator and, if wished, the
verdict of a miss::

    count: 24
    signature: {matches: "is_mamba.*False", otherwise: imprecise}
    share: {about: [0.038, 0.02]}            # value, relative tolerance

A field named ``lines`` is a place in a file, ``[first, last]``: see ``compare_lines``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

Verdict = Literal["holds", "imprecise", "moved", "unverified", "false"]

#: From best to worst: the verdict of a claim is the worst of its parts.
SEVERITY: tuple[Verdict, ...] = get_args(Verdict)


class ConditionError(ValueError):
    """An expectation cannot be read; the text names the field and what is allowed."""


def _about(found: Any, wanted: Any) -> bool:
    value, tolerance = wanted
    return bool(abs(float(found) - value) <= tolerance * abs(value))


OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "is": lambda found, wanted: found == wanted,
    "not": lambda found, wanted: found != wanted,
    "at_least": lambda found, wanted: found >= wanted,
    "at_most": lambda found, wanted: found <= wanted,
    "above": lambda found, wanted: found > wanted,
    "below": lambda found, wanted: found < wanted,
    "between": lambda found, wanted: wanted[0] <= found <= wanted[1],
    "about": _about,
    "has": lambda found, wanted: all(item in found for item in _items(wanted)),
    "lacks": lambda found, wanted: not any(item in found for item in _items(wanted)),
    "same_members": lambda found, wanted: sorted(map(str, found)) == sorted(map(str, wanted)),
    "matches": lambda found, wanted: re.search(wanted, str(found)) is not None,
}


def _items(wanted: Any) -> list[Any]:
    return wanted if isinstance(wanted, list) else [wanted]


@dataclass(frozen=True)
class Condition:
    """``operator`` applied to ``wanted``; ``otherwise`` is the verdict of a miss."""

    operator: str
    wanted: Any
    otherwise: Verdict


def parse(field: str, raw: Any) -> Condition:
    """Read one condition.

    Raises:
        ConditionError: unknown operator, more than one, a malformed operand, or an unknown verdict.
    """
    default: Verdict = "moved" if field == "path" else "false"
    if not isinstance(raw, dict):
        return Condition("lines" if field == "lines" else "is", raw, default)
    options = dict(raw)
    otherwise = options.pop("otherwise", default)
    if otherwise not in SEVERITY or otherwise == "holds":
        raise ConditionError(f"{field}: otherwise: {otherwise!r} is not one of {', '.join(SEVERITY[1:])}")
    if len(options) != 1 or not options.keys() <= OPERATORS.keys():
        raise ConditionError(
            f"{field}: {sorted(options)!r} must be one operator (and perhaps otherwise): {', '.join(sorted(OPERATORS))}"
        )
    operator, wanted = next(iter(options.items()))
    if operator in ("about", "between") and (not isinstance(wanted, list) or len(wanted) != 2):
        raise ConditionError(f"{field}: {operator} takes two numbers, not {wanted!r}")
    return Condition(operator, wanted, otherwise)


def compare_lines(found: list[int] | None, wanted: int | list[int]) -> Verdict:
    """Verdict on a quoted place: equal or inside holds, overlapping is imprecise, elsewhere is moved.

    ``wanted`` is one line, which holds anywhere inside ``found``, or ``[first, last]``, which must
    be the whole of ``found`` to hold. Lines count from 1, both ends included.
    """
    if found is None:
        return "false"
    if isinstance(wanted, int):
        return "holds" if found[0] <= wanted <= found[1] else "moved"
    if list(wanted) == list(found):
        return "holds"
    return "imprecise" if wanted[0] <= found[1] and found[0] <= wanted[1] else "moved"


def judge(found: Any, condition: Condition) -> Verdict:
    """Verdict of one field. A value of ``None`` was not found and meets only ``is: null`` and ``not``."""
    if condition.operator == "lines":
        return compare_lines(found, condition.wanted)
    if found is None and condition.operator not in ("is", "not"):
        return condition.otherwise
    return "holds" if OPERATORS[condition.operator](found, condition.wanted) else condition.otherwise


def worst(verdicts: list[Verdict]) -> Verdict:
    """The most severe verdict; ``holds`` for an empty list."""
    return max(verdicts, key=SEVERITY.index, default="holds")
