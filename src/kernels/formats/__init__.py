"""The cache schemes. Adding one is adding a file here that defines ``SCHEMES``."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from adrbench.kernels.formats.scheme import Plane, Quantised, Scheme
from adrbench.kernels.formats.values import VALUES, ValueFormat

__all__ = ["VALUES", "Plane", "Quantised", "Scheme", "ValueFormat", "scheme", "schemes"]


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
