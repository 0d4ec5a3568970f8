"""KV-cache dtypes that a vLLM version accepts, so that a wrong one is refused before any server starts."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

# Used where the interpreter is not on this host (a dry run for another machine); read from the
# releases' vllm/config/cache.py. A newer version is not guessed at.
KNOWN = {
    "0.18.1": ("auto", "float16", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc", "fp8_ds_mla"),
}


@cache
def vllm_folder(python: str) -> Path | None:
    """The installed vllm package of an interpreter, found without running it; None when it is not there."""
    prefix = Path(python).parent.parent
    return next(iter(sorted(prefix.glob("lib/python3*/site-packages/vllm"))), None)


def read_dtypes(source: str) -> tuple[str, ...]:
    """Members of ``CacheDType`` in the text of vllm/config/cache.py; empty when it is not a Literal there."""
    for node in ast.parse(source).body:
        names = [t.id for t in getattr(node, "targets", []) if isinstance(t, ast.Name)]
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names = [node.target.id]
        if "CacheDType" in names and isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value:
            return tuple(
                n.value for n in ast.walk(node.value) if isinstance(n, ast.Constant) and isinstance(n.value, str)
            )
    return ()


@cache
def kv_cache_dtypes(python: str, version: str) -> tuple[str, ...]:
    """Values of ``--kv-cache-dtype``: of the interpreter's own vLLM, else of the declared version; empty: unknown."""
    folder = vllm_folder(python)
    if folder and (folder / "config/cache.py").is_file():
        found = read_dtypes((folder / "config/cache.py").read_text(encoding="utf-8"))
        if found:
            return found
    return KNOWN.get(version.split("+")[0], ())
