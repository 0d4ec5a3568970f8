"""Targets that a run cannot make because they are another platform's: Snakemake says only that no rule makes them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

FOLDERS = ("results", "reports", "logs", "history")


def of_another_platform(argv: Sequence[str], platform: str, known: Collection[str]) -> str | None:
    """What is wrong with the first target below another platform's folder, and the call that makes it; else None.

    Snakemake tells a Snakefile nothing of its targets, so they are looked for in the command line: words that are no
    option, do not follow a long one (its value, perhaps), and name no file that is there.
    """
    for before, target in zip(["", *argv], argv, strict=False):
        folder, name, *rest = (*Path(target).parts, "", "")
        if folder not in FOLDERS or name not in known or name == platform or not any(rest):
            continue
        if (before.startswith("--") and before != "--") or Path(target).exists():
            continue
        return (
            f"{target} is platform {name}'s, and this run is of platform {platform}: name the platform, as in\n"
            f"  snakemake --cores 1 --config platform={name} -- {target}\n"
            f"  make {target} PLATFORM={name}"
        )
    return None
