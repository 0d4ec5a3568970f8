"""Several comparisons at once: the chance of any false switch must stay what one comparison promises."""

from __future__ import annotations

from collections.abc import Mapping


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Holm's adjusted p values: each compared with the level keeps the family's error rate at that level.

    The k-th smallest of m values is multiplied by m - k + 1, and none may be less than the one before.
    (Written out because statsmodels' ``multipletests`` collects garbage in every call, 40 ms each; the
    tests hold the two against each other.)

    No correction is needed for "all gates of one arm pass": a conjunction is no likelier by chance than
    its hardest part (intersection-union test).
    """
    adjusted, greatest = {}, 0.0
    for place, (name, p) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        greatest = max(greatest, min(1.0, p * (len(p_values) - place)))
        adjusted[name] = greatest
    return adjusted
