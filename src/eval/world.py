"""Invented people, towns and works: the stuff that the synthetic documents are about.

Everything comes from the word lists in ``text/`` and a seed. Nothing here is a fact, which is the
point: a model cannot know an answer from its training, only from the document.
"""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path

TEXT = Path(__file__).parent / "text"


@cache
def words(name: str) -> tuple[str, ...]:
    """One word list of ``text/``, in file order."""
    return tuple((TEXT / f"{name}.txt").read_text(encoding="utf-8").split())


class World:
    """Draws names without repetition, so that two entities of one document never share one."""

    def __init__(self, rng: random.Random):
        self.rng = rng
        self._used: set[str] = set()

    def _new(self, draw: list[tuple[str, ...]], join: str) -> str:
        for _ in range(200):
            name = join.join(self.rng.choice(part) for part in draw)
            if name not in self._used:
                break
        else:  # lists exhausted: a document of this size needs numbered names
            name = f"{name} {self.rng.choice('IVX')}{len(self._used)}"
        self._used.add(name)
        return name

    def person(self) -> str:
        return self._new([words("first_names"), words("surnames")], " ")

    def town(self) -> str:
        return self._new([words("town_starts"), words("town_ends")], "")

    def title(self) -> str:
        """A title of a book or a film, such as ``The Silent Harbor``."""
        return "The " + self._new([words("adjectives"), words("nouns")], " ").title()

    def keyword(self) -> str:
        """A hyphenated keyword, such as ``golden-kettle``."""
        return self._new([words("adjectives"), words("nouns")], "-")

    def company(self) -> str:
        kinds = ("Mills", "Works", "Pottery", "Brewery", "Shipping", "Foods", "Motors", "Press", "Glass", "Textiles")
        return self._new([words("surnames"), kinds], " ")

    def year(self, first: int = 1850, last: int = 1990) -> int:
        return self.rng.randint(first, last)

    def pick(self, *options: str) -> str:
        return self.rng.choice(options)


def haystack(seed: int, sentences: int) -> list[str]:
    """Unrelated sentences about invented towns; a longer haystack begins with the shorter one."""
    world = World(random.Random(seed))
    rng = world.rng
    texts: list[str] = []
    town = ""
    while len(texts) < sentences:
        if len(texts) % 6 == 0:
            town = world.town()
        noun, other = rng.sample(words("nouns"), 2)
        adjective = rng.choice(words("adjectives"))
        texts.append(
            world.pick(
                f"Visitors to {town} often ask about the {adjective} {noun} near the station.",
                f"The school in {town} keeps a {noun} and a {other} in its hall.",
                f"In spring the people of {town} paint every {noun} in a {adjective} colour.",
                f"A letter from {town} describes how a {noun} was traded for a {other}.",
                f"Nobody in {town} remembers who left the {adjective} {noun} on the bridge.",
                f"The museum of {town} shows a {noun} beside a {adjective} {other}.",
                f"When it rains in {town}, children look for a {noun} under the {other}.",
                f"The mayor of {town} once lost a {adjective} {noun} at the fair.",
            )
        )
    return texts
