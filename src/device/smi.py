"""What ``hy-smi`` and ``rocm-smi`` say about cards: JSON, lines per key, and tables, as one shape.

The two tools share their key names (``rocm-smi`` in a DCU image is an alias of ``hy-smi``), with
units inside the key that differ between releases. Shapes: public outputs quoted in
``tests/device/recorded/``. Unverified on DCU: only recorded outputs were replayed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

MIB = 1 << 20

CARD = re.compile(r"^(?:card|HCU|DCU|GPU)\[?(\d+)\]?$")
KEY_LINE = re.compile(r"^(HCU|DCU|GPU)\[(\d+)\]\s*:\s*(.+?)\s*:\s+(.*?)\s*$")
DRIVER_LINE = re.compile(r"^Driver [Vv]ersion:\s*(\S+)", re.MULTILINE)
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
# A level line says ``1 (600Mhz)``: the level comes first and is no clock.
CLOCK = re.compile(r"(\d+(?:\.\d+)?)\s*[Mm][Hh]z")

# Our name -> the tools' keys, lower case and without a trailing colon, best first.
NAMES: dict[str, tuple[str, ...]] = {
    "name": ("card series", "card model"),
    "vendor_name": ("card vendor",),
    "arch": ("gfx version",),
    "driver": ("driver version",),
    "unique_id": ("unique id",),
}
QUANTITIES: dict[str, tuple[tuple[str, float], ...]] = {
    "memory_bytes": (("vram total memory (b)", 1), ("vram total memory (mib)", MIB)),
    "memory_used_bytes": (("vram total used memory (b)", 1), ("vram total used memory (mib)", MIB)),
    "power_w": (
        ("current socket graphics package power (w)", 1),
        ("average graphics package power (w)", 1),
        ("avgpwr", 1),
    ),
    "clock_core_mhz": (("sclk clock speed", 1), ("sclk clock level", 1)),
    "clock_memory_mhz": (("mclk clock speed", 1), ("mclk clock level", 1)),
    "utilisation_percent": (("hcu use (%)", 1), ("dcu use (%)", 1), ("gpu use (%)", 1), ("hcu%", 1), ("dcu%", 1)),
    "memory_used_percent": (("vram%", 1),),
    "temperature_c": (("temperature (sensor junction) (c)", 1), ("temperature (sensor edge) (c)", 1), ("temp", 1)),
}


def number(text: Any) -> float | None:
    """The first number in a value such as ``1800Mhz``, ``(132Mhz)``, ``55.0W``; None for ``N/A``."""
    match = NUMBER.search(str(text))
    return float(match[0]) if match else None


def quantity(name: str, text: Any) -> float | None:
    """The number of a quantity; a clock must say MHz."""
    if name.startswith("clock_"):
        match = CLOCK.search(str(text))
        return float(match[1]) if match else None
    return number(text)


def card(index: int, members: Mapping[str, Any]) -> dict[str, Any]:
    """One card in our names and units; what the tool did not say is left out."""
    said = {key.strip().rstrip(":").lower(): value for key, value in members.items()}
    result: dict[str, Any] = {"index": index}
    for name, keys in NAMES.items():
        value = next((str(said[key]).strip() for key in keys if str(said.get(key, "")).strip()), None)
        if value and value.upper() != "N/A":
            result[name] = value
    for name, choices in QUANTITIES.items():
        for key, factor in choices:
            value_read = quantity(name, said[key]) if key in said else None
            if value_read is not None:
                result[name] = int(value_read * factor) if name.endswith("_bytes") else value_read * factor
                break
    return result


def from_json(value: Any) -> list[dict[str, Any]]:
    """Cards of ``--json``: ``{"card0": {...}, ..., "system": {"Driver version": ...}}``."""
    if not isinstance(value, dict):
        return []
    system = value.get("system")
    driver = {k: v for k, v in system.items() if k.lower() == "driver version"} if isinstance(system, dict) else {}
    cards = []
    for key, members in value.items():
        match = CARD.match(key)
        if match and isinstance(members, dict):
            cards.append(card(int(match[1]), {**driver, **members}))
    return sorted(cards, key=lambda c: int(c["index"]))


def from_lines(text: str) -> list[dict[str, Any]]:
    """Cards of the line form, ``HCU[0] : key: value``."""
    members: dict[int, dict[str, str]] = {}
    for line in text.splitlines():
        if match := KEY_LINE.match(line.strip()):
            members.setdefault(int(match[2]), {})[match[3]] = match[4]
    driver = DRIVER_LINE.search(text)
    common = {"Driver Version": driver[1]} if driver else {}
    return [card(index, {**common, **members[index]}) for index in sorted(members)]


def from_table(text: str) -> list[dict[str, Any]]:
    """Cards of the table that the tool prints without options; the first heading is HCU or DCU."""
    heads: list[str] = []
    cards = []
    for line in text.splitlines():
        cells = line.split()
        if cells and cells[0] in ("HCU", "DCU") and "Temp" in cells:
            heads = cells[1:]
        elif heads and cells and cells[0].isdigit() and len(cells) == len(heads) + 1:
            cards.append(card(int(cells[0]), dict(zip(heads, cells[1:], strict=True))))
    return cards


def names_hygon(text: str) -> bool:
    """Whether an output is a DCU's: the vendor by name, or its words for the device in the right place."""
    by_line = re.search(r"^(?:HCU|DCU)(?:\[\d+\]|\s+Temp)", text, re.MULTILINE)
    return bool(by_line or '"HCU ' in text or "C-3000" in text or "Haiguang" in text or "hygon module" in text)


def summary(cards: Iterable[Mapping[str, Any]]) -> str:
    """``2 x BW (gfx936), 64.0 GiB, driver 6.3.31``."""
    listed = list(cards)
    if not listed:
        return "no card"
    one = listed[0]
    parts = [f"{len(listed)} x {one.get('name', 'unnamed')}" + (f" ({one['arch']})" if "arch" in one else "")]
    if "memory_bytes" in one:
        parts.append(f"{one['memory_bytes'] / (1 << 30):.1f} GiB")
    if "driver" in one:
        parts.append(f"driver {one['driver']}")
    return ", ".join(parts)
