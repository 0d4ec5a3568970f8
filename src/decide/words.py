"""Texts of a verdict in both languages, and how numbers are written in them."""

from __future__ import annotations

from collections.abc import Iterable

from adrbench.config.section import Text

# What a gate or an objective measures, in the field's words; ``P99`` and the like stand before them.
METRICS = {
    "ttft_ms": ("TTFT", "TTFT"),
    "tpot_ms": ("TPOT", "TPOT"),
    "itl_ms": ("ITL", "ITL"),
    "e2el_ms": ("end-to-end latency", "端到端延迟"),
    "accuracy_delta": ("accuracy loss", "精度损失"),
    "completion": ("completed requests", "请求完成率"),
    "kv_pool_tokens": ("KV pool", "KV pool 容量"),
    "kv_usable_tokens": ("usable KV tokens", "可用 KV token"),
    "output_tokens_per_s": ("output throughput", "输出吞吐"),
    "total_tokens_per_s": ("total throughput", "总吞吐"),
    "goodput": ("goodput", "goodput"),
}


def text(en: str, zh: str) -> Text:
    return Text(en=en, zh=zh)


def join(parts: Iterable[Text], en: str = "; ", zh: str = "; ") -> Text:
    """Several texts as one, repeats left out."""
    kept = list(parts)
    return text(en.join(dict.fromkeys(p.en for p in kept)), zh.join(dict.fromkeys(p.zh for p in kept)))


def percent(fraction: float | None) -> str:
    """A signed percentage; an open bound is the sign of infinity."""
    return "∞" if fraction is None else f"{fraction:+.1%}"


def interval(low: float | None, high: float | None) -> str:
    """An interval of fractions as percentages; ``-∞`` and ``∞`` are open bounds."""
    return f"[{'-∞' if low is None else f'{low:+.1%}'}, {'∞' if high is None else f'{high:+.1%}'}]"


def names(items: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(items))


def metric(name: str, percentile: int | None = None) -> Text:
    """What a metric is: "P99 TTFT", "KV pool"; one that is not known, by its own name."""
    en, zh = METRICS.get(name, (name, name))
    before = f"P{percentile} " if percentile is not None else ""
    return text(before + en, before + zh)


def gate(code: str, name: str, percentile: int | None, tiers: Iterable[str] = ()) -> Text:
    """A gate in words with its code, and the tiers that are meant: "P99 TTFT in short, long (G01-TTFT)"."""
    what, where = metric(name, percentile), ", ".join(dict.fromkeys(tiers))
    tail = "" if code in METRICS else f" ({code})"
    return text(
        f"{what.en}{f' in {where}' if where else ''}{tail}",
        f"{f'{where} 档 ' if where else ''}{what.zh}{tail}",
    )
