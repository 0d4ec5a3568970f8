"""The L3 probe: an attention backend class of ours that vLLM runs in place of its own.

It subclasses the backend it replaces and changes nothing in the arithmetic, so the served output must
equal the baseline's: that equality, and the report from the engine process, are what the integration
check of ADR 0011 block A measures. A backend with its own kernels takes the same road.
"""

from __future__ import annotations

from typing import Any

from adrbench.serve import plugin


def _base() -> type:
    """The class that vLLM ships for the backend to subclass (``base``, or the overridden one)."""
    from vllm.utils.import_utils import resolve_obj_by_qualname
    from vllm.v1.attention.backends.registry import AttentionBackendEnum

    wanted = plugin.settings()
    member = AttentionBackendEnum[wanted.get("base") or wanted["backend"]]
    found: type = resolve_obj_by_qualname(member.value)
    return found


_Base: Any = _base()


class OverrideImpl(_Base.get_impl_cls()):  # type: ignore[misc]
    """The shipped implementation, reporting once that an attention layer was built with it."""

    _reported = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not OverrideImpl._reported:
            OverrideImpl._reported = True
            implementation = f"{type(self).__module__}.{type(self).__qualname__}"
            plugin.report(mechanism="L3", implementation=implementation, base=_Base.__qualname__)


class OverrideBackend(_Base):  # type: ignore[misc]
    """The shipped backend with our implementation class; name, metadata builder and layout are inherited."""

    @staticmethod
    def get_impl_cls() -> type:
        return OverrideImpl
