"""The longest waits for a token in a tier, and whether the longest of them stands alone.

A step that prefills prompts keeps every request in decode waiting, again and again in a tier of many prompts. What
happens once, such as a kernel that is compiled while requests are served, is a wait without equals, and a throughput
with it in is not what the arm does in the long run. Waits for a first token are in TTFT, and not seen here.
"""

from __future__ import annotations

from typing import Any

# Tiers of fewer requests have too few prefills: the longest of them stands alone by itself.
JUDGED_FROM_REQUESTS = 20
# The longest wait over the third longest. On an H200, prompts of 1k-4k: 1.2 to 1.8 with every kernel compiled or on
# disk, 3.1 and 4.0 with one compiled in the tier; longer prompts: 1.0 to 1.3. Two waits may stand out together.
UNUSUAL_RATIO = 2.0


def longest_stalls(result: dict[str, Any], most: int = 3) -> list[tuple[float, float]]:
    """(length, begin) in seconds of the longest waits between two tokens of one request, each wait of the server once.

    Requests that wait for the same step overlap in time: of those only the longest counts. ``begin`` counts from the
    first request. Needs ``start_times`` of the detailed result.
    """
    origin = min(result["start_times"], default=0.0)
    waits = []
    for start, first, gaps in zip(result["start_times"], result["ttfts"], result["itls"], strict=True):
        begin = start + first - origin
        for gap in gaps:
            waits.append((gap, begin))
            begin += gap
    found: list[tuple[float, float]] = []
    for length, begin in sorted(waits, reverse=True):
        if all(min(b + n, begin + length) - max(b, begin) <= length / 2 for n, b in found):
            found.append((length, begin))
        if len(found) == most:
            break
    return found


def stalls(result: dict[str, Any]) -> dict[str, Any]:
    """``longest_ms``: the three longest waits, ``at_s``: when the longest began, ``unusual``: whether it stands alone,
    None where the client does not tell the times of requests or these are too few to judge."""
    if not result.get("start_times"):
        longest = max((gap for gaps in result["itls"] for gap in gaps), default=None)
        return {"longest_ms": [] if longest is None else [1e3 * longest], "at_s": None, "unusual": None}
    found = longest_stalls(result)
    enough = len(found) == 3 and len(result["itls"]) >= JUDGED_FROM_REQUESTS
    return {
        "longest_ms": [1e3 * length for length, _ in found],
        "at_s": found[0][1] if found else None,
        "unusual": found[0][0] > UNUSUAL_RATIO * found[2][0] if enough else None,
    }
