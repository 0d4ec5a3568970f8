"""Block B: what the device can do, where a step's time goes, and whether decode is bandwidth bound."""

from __future__ import annotations

from collections.abc import Callable

from adrbench.report.context import Context
from adrbench.report.doubts import doubts
from adrbench.report.lookup import MISSING, Cell, derive
from adrbench.report.statements import judged
from adrbench.report.team import Document
from adrbench.report.view import NOT_MEASURED, Ceiling, ClassShare, Measured, Performance, Phase, Phrase, Shown, phrase

PHASES = ("prefill", "decode", "mixed")
SEQUENCE_TOKENS = 32768
# A class below this share of every phase would only lengthen the table.
LEAST_SHARE = 0.01


def profiled_arm(context: Context) -> str:
    """The baseline where it was profiled, else the first arm that was."""
    profiled = [name.partition("/")[2] for name in context.store.names("profile/")]
    arms = [name for name in profiled if "/" not in name]
    return context.baseline if context.baseline in arms or not arms else arms[0]


def datasheet(context: Context) -> Shown:
    """The vendor's bandwidth with its source, or that there is none."""
    sheet = context.spec.platform.device.datasheet
    if sheet is None:
        return Phrase("performance.no_datasheet")
    if sheet.memory_bytes_per_s is None:
        return sheet.source
    figure = context.store.cell("platform", "device", "datasheet", "memory_bytes_per_s", unit="bytes_per_s")
    return phrase("performance.datasheet", figure=figure, source=sheet.source)


def _bandwidth(context: Context, _arm: str) -> Shown:
    read = context.store.cell("ceiling", "measured", "read_bytes_per_s", unit="bytes_per_s")
    if not read:
        return NOT_MEASURED
    reached = context.store.cell("ceiling", "measured", "fraction_of_datasheet", unit="fraction")
    shown = phrase("performance.bandwidth", read=read, datasheet=datasheet(context))
    return phrase("performance.of_datasheet", bandwidth=shown, reached=reached) if reached else shown


def _fp8(context: Context, _arm: str) -> Shown:
    store = context.store
    dtype = store.cell("device", "measured", "fp8", "resolved_dtype")
    if not dtype:
        return NOT_MEASURED
    maximum = store.cell("device", "measured", "fp8", "maximum", unit="count")
    status = store.raw("device", "measured", "fp8", "status")
    return phrase("performance.fp8", dtype=dtype, maximum=maximum, status=Phrase(f"check.{status}"))


def _capacity(context: Context, _arm: str) -> Shown:
    memory = context.store.cell("device", "measured", "devices", 0, "memory_bytes", unit="bytes")
    weights = context.store.cell("model", "measured", "weight_bytes", unit="bytes")
    return phrase("performance.capacity", memory=memory, weights=weights) if memory else NOT_MEASURED


def _kv_32k(context: Context, arm: str) -> Shown:
    token = context.store.cell(f"profile/{arm}", "measured", "decode", "kv_bytes_per_token", unit="bytes")
    if not token:
        return NOT_MEASURED
    sequence = derive(lambda size: size * SEQUENCE_TOKENS, token, unit="bytes")
    return phrase("performance.kv_32k", sequence=sequence, token=token)


def _cache(context: Context, _arm: str) -> Shown:
    size = context.store.cell("ceiling", "measured", "last_level_cache_bytes", unit="bytes")
    return phrase("performance.cache", size=size) if size else NOT_MEASURED


QUANTITIES: dict[str, Callable[[Context, str], Shown]] = {
    "bandwidth": _bandwidth,
    "fp8": _fp8,
    "capacity": _capacity,
    "kv_32k": _kv_32k,
    "cache": _cache,
}


def ceilings(context: Context) -> list[Ceiling]:
    """Bandwidths, matrix rates by format, and time per launch; a format that the device lacks is left out."""
    store, doubtful = context.store, doubts(context)
    sheet = store.cell("ceiling", "measured", "datasheet_bytes_per_s", unit="bytes_per_s")
    reached = store.cell("ceiling", "measured", "fraction_of_datasheet", unit="fraction")
    found = [
        Ceiling(
            Phrase(f"ceiling.{kind}"),
            store.cell("ceiling", "measured", f"{kind}_bytes_per_s", unit="bytes_per_s"),
            *((sheet, reached) if kind == "read" else (MISSING, MISSING)),
            Phrase("doubt.disturbed") if kind in doubtful.uneven else None,
        )
        for kind in ("read", "write", "copy")
    ]
    for name in store.raw("ceiling", "measured", "matmul_flop_per_s") or {}:
        unit = "op_per_s" if name.startswith("int") else "flop_per_s"
        key = ("measured", "matmul_flop_per_s", name)
        sheet = store.cell("ceiling", *key, "datasheet_per_s", unit=unit)
        reached = store.cell("ceiling", *key, "fraction_of_datasheet", unit="fraction")
        rate, doubt = store.cell("ceiling", *key, unit=unit), Phrase("doubt.not_reached")
        title = phrase("ceiling.matrix", format=name)
        found.append(Ceiling(title, rate, sheet, reached, doubt if name in doubtful.formats else None))
    found.append(Ceiling(Phrase("ceiling.launch"), store.cell("ceiling", "measured", "launch_s", unit="s")))
    return [row for row in found if row.value]


def phases(context: Context, document: str) -> list[Phase]:
    table, store = context.store.raw(document, "measured", "phases") or {}, context.store
    return [
        Phase(
            name=name,
            share=store.cell(document, "measured", "phases", name, "share", unit="fraction"),
            seconds=store.cell(document, "measured", "phases", name, "seconds", unit="s"),
            steps=store.cell(document, "measured", "phases", name, "steps", unit="count"),
            tokens=store.cell(document, "measured", "phases", name, "tokens", unit="count"),
        )
        for name in PHASES
        if name in table
    ]


def on_device(context: Context, document: str) -> bool:
    """Whether a profile's trace has the device's own kernels."""
    table = context.store.raw(document, "measured", "phases") or {}
    return any("device" in row for row in table.values())


def class_shares(context: Context, document: str, names: list[str]) -> list[ClassShare]:
    """Operation classes by their share of each phase's operator time, the biggest in decode first.

    Of the device's kernels where its trace has them: the host's operators are launches then, and say nothing of time.
    """
    shares: dict[str, list[Cell]] = {}
    for index, phase in enumerate(names):
        path = ("measured", "phases", phase, *(("device",) if on_device(context, document) else ()), "classes")
        classes = context.store.raw(document, *path) or {}
        total = sum(classes.values())
        for name in classes:
            seconds = context.store.cell(document, *path, name, unit="s")
            row = shares.setdefault(name, [MISSING] * len(names))
            row[index] = (
                derive(lambda value, whole=total: value / whole, seconds, unit="fraction") if total else MISSING
            )
    leading = names.index("decode") if "decode" in names else 0
    kept = [(name, row) for name, row in shares.items() if any(cell and cell.amount >= LEAST_SHARE for cell in row)]
    kept.sort(key=lambda item: -(item[1][leading].amount if item[1][leading] else 0.0))
    return [ClassShare(name, row) for name, row in kept]


def performance(context: Context, team: Document) -> Performance:
    store, arm = context.store, profiled_arm(context)
    document = f"profile/{arm}"
    found = phases(context, document)
    decode = ("measured", "decode")
    return Performance(
        arm=arm,
        rows=[
            Measured(row, judged(context, row.claims), QUANTITIES[row.measured](context, arm))
            for row in team.device_rows
        ],
        datasheet=datasheet(context),
        ceiling=store.cell(document, *decode, "ceiling_bytes_per_s", unit="bytes_per_s"),
        ceilings=ceilings(context),
        phases=found,
        classes=class_shares(context, document, [phase.name for phase in found]),
        on_device=on_device(context, document),
        step=store.cell(document, *decode, "step_seconds", unit="s"),
        step_bytes=store.cell(document, *decode, "bytes_per_step", unit="bytes"),
        kv_share=store.cell(document, *decode, "kv_share", unit="fraction"),
        rate=store.cell(document, *decode, "bytes_per_s", unit="bytes_per_s"),
        utilisation=store.cell(document, *decode, "utilisation", unit="fraction"),
        nearby=store.cell(document, *decode, "ceiling_at_working_set", "utilisation", unit="fraction"),
        threshold=store.cell(document, "measured", "g06", "threshold", unit="fraction"),
        verdict=store.raw(document, "measured", "g06", "verdict"),
        notes=[*(store.raw(document, "notes") or []), *(store.raw("ceiling", "notes") or [])],
        overhead=store.cell(document, "measured", "overhead", "ratio", unit="ratio"),
    )
