"""Write the figures of one platform: ``python -m adrbench.profile.draw --spec JSON --output FILE...``.

The files are named after the figures (``roofline.svg``, ``roofline.zh.svg``); the functions that draw them
are in :mod:`adrbench.profile.figures`. A figure that the evidence does not allow (no matrix rate, no profile)
is written all the same and says why, so that a report never links to nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from adrbench.evidence import EvidenceError, read, write_text
from adrbench.handover import received
from adrbench.profile.figures import LABELS, bandwidth, message, roofline, shares

# A figure in a file of its own inherits no colour: text and axes follow the reader's light or dark setting.
INK = "<style>svg{color:#24272b}@media (prefers-color-scheme:dark){svg{color:#e8e6e1}}</style>"


def with_ink(svg: str) -> str:
    """A figure that stands alone, with the colour of its text."""
    head, end, rest = svg.partition(">")
    return f"{head}{end}\n{INK}{rest}"


def by_label(profiles: dict[str, dict[str, Any]], section: str) -> dict[str, Any]:
    """One section of each profile's evidence; ``arm/tier`` is written ``arm, tier``."""
    return {name.replace("/", ", "): measured[section] for name, measured in profiles.items()}


def title(name: str, platform: str, language: str) -> str:
    return f"{LABELS[language]['title.' + name]} ({platform})"


def draw(name: str, spec: dict[str, Any], ceiling: dict[str, Any], profiles: dict[str, dict[str, Any]]) -> str:
    """One figure as SVG text; a message in its place where the evidence does not allow it.

    Args:
        ceiling: ``measured`` of the ceiling's evidence.
        profiles: by arm (or ``arm/tier``), ``measured`` of its profile.
    """
    language = spec["language"]
    headed = title(name, spec["platform"], language)
    figures: dict[str, Callable[[], str]] = {
        "roofline": lambda: roofline(ceiling, by_label(profiles, "bounds"), language, headed),
        "shares": lambda: shares(by_label(profiles, "phases"), language, headed),
        "bandwidth": lambda: bandwidth(ceiling, language, headed),
    }
    try:
        return figures[name]()
    except ValueError as error:
        return message(str(error), headed)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m adrbench.profile.draw")
    parser.add_argument("--spec", required=True, help="platform, language, ceiling and profiles as JSON, or @FILE")
    parser.add_argument("--output", required=True, nargs="+", type=Path, help="SVG files, named after the figures")
    arguments = parser.parse_args()
    try:
        spec = json.loads(received(arguments.spec))
        ceiling = read(Path(spec["ceiling"])).measured
        profiles = {name: read(Path(path)).measured for name, path in spec["profiles"].items()}
        for path in arguments.output:
            write_text(path, with_ink(draw(path.name.partition(".")[0], spec, ceiling, profiles)))
    except (EvidenceError, OSError) as error:
        sys.exit(f"adrbench figures: {error}")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        sys.exit(f"adrbench figures: specification: {error!r}; it names platform, language, ceiling and profiles")


if __name__ == "__main__":
    main()
