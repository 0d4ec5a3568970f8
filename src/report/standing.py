"""Whether a platform file is verified; if it is not, whether what is shown was measured on its device all the same."""

from __future__ import annotations

from adrbench.report.context import Context
from adrbench.report.lookup import Cell, Source
from adrbench.report.view import Phrase, Shown, phrase

# Evidence of these kinds comes from vLLM running on the device.
RUNS = ("serve/", "eval/", "profile/", "counters/", "integrate/")


def _of_declared_device(context: Context) -> bool:
    """Whether the host that was probed is the device that the platform file declares."""
    declared, found = context.spec.platform.device, context.store.raw("device", "resolved") or {}
    return (found.get("vendor"), found.get("arch")) == (declared.vendor, declared.arch)


def measured_here(context: Context) -> bool:
    """Whether vLLM ran on the declared device for what this record shows."""
    return _of_declared_device(context) and any(context.store.names(kind) for kind in RUNS)


def _starts(context: Context) -> Cell:
    """Server starts that were measured: rounds of arms."""
    first: dict[str, str] = {}
    for name in context.store.names("serve/"):
        first.setdefault(name.rpartition("/")[0], name)
    sources = tuple(Source(name, "round") for name in first.values())
    return Cell(len(first) or None, "count", sources=sources)


def unverified(context: Context) -> Phrase | None:
    """What a reader must know of a platform file that is not verified; None for one that is."""
    platform = context.spec.platform
    if platform.verified == "yes":
        return None
    if not measured_here(context):
        return phrase("header.unverified", platform=platform.title)
    name, starts = context.store.cell("device", "resolved", "name"), _starts(context)
    key = "header.unconfirmed" if starts else "header.unconfirmed_runs"
    values = {"platform": platform.title, "device": name}
    return Phrase(key, values | {"starts": starts} if starts else values)


def with_platform(context: Context, steps: list[Shown]) -> list[Shown]:
    """The steps, and what an unverified platform file asks for: first a run on its device, or last its confirmation."""
    platform = context.spec.platform
    if platform.verified == "yes":
        return steps
    if measured_here(context):
        return [*steps, phrase("next.confirm_platform", platform=platform.name)]
    return [phrase("next.run_platform", platform=platform.name), *steps]
