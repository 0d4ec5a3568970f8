"""aggregation_keyword_aggregation: answers that need the whole text, in RULER's three forms.

``common-words``: the words that occur most often in a list (RULER numbers the list; here the
tokens go to words). ``frequent-codes``: the three most frequent code words of a stream.
``variables``: all variables that hold one value through a chain of assignments. The score is the
share of the expected words that the answer contains.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import pairwise

from adrbench.eval.real import ruler_row
from adrbench.eval.tasks.base import Draft, Source, Task, seed_of
from adrbench.eval.world import haystack, words

FORMS = ("common-words", "frequent-codes", "variables")
LETTERS = "abcdefghijklmnoprstuvw"
CAPITALS = "ABCDEFGHJKLMNPQRSTUVWXYZ"


@dataclass(frozen=True)
class Puzzle:
    """One form's text, what to do with it, the question, the beginning of the answer, and the answers."""

    task: str
    document: str
    question: str
    lead: str
    answers: list[str]


def common_words(seed: int, units: int) -> Puzzle:
    """Three words that make up about half of a list of ``2 * units`` words; the rest occur once or twice."""
    rng = random.Random(seed)
    pool = list(words("nouns"))
    rng.shuffle(pool)
    common, rare = pool[:3], pool[3:]
    items = common * max(2, round(units / 3)) + [rare[i % len(rare)] for i in range(units)]
    random.Random(seed_of(seed, "place")).shuffle(items)
    return Puzzle(
        "Below is a list of words. Some words occur more often than others. Remember the words that occur most often.",
        " ".join(items),
        "What are the 3 most common words in the list above?",
        "The 3 words that occur most often in the list are:",
        common,
    )


def frequent_codes(seed: int, units: int) -> Puzzle:
    """Three code words that make up about 30, 25 and 20 % of the stream; the rest occur once or twice."""
    rng = random.Random(seed)

    def code() -> str:
        return "".join(rng.choice(LETTERS) for _ in range(5))

    frequent, size = [code() for _ in range(3)], units + 12
    items = [
        word for share, word in zip((0.30, 0.25, 0.20), frequent, strict=True) for _ in range(max(2, int(size * share)))
    ]
    while len(items) < size:
        items += [code()] * (1 + len(items) % 2)
    random.Random(seed_of(seed, "place")).shuffle(items)
    return Puzzle(
        "Read the coded text and count how often each coded word occurs.",
        " ".join(items),
        "What are the three most frequent words in the coded text above?",
        "The three most frequent words are:",
        frequent,
    )


def variables(seed: int, units: int) -> Puzzle:
    """A chain of four assignments, hidden in its order in ``units`` filler sentences."""
    rng = random.Random(seed)
    names = ["".join(rng.choice(CAPITALS) for _ in range(4)) for _ in range(4)]
    value = str(rng.randint(10_000, 99_999))
    chain = [f"VAR {names[0]} = {value}."] + [f"VAR {b} = VAR {a}." for a, b in pairwise(names)]
    texts = haystack(seed_of(seed, "filler"), units)
    places = random.Random(seed_of(seed, "place"))
    cuts = sorted(places.randint(0, len(texts)) for _ in chain)
    for offset, (cut, line) in enumerate(zip(cuts, chain, strict=True)):
        texts.insert(cut + offset, line)
    return Puzzle(
        "Follow the assignments of variables that are hidden in the text.",
        " ".join(texts),
        f"Which variables have the value {value} in the text above?",
        f"The {len(names)} variables that have the value {value} are: VAR",
        names,
    )


COMPOSERS = dict(zip(FORMS, (common_words, frequent_codes, variables), strict=True))


def compose(seed: int, index: int, units: int) -> Draft:
    """One puzzle; the forms alternate. In the list of words, rare words repeat once the word list is used up."""
    form = FORMS[index % len(FORMS)]
    puzzle = COMPOSERS[form](seed, units)
    ask = f"Question: {puzzle.question} Answer: {puzzle.lead}"
    return Draft(
        prompt=f"{puzzle.task}\n\n{puzzle.document}\n\n{ask}",
        control=ask,
        document=puzzle.document,
        answers=puzzle.answers,
        form=form,
    )


TASK = Task(
    name="aggregation_keyword_aggregation",
    title="aggregation_keyword_aggregation",
    metric="share of words found",
    evaluator="opencompass.datasets.ruler.ruler_cwe.RulerCweEvaluator",
    compose=compose,
    source=Source(
        collection="ruler",
        files=tuple((f"{name}/validation.jsonl",) for name in ("cwe", "fwe", "vt")),
        fields=("input", "outputs"),
        lines=None,
        read=ruler_row,
    ),
    max_new_tokens=64,
)
