"""Texts of a verdict in both languages, and how numbers are written in them."""

from __future__ import annotations

from collections.abc import Iterable

from adrbench.config.section import Text


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
