"""How a specification reaches its job: as one word of the command line, or in a file that the word names.

Linux takes 128 KiB a word, and a job's shell line is one. A decision on a thousand arms is longer: it lies in a file
named after its content's digest, so the word changes with the specification and only then: what reruns stays the same.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from pathlib import Path

from adrbench.evidence import digest_text, write_text

# Bytes of a quoted word. The shell line around it holds paths and is far shorter than the rest of 128 KiB.
LONGEST = 64 << 10
_NAMED = re.compile(r"[0-9a-f]{64}")


def hand_over(text: str, folder: Path, *, write: bool = True) -> str:
    """The word that stands for a specification on a command line.

    Args:
        folder: where long specifications are kept; made when it is needed.
        write: whether to write the file; a dry run needs its name only.
    """
    if len(shlex.quote(text).encode()) <= LONGEST and not text.startswith("@"):
        return text
    path = folder / f"{digest_text(text)}.json"
    if write and not path.is_file():
        write_text(path, text)
    return f"@{path}"


def received(word: str) -> str:
    """The specification that a word stands for: the text itself, or the content of ``@FILE``.

    Raises:
        ValueError: a file that is named after a digest and holds something else.
        OSError: the file cannot be read.
    """
    if not word.startswith("@"):
        return word
    path = Path(word[1:])
    content = path.read_bytes()
    if _NAMED.fullmatch(path.stem) and hashlib.sha256(content).hexdigest() != path.stem:
        raise ValueError(f"{path}: its content is not what its name says; delete it and run the workflow again")
    return content.decode()
