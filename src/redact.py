"""Secrets: what looks like one, and how it is kept out of logs, evidence and reports.

Standard library only: part of every job.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

MARK = "[redacted]"
# Forms of tokens that their issuers publish: Hugging Face, OpenAI, GitHub, GitLab, AWS, Google, Slack.
TOKEN = re.compile(
    r"\bhf_[A-Za-z0-9]{20,}|\bsk-[A-Za-z0-9_-]{20,}|\bgh[opsur]_[A-Za-z0-9]{30,}|\bgithub_pat_[A-Za-z0-9_]{30,}"
    r"|\bglpat-[A-Za-z0-9_-]{20,}|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bAIza[A-Za-z0-9_-]{35}|\bxox[abprs]-[A-Za-z0-9-]{10,}"
)
BEARER = re.compile(r"(?i)(\bbearer\s+)(?!\[redacted\])[A-Za-z0-9._~+/-]{16,}=*")
# In a URL: scheme://user:password@host
USERINFO = re.compile(r"(\b[a-z][a-z0-9+.-]*://[^\s/:@]*):[^\s/@]+@")
# Names of variables that hold a secret; TOKENIZERS_PARALLELISM and MAX_TOKENS do not.
NAME = re.compile(
    r"(?i)(^|_)(token|secret|passw(or)?d|passphrase|credentials?|api_?key|access_?key|secret_?key|private_?key)(_|$)"
)


def is_secret_name(name: str) -> bool:
    """Whether a variable of this name holds a secret."""
    return bool(NAME.search(name))


def looks_secret(text: str) -> bool:
    """Whether a text contains a token in a published form, or a URL with a password."""
    return bool(TOKEN.search(text) or USERINFO.search(text))


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """``text`` without the given secrets and without anything that has a token's form."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, MARK)
    text = TOKEN.sub(MARK, text)
    text = BEARER.sub(rf"\1{MARK}", text)
    return USERINFO.sub(rf"\1:{MARK}@", text)


def redact_file(path: Path, secrets: Iterable[str] = ()) -> bool:
    """Rewrite a log in place where it holds a secret, line by line; whether it did. A missing file holds none."""
    secrets = list(secrets)
    temporary = path.with_name(f".{path.name}.redacted")
    changed = False
    try:
        with (
            open(path, encoding="utf-8", errors="surrogateescape", newline="") as old,
            open(temporary, "w", encoding="utf-8", errors="surrogateescape", newline="") as new,
        ):
            for line in old:
                clean = redact(line, secrets)
                changed = changed or clean != line
                new.write(clean)
        if changed:
            os.replace(temporary, path)
    except FileNotFoundError:
        return False
    finally:
        temporary.unlink(missing_ok=True)
    return changed
