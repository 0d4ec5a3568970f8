"""Serving: latency percentiles, throughput and goodput of each arm in each tier, and the A/A noise."""

from __future__ import annotations

from dataclasses import replace

from adrbench.report.context import Context
from adrbench.report.lookup import MISSING, Cell, Source, ratio
from adrbench.report.view import DecodeRow, DeviceLoad, NoiseRow, Phrase, ServingRow, Shown, TierRow, phrase

LATENCIES = ("ttft_ms", "tpot_ms", "itl_ms", "e2el_ms")
PERCENTILES = ("p50", "p90", "p99")
NOISE_METRICS = {
    "ttft_ms.p99": "ms",
    "tpot_ms.p99": "ms",
    "output_tokens_per_s": "tokens_per_s",
    "kv_pool_tokens": "tokens",
    "kv_usable_tokens": "tokens",
}


def latency(context: Context, arm: str, tier: str, metric: str, percentile: str) -> Cell:
    """One percentile over the rounds, as the decision stage averaged it; its sources name the rounds' files too."""
    found = context.store.cell("decide", "latency", arm, tier, metric, percentile, unit="ms")
    rounds = tuple(Source(name, f"measured.{metric}.{percentile}") for name in context.documents(arm, tier))
    return replace(found, sources=(*found.sources, *rounds)) if found else MISSING


def throughput_ratio(context: Context, arm: str, tier: str) -> Cell:
    """Output tokens per second relative to the baseline's, median over rounds against median over rounds."""
    rates = [
        context.over_rounds(name, tier, "measured", "output_tokens_per_s", unit="tokens_per_s")
        for name in (arm, context.baseline)
    ]
    return ratio(*rates)


def throughput_range(context: Context, arm: str, tier: str) -> Cell:
    """The same ratio with its range over the rounds of both: the least of one against the greatest of the other."""
    rates = [
        context.over_rounds(name, tier, "measured", "output_tokens_per_s", unit="tokens_per_s")
        for name in (arm, context.baseline)
    ]
    found = ratio(*rates)
    if not found or all(rate.low is None for rate in rates):
        return found
    (low, high), (least, most) = (
        (rate.amount if rate.low is None else rate.low, rate.amount if rate.high is None else rate.high)
        for rate in rates
    )
    return replace(found, low=low / most, high=high / least)


def serving_rows(context: Context) -> list[ServingRow]:
    rows = []
    for tier in context.tiers:
        for arm in context.served_arms():
            if not context.documents(arm, tier):
                continue
            rows.append(
                ServingRow(
                    arm=arm,
                    title=context.title(arm),
                    tier=tier,
                    latencies={m: [latency(context, arm, tier, m, p) for p in PERCENTILES] for m in LATENCIES},
                    output_tokens_per_s=context.over_rounds(
                        arm, tier, "measured", "output_tokens_per_s", unit="tokens_per_s"
                    ),
                    goodput=context.over_rounds(arm, tier, "measured", "goodput_requests_per_s", unit="requests_per_s"),
                    relative=throughput_ratio(context, arm, tier) if arm != context.baseline else MISSING,
                    pool=context.resolved(arm, "kv_pool_tokens", unit="tokens"),
                )
            )
    return rows


def decode_rows(context: Context) -> list[DecodeRow]:
    """TPOT of decode alone, where rounds have it (``serve.decode_window``)."""
    rows = []
    for tier in context.tiers:
        times = {
            arm: context.over_rounds(arm, tier, "measured", "decode_window", "tpot_ms", "p50", unit="ms")
            for arm in context.served_arms()
        }
        for arm, tpot in times.items():
            if tpot:
                relative = ratio(tpot, times[context.baseline]) if arm != context.baseline else MISSING
                rows.append(DecodeRow(arm, context.title(arm), tier, tpot, relative))
    return rows


def beside_noise(context: Context, arm: str, tier: str, ratio: Cell) -> Shown:
    """Whether a throughput ratio cannot be told from what equal arms show with as many starts; empty where it can."""
    starts = min(len(context.documents(name, tier)) for name in (arm, context.baseline))
    found = context.store.raw("decide", "noise", tier, "output_tokens_per_s") or {}
    least = found.get("least") or {"1": found.get("floor")}
    noise = least.get(max((n for n in least if int(n) <= starts), key=int, default=""))
    if noise is None or not ratio.amount:
        return Phrase("noise.too_few")
    return Phrase("noise.inside") if max(ratio.amount, 1 / ratio.amount) - 1 <= noise else ""


def rounds(context: Context) -> list[Phrase]:
    """How many rounds each arm has, in words."""
    found = []
    for arm in context.served_arms():
        documents = {name for tier in context.tiers for name in context.documents(arm, tier)}
        numbers = {context.store.raw(name, "round") for name in documents}
        count = Cell(len(numbers), "count", sources=tuple(Source(name, "round") for name in sorted(documents)))
        found.append(phrase("serving.rounds", arm=context.title(arm), count=count))
    return found


def stalls(context: Context) -> list[Phrase]:
    """Rounds in which something happened once: a wait that stands alone, kernels compiled under load."""
    found = []
    for arm in context.served_arms():
        late: dict[str, set[str]] = {}
        for tier in context.tiers:
            for name in context.documents(arm, tier):
                number = str(context.store.raw(name, "round"))
                reports = context.store.raw(name, "resolved", "plugin") or []
                late[number] = {report["compiled_late"] for report in reports if report.get("compiled_late")}
                if context.store.raw(name, "measured", "stalls", "unusual"):
                    key = ("measured", "stalls")
                    longest, third = (context.store.cell(name, *key, "longest_ms", n, unit="ms") for n in (0, 2))
                    at = context.store.cell(name, *key, "at_s", unit="s")
                    values = {"longest": longest, "third": third, "at": at, "round": number, "tier": tier}
                    found.append(Phrase("stalls.unusual", {"arm": context.title(arm), **values}))
        for number, names in sorted(late.items()):
            if names:
                values = {"round": number, "names": ", ".join(sorted(names))}
                found.append(Phrase("stalls.compiled", {"arm": context.title(arm), **values}))
    return found


def tier_rows(context: Context) -> list[TierRow]:
    """The workloads, as the platform file asks for them and as the baseline got them."""
    rows = []
    for index, tier in enumerate(context.tiers):
        asked = {
            key: context.store.cell("platform", "tiers", index, *path, unit="count")
            for key, path in {"low": ("input_tokens", 0), "high": ("input_tokens", 1), "output": ("output_tokens",),
                              "prompts": ("prompts",), "concurrency": ("concurrency",)}.items()
        }  # fmt: skip

        def of_baseline(*key: str, name: str = tier) -> Cell:
            return context.over_rounds(context.baseline, name, "measured", *key, unit="count")

        rows.append(
            TierRow(
                tier,
                asked["low"],
                asked["high"],
                of_baseline("input_tokens", "median"),
                asked["output"],
                asked["prompts"],
                asked["concurrency"],
                of_baseline("prefix_cache_hits"),
                of_baseline("preemptions"),
            )
        )
    return rows


def device_loads(context: Context) -> list[DeviceLoad]:
    """Samples of the host's tools beside each arm's first round; a metric that no tool offers is missing."""
    rows = []
    for arm in context.served_arms():
        document = next(name for tier in context.tiers for name in context.documents(arm, tier))

        def sample(metric: str, which: str, unit: str, name: str = document) -> Cell:
            return context.store.cell(name, "measured", "telemetry", metric, which, unit=unit)

        rows.append(
            DeviceLoad(
                title=context.title(arm),
                start=context.store.cell(document, "measured", "start_s", unit="s"),
                memory=sample("memory_used_bytes", "max", "bytes"),
                power=sample("power_w", "median", "w"),
                clock=sample("clock_core_mhz", "median", "mhz"),
                load=sample("load_average_1min", "max", "number"),
                absent=list(context.store.raw(document, "measured", "telemetry", "absent") or []),
            )
        )
    return rows


def noise_rows(context: Context) -> list[NoiseRow]:
    """The baseline against itself: two server starts of one arm, for each tier and metric that decides."""
    rows = []
    for tier in context.tiers:
        for metric, unit in NOISE_METRICS.items():
            a, b = (context.store.cell("decide", "noise", tier, metric, side, unit=unit) for side in "ab")
            quotient = context.store.cell("decide", "noise", tier, metric, "ratio", unit="ratio")
            floor = context.store.cell("decide", "noise", tier, metric, "floor", unit="fraction")
            if a:
                rows.append(NoiseRow(tier, Phrase(f"noise.{metric}"), a, b, quotient, floor))
    return rows
