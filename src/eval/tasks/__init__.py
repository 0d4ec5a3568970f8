"""The task classes: every module of this folder that defines ``TASK`` is one."""

from __future__ import annotations

import importlib
import pkgutil

from adrbench.eval.tasks.base import Draft, Sample, Source, Task

__all__ = ["Draft", "Sample", "Source", "Task", "load_tasks"]


def load_tasks() -> dict[str, Task]:
    """All task classes by name, in alphabetical order of their files."""
    modules = [importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
    tasks = [module.TASK for module in modules if hasattr(module, "TASK")]
    return {task.name: task for task in tasks}
