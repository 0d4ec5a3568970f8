"""Calls of our own beside what vLLM's executor tells its workers. Standard library only, until it is called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_DONE: set[tuple[str, str]] = set()


def around(
    name: str, who: str, before: Callable[[Any], None] | None = None, after: Callable[[Any], None] | None = None
) -> None:
    """Call something with the worker before or after a method of it that vLLM's executor calls.

    ``WorkerWrapperBase`` hands what it does not define itself on to its worker.

    Args:
        who: whose calls these are; made once for each, however often they are asked for.
    """
    from vllm.v1.worker.worker_base import WorkerWrapperBase

    if (name, who) in _DONE:
        return
    _DONE.add((name, who))
    own = getattr(WorkerWrapperBase, name, None)

    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        if before:
            before(self.worker)
        found = own(self, *args, **kwargs) if own else getattr(self.worker, name)(*args, **kwargs)
        if after:
            after(self.worker)
        return found

    called.__name__ = name
    setattr(WorkerWrapperBase, name, called)
