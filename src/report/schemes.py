"""Block C: every row of the team's table of KV schemes, and the arms that this platform ran besides."""

from __future__ import annotations

from adrbench.kernels.formats import schemes
from adrbench.report.accuracy import delta
from adrbench.report.context import Context
from adrbench.report.lookup import MISSING, Cell, derive, ratio
from adrbench.report.serving import throughput_ratio
from adrbench.report.statements import judged
from adrbench.report.team import Document, SchemeRow
from adrbench.report.view import Phrase, Scheme, Shown, phrase

BASELINE_BITS = 16


def measuring_arm(context: Context, names: list[str]) -> str | None:
    """The served arm that measures one of these schemes."""
    served = context.served_arms()
    return next((arm.name for arm in context.spec.platform.arms if arm.name in served and arm.measures in names), None)


def is_simulated(context: Context, arm: str) -> bool:
    declared = context.arm(arm)
    return declared is not None and declared.kv_simulation is not None


def simulated_ratio(context: Context, arm: str) -> Cell:
    """Bytes per token of a simulated scheme relative to 16 bit, by its layout."""
    if not is_simulated(context, arm):
        return MISSING
    return context.store.cell("memory", "measured", "arms", arm, "layout", "ratio", unit="ratio")


def divergence(context: Context, arm: str) -> list[Shown]:
    """How far the arm's next-token distributions are from the baseline's, where a text was replayed."""
    key = ("measured", "arms", arm, "buckets", "all", "kl_nats")
    found = context.store.interval("agreement", *key, value="value", unit="nats")
    return [phrase("schemes.divergence", kl=found)] if found and arm != context.baseline else []


def concurrency(context: Context, arm: str) -> list[Shown]:
    """How many long requests the arm's pool holds at once, measured or computed."""
    key = ("measured", "arms", arm, "pool")
    kind = context.store.raw("memory", *key, "kind")
    if kind is None:
        return []
    requests = context.store.cell("memory", *key, "requests", unit="number")
    length = context.store.cell("memory", "measured", "length", unit="tokens")
    return [phrase("schemes.requests", requests=requests, length=length, kind=Phrase(f"memory.{kind}"))]


def memory_ratio(context: Context, arm: str) -> Cell:
    """Bytes per cached token relative to the baseline: its pool's tokens over the arm's, at equal pool memory.

    Missing for a simulated scheme, whose cache keeps 16 bit: its memory is computed (``simulated_ratio``).
    """
    if is_simulated(context, arm):
        return MISSING
    return ratio(*(context.resolved(name, "kv_pool_tokens", unit="tokens") for name in (context.baseline, arm)))


def computed_ratio(context: Context, names: list[str]) -> Cell:
    """Bytes per token relative to bf16 by the definition of a scheme in ``kernels.formats``, scales counted."""
    scheme = next((schemes()[name] for name in names if name in schemes()), None)
    head_dim = context.store.cell("model", "measured", "head_dim", unit="count")
    if scheme is None:
        return MISSING
    return derive(lambda dim: scheme.bits_per_value(int(dim)) / BASELINE_BITS, head_dim, unit="ratio")


def kernel_support(context: Context, formats: list[str]) -> list[Shown]:
    """Which number formats of a row the kernel checks proved here, and why others were not."""
    store = context.store
    if not store.has("kernels"):
        return [Phrase("schemes.kernels_unverified")]
    proved = store.raw("kernels", "measured", "proved") or []
    not_proved = store.raw("kernels", "measured", "not_proved") or {}
    mode = store.cell("kernels", "measured", "mode")
    found: list[Shown] = []
    for name in formats:
        if name in proved:
            found.append(phrase("schemes.kernel_proved", format=name, mode=mode))
        elif name in not_proved:
            found.append(phrase("schemes.kernel_not_proved", format=name, mode=mode))
        else:
            found.append(phrase("schemes.kernel_absent", format=name))
    return found


def flag_state(context: Context, row: SchemeRow) -> Shown:
    """State of a row that no arm measures: is it offered by a flag of the vLLM that serves here?"""
    offered = context.store.raw("device", "resolved", "kv_cache_dtypes")
    version = context.store.cell("device", "resolved", "vllm")
    if offered is None:
        return Phrase("unverified")
    by_flag = [flag for flag in row.flags if flag in offered]
    if by_flag:
        return phrase("schemes.offered_not_measured", flag=by_flag[0])
    return phrase("schemes.not_offered", version=version)


def _resolved(context: Context, arm: str) -> Shown:
    dtype, backend = (context.resolved(arm, key) for key in ("kv_cache_dtype", "attention_backend"))
    return phrase("schemes.resolved", dtype=dtype, backend=backend) if dtype else Phrase("unverified")


def _measured(context: Context, title: Shown, row: SchemeRow | None, arm: str) -> Scheme:
    first, simulated = arm == context.baseline, is_simulated(context, arm)
    return Scheme(
        title=title,
        row=row,
        arm=arm,
        memory=memory_ratio(context, arm),
        computed=simulated_ratio(context, arm),
        judged=judged(context, row.claims) if row else Phrase("unverified"),
        delta=MISSING if first else delta(context.store, arm),
        # The speed of a simulation is not the scheme's.
        throughput=[MISSING if first or simulated else throughput_ratio(context, arm, tier) for tier in context.tiers],
        support=[_resolved(context, arm), *concurrency(context, arm), *divergence(context, arm)],
        state=Phrase("schemes.baseline" if first else "schemes.simulated" if simulated else "schemes.measured"),
    )


def scheme_rows(context: Context, team: Document) -> list[Scheme]:
    """The team's rows in their order, then the served arms that belong to none of them."""
    rows, used = [], set()
    for row in team.schemes:
        arm = measuring_arm(context, row.schemes)
        if arm is not None:
            used.add(arm)
            rows.append(_measured(context, row.title, row, arm))
            continue
        rows.append(
            Scheme(
                title=row.title,
                row=row,
                arm=None,
                memory=MISSING,
                computed=computed_ratio(context, row.schemes),
                delta=MISSING,
                judged=judged(context, row.claims),
                throughput=[],
                support=kernel_support(context, row.formats),
                state=flag_state(context, row),
            )
        )
    for arm in context.served_arms():
        declared = context.arm(arm)
        if arm not in used and declared is not None and declared.measures is not None:
            rows.append(_measured(context, context.title(arm), None, arm))
    return rows
