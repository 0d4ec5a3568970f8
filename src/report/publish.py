"""Copy reports into another folder so that their links to evidence still resolve.

python -m adrbench.report.publish reports/cpu/adr0011.md reports/cpu/adr0011.zh.md --to reports
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path

from adrbench.evidence import write_text

# A link's target, but not an anchor, a web address or an absolute path: in Markdown, and in the page.
RELATIVE_LINK = re.compile(r"(?<=\]\()(?![#/]|[a-z]+:)[^)\s]+(?=\))")
PAGE_LINK = re.compile(r'(?<=\shref=")(?![#/]|[a-z]+:)[^"]+(?=")|(?<=\sdata-root=")[^"]+(?=")')


def rebase(
    text: str, old: Path, new: Path, beside: frozenset[str] = frozenset(), links: re.Pattern[str] = RELATIVE_LINK
) -> str:
    """A text with its relative links rewritten for another folder.

    Args:
        old: folder of the text as it was rendered.
        new: folder that it is copied to.
        beside: file names that are copied along with it, so that links to them stay as they are.
        links: matches the targets to rewrite.
    """

    def moved(match: re.Match[str]) -> str:
        target = match.group(0)
        return target if target in beside else os.path.relpath(old / target, new).replace(os.sep, "/")

    return links.sub(moved, text)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m adrbench.report.publish")
    parser.add_argument("files", nargs="+", type=Path, help="reports to copy")
    parser.add_argument("--beside", nargs="*", default=[], type=Path, help="reports that are copied by another call")
    parser.add_argument("--to", required=True, type=Path, help="folder to copy them to")
    arguments = parser.parse_args()
    beside = frozenset(path.name for path in [*arguments.files, *arguments.beside])
    try:
        for path in arguments.files:
            text = path.read_text(encoding="utf-8")
            links = PAGE_LINK if path.suffix == ".html" else RELATIVE_LINK
            write_text(arguments.to / path.name, rebase(text, path.parent, arguments.to, beside, links))
    except OSError as error:
        sys.exit(f"adrbench report: {error.strerror or error}: {error.filename}")


if __name__ == "__main__":
    main()
