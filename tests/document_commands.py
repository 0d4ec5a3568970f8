"""Commands of the documents, found in code blocks and code spans."""

from __future__ import annotations

import re
from pathlib import Path

from adrbench.paths import ROOT

READMES = [ROOT / "README.md", ROOT / "README.zh-CN.md"]
DOCUMENTS = [
    *READMES,
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "config").rglob("*.md")),
]
# Words of a command that stand for what the reader fills in; `<...>` and all capitals are such words.
PLACEHOLDER = re.compile(r"<[^>]*>|\b[A-Z]{3,}\b|\.\.\.")
FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"(?<!`)`([^`\n]+(?:\n[^`\n]+)?)`(?!`)")
PROGRAMS = (
    r"make|snakemake|python[\d.]*|sh|bash|pytest|pip|export|source|git|apt-get|curl|docker|sbatch|scancel|\w+\.sh"
)
COMMAND = re.compile(rf"^(?:cd \S+ && )?(?:[A-Z]+=\S+ )*(?:\S*/)?({PROGRAMS})(?= )")


def plain(line: str) -> str:
    """A line of code without its remark."""
    return re.sub(r"\s+#.*", "", line.strip())


def code_lines(path: Path) -> list[str]:
    """Lines of a document's fenced shell blocks, of those without a language, and of its indented ones."""
    text = path.read_text(encoding="utf-8")
    blocks = [body for language, body in FENCE.findall(text) if language in ("", "sh", "bash")]
    lines = [line for block in blocks for line in block.splitlines() if line.strip()]
    return [plain(line) for line in lines + re.findall(r"^    (\S.*)$", FENCE.sub("", text), re.MULTILINE)]


def commands(path: Path) -> list[str]:
    """Commands of a document: code lines and code spans that start with a program, without their remarks."""
    prose = re.sub(r"^    \S.*$", "", FENCE.sub("", path.read_text(encoding="utf-8")), flags=re.MULTILINE)
    spans = [plain(" ".join(span.split())) for span in SPAN.findall(prose)]
    return [line for line in code_lines(path) + spans if COMMAND.match(line)]


ALL = [(path, command) for path in DOCUMENTS for command in commands(path)]
