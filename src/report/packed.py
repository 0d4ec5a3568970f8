"""Long specifications on a command line: Linux takes 128 KiB a word, and a shell line is one word."""

from __future__ import annotations

import base64
import binascii
import zlib
from pathlib import Path

MARK = "z:"


def pack(text: str) -> str:
    """A text as one word of letters, digits, ``+``, ``/`` and ``=``, several times shorter."""
    return MARK + base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def unpack(word: str) -> str:
    """What ``pack`` made of a text; ``@FILE`` reads a file; anything else is the text itself.

    Raises:
        ValueError: a packed word that was cut or changed.
        OSError: the file cannot be read.
    """
    if word.startswith("@"):
        return Path(word[1:]).read_text(encoding="utf-8")
    if not word.startswith(MARK):
        return word
    try:
        return zlib.decompress(base64.b64decode(word[len(MARK) :], validate=True)).decode()
    except (binascii.Error, zlib.error, UnicodeDecodeError) as error:
        raise ValueError(f"the packed specification cannot be read ({error})") from None
