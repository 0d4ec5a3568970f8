"""retrieval_multi_point: several keyed numbers hidden in unrelated text, in RULER's needle forms.

Samples cycle through three forms: ``multikey`` (several keys, one is asked), ``multivalue`` (one
key with several values, all are asked) and ``multiquery`` (several keys are asked). The score is
the share of asked numbers that the answer contains.
"""

from __future__ import annotations

import random

from adrbench.eval.real import ruler_row
from adrbench.eval.tasks.base import Draft, Source, Task, seed_of, spread
from adrbench.eval.world import World, haystack

FORMS = ("multikey", "multivalue", "multiquery")
NEEDLES = 4


def needle(key: str, value: str) -> str:
    return f"One of the code numbers for {key} is: {value}."


def listed(items: list[str]) -> str:
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1]


def compose(seed: int, index: int, units: int) -> Draft:
    """``units`` filler sentences around four needles."""
    rng = random.Random(seed)
    world = World(rng)
    form = FORMS[index % len(FORMS)]
    keys = [world.keyword() for _ in range(1 if form == "multivalue" else NEEDLES)]
    values = [str(rng.randint(10_000, 99_999)) for _ in range(NEEDLES)]
    needles = [needle(keys[i % len(keys)], value) for i, value in enumerate(values)]
    asked = {"multikey": 1, "multivalue": NEEDLES, "multiquery": 2}[form]
    query = listed(keys[:asked])
    places = random.Random(seed_of(seed, "place"))
    order = places.sample(needles, len(needles))
    document = " ".join(spread(order, haystack(seed_of(seed, "filler"), units), places))
    many = asked > 1
    noun = "code numbers" if many else "code number"
    ask = (
        f"Question: What {'are' if many else 'is'} the {noun} for {query} in the text?\n"
        f"Answer: The {noun} for {query} {'are' if many else 'is'}"
    )
    return Draft(
        prompt=f"Remember the code numbers that are hidden in the text below.\n\n{document}\n\n{ask}",
        control=ask,
        document=document,
        answers=values[:asked],
        form=form,
    )


TASK = Task(
    name="retrieval_multi_point",
    title="retrieval_multi_point",
    metric="share of numbers found",
    evaluator="opencompass.datasets.ruler.ruler_niah.RulerNiahEvaluator",
    compose=compose,
    source=Source(
        collection="ruler",
        files=tuple((f"niah_{name}/validation.jsonl",) for name in ("multikey_1", "multivalue", "multiquery")),
        fields=("input", "outputs"),
        lines=None,
        read=ruler_row,
    ),
    max_new_tokens=48,
)
