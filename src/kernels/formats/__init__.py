"""The cache schemes. Adding one is adding a file here that defines ``SCHEMES``."""

from __future__ import annotations

import importlib
import os
import pkgutil
from functools import cache

from adrbench.kernels.formats.scheme import Plane, Quantised, Scheme
from adrbench.kernels.formats.values import VALUES, ValueFormat

__all__ = ["VALUES", "Plane", "Quantised", "Scheme", "ValueFormat", "refusal", "scheme", "schemes"]

WRONG_WHEN_COMPILED = {
    "int4_g32": "its decode kernel was wrong on an H200 at head_dim 128 and 256 because of a fault of ptxas; "
    "corrected, but not yet proved on a GPU (docs/kernels.md); use int4_per_token_head"
}
"""Schemes whose compiled decode is not to be trusted, and what to use instead."""

PROVING = "ADRBENCH_PROVE_KERNELS"
"""Set to 1, this environment variable lets tests run what ``WRONG_WHEN_COMPILED`` refuses."""


def refusal(name: str) -> str | None:
    """Why no server may use the scheme; None where it may."""
    return None if os.environ.get(PROVING) == "1" else WRONG_WHEN_COMPILED.get(name)


@cache
def schemes() -> dict[str, Scheme]:
    """Every scheme by name, found in this package's modules.

    Raises:
        ValueError: two files define the same name.
    """
    found: dict[str, Scheme] = {}
    for module_info in sorted(pkgutil.iter_modules(__path__), key=lambda info: info.name):
        module = importlib.import_module(f"{__name__}.{module_info.name}")
        for entry in getattr(module, "SCHEMES", ()):
            if entry.name in found:
                raise ValueError(f"{module.__name__}: scheme {entry.name!r} is defined twice")
            found[entry.name] = entry
    return found


def scheme(name: str) -> Scheme:
    """One scheme.

    Raises:
        KeyError: naming the schemes that exist.
    """
    try:
        return schemes()[name]
    except KeyError:
        raise KeyError(f"unknown cache scheme {name!r}; known: {', '.join(schemes())}") from None
