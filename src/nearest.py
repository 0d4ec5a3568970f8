"""A name that there is not: the nearest and all that there are. Standard library only, as set-up reads it too."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path


def names_of(folder: Path) -> list[str]:
    """Names of a folder's YAML files, without their ending."""
    return sorted(path.stem for path in folder.glob("*.yaml"))


def _plain(name: str) -> str:
    return name.lower().replace("_", "-")


def nearest(name: str, known: Sequence[str]) -> str | None:
    """The known name that a reader most likely meant, however it is capitalised; None when none is near."""
    plain = {_plain(one): one for one in known}
    near = difflib.get_close_matches(_plain(name), plain, 1)
    return plain[near[0]] if near else None


def choice(name: str, known: Sequence[str]) -> str:
    """What to write instead of ``name``: "did you mean `h200`? There are cpu, h200"."""
    near = nearest(name, known)
    there = f"there are {', '.join(known)}"
    return f"did you mean `{near}`? T{there[1:]}" if near else there
