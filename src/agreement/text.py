"""The text that is replayed: invented chronicles, a pure function of a seed and the model's tokenizer.

A chronicle tells of people, firms, numbers and small events of an invented town, and every few paragraphs it
comes back to facts that it told before. A fact that comes back can be predicted only from the paragraph that
told it, so a position there is sure for a model that reads its cache well and lost for one that does not:
that is where a coarse KV cache shows first, and at a distance that grows with the segment.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from adrbench.eval.tasks.base import seed_of
from adrbench.eval.world import World, words
from adrbench.evidence import canonical, digest_text

Encode = Callable[[str], list[int]]
# Facts that come back in one paragraph, and paragraphs between two of those.
RECALLED = 3
EVERY = 3


def _person(w: World) -> tuple[str, str]:
    name, town, year = w.person(), w.town(), w.year()
    told = f"{name} was born in {town} in {year}"
    return f"{told} and came here as a {w.pick('clerk', 'teacher', 'glazier', 'miller', 'pilot')}.", f"{told}."


def _firm(w: World) -> tuple[str, str]:
    firm, founder, year = w.company(), w.person(), w.year()
    told = f"{firm} was founded by {founder} in {year}"
    return f"{told}. It made {w.pick('clocks', 'lamps', 'paper', 'boots', 'tea', 'rope')} for the villages.", f"{told}."


def _number(w: World) -> tuple[str, str]:
    told = f"The registry number of the {w.keyword()} is {w.rng.randint(10_000, 99_999)}"
    return f"{told}, as the clerk wrote on the first page.", f"{told}."


def _event(w: World) -> tuple[str, str]:
    noun, other = w.rng.sample(words("nouns"), 2)
    title = w.title()
    told = f"The prize of the year {w.year()} went to the novel {title}"
    return f"{told}, although a {noun} and a {other} had been promised to the author.", f"{told}."


KINDS = (_person, _firm, _number, _event)


def paragraphs(seed: int) -> Iterator[str]:
    """An endless chronicle: paragraphs of new facts, and paragraphs that repeat earlier ones."""
    rng = random.Random(seed)
    w = World(rng)
    yield f"Chronicle of the town of {w.town()}"
    known: list[str] = []
    number = 0
    while True:
        number += 1
        if number % EVERY or len(known) < RECALLED:
            told = [rng.choice(KINDS)(w) for _ in range(2)]
            known += [short for _, short in told]
            yield f"Entry {number}. " + " ".join(long for long, _ in told)
        else:
            yield f"Entry {number}. As was written above: " + " ".join(rng.sample(known, RECALLED))


def segment(seed: int, tokens: int, encode: Encode) -> list[int]:
    """Ids of one chronicle, cut at exactly ``tokens``."""
    parts: list[str] = []
    chronicle = paragraphs(seed)
    ids: list[int] = []
    while len(ids) < tokens:
        # Encoding the whole text is cheap, and no token depends on where a paragraph happened to be cut.
        parts += [next(chronicle) for _ in range(max(4, tokens // 64))]
        ids = encode("\n\n".join(parts))
    return ids[:tokens]


def segments(seed: int, count: int, tokens: int, encode: Encode) -> list[list[int]]:
    """``count`` chronicles of ``tokens`` tokens: the first ones do not change when more are asked for."""
    return [segment(seed_of("agreement", seed, index), tokens, encode) for index in range(count)]


def digest(text: list[list[int]]) -> str:
    """SHA-256 of the token ids: equal for two replays of the same text by the same tokenizer."""
    return digest_text(canonical(text))
