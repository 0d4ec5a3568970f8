"""Which schemes the kernels store and read, by what their planes are; no torch needed."""

from __future__ import annotations

from adrbench.kernels.formats.plane import Plane
from adrbench.kernels.formats.scheme import Scheme


def scope_of(scheme: Scheme) -> str:
    """What the kernels call the scheme's scale granularity: ``none``, ``static``, ``token`` or ``group``.

    Raises:
        NotImplementedError: keys and values differ, no kernel knows the granularity, or the scheme is windowed.
    """
    key, value = scheme.key, scheme.value
    plain = type(key) is Plane and not (key.depends_on_length or key.sink or key.limit)
    if (
        plain
        and key == value
        and key.scope == "row_group"
        and (key.group, key.values.bits, key.scale_bytes) == (32, 4, 2)
    ):
        return "group"
    names = {"none": "none", "tensor": "static", "head": "static", "token_head": "token"}
    if key != value or not plain or key.zero or key.scope not in names:
        raise NotImplementedError(f"{scheme.name}: no kernel for this scheme")
    return names[key.scope]


def check_windowed(scheme: Scheme) -> None:
    """Refuse windowed schemes other than KIVI's at 4 bit.

    Raises:
        NotImplementedError: naming the scheme.
    """
    key, value = scheme.key, scheme.value
    shape = (key.scope, key.values.bits, key.group, value.values.bits, value.group, value.scope, key.scale_bytes)
    if shape != ("channel", 4, 32, 4, 32, "row_group", 2):
        raise NotImplementedError(f"{scheme.name}: no kernel for this scheme")


def backend_problem(scheme: Scheme) -> str | None:
    """Why vLLM's backend CUSTOM cannot serve a scheme, None where it can."""
    try:
        if scheme.depends_on_length:
            check_windowed(scheme)
        elif scope_of(scheme) == "static":
            return f"{scheme.name} needs calibrated scales; use a scheme with one per token and head"
    except NotImplementedError as problem:
        return str(problem)
    return None
