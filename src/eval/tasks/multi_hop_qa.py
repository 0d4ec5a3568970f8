"""Multi-hop question answering in hotpotqa form, scored by F1.

Passages about invented people, towns, companies and works. The question names one entity and asks
for a property of a second one, which the passage of the first leads to. As in HotpotQA, some second
passages name the first entity too, so that a reader who finds them needs one hop only; the
river questions always need two.
"""

from __future__ import annotations

import random
from typing import Any

from adrbench.eval.real import longbench_row
from adrbench.eval.tasks.base import Count, Draft, Source, Task, seed_of, spread
from adrbench.eval.world import World

RULE = "Answer the question from the passages. Give only the answer, no other words."


def person_passage(w: World, name: str, town: str, year: int, known: str = "") -> str:
    job = w.pick("engineer", "chemist", "painter", "geologist", "teacher", "surveyor", "printer", "botanist")
    return (
        f"{name}\n{name}{known} was born in {town} in {year} and worked as a {job}. "
        + w.pick(
            f"As a child {name} collected {w.pick('maps', 'clocks', 'shells', 'stamps')} and kept a diary. ",
            f"{name} studied for {w.pick('three', 'four', 'five')} years and later taught evening classes. ",
            f"Friends described {name} as {w.pick('patient', 'stubborn', 'cheerful', 'restless')}. ",
        )
        + w.pick("Letters from these years survive in a private collection.", "Little is known about the later years.")
    )


def company_passage(w: World, name: str, founder: str) -> str:
    goods = w.pick("clocks", "bicycles", "lamps", "paper", "tools", "boots", "radios", "tea", "pumps")
    return (
        f"{name}\n{name} was a company that made {goods}. It was founded by {founder} in {w.year(1870, 1960)}. "
        + w.pick(
            f"At its height it had {w.rng.randint(3, 90) * 10} workers. ",
            f"Its {goods} were sold in {w.rng.randint(3, 20)} countries. ",
            "It won a medal at a trade fair. ",
        )
        + w.pick("The factory building still stands.", "The company closed after a fire.")
    )


def work_passage(w: World, name: str, author: str) -> str:
    theme = w.pick("a lighthouse keeper", "two sisters", "a lost letter", "a long winter", "a railway strike")
    return (
        f"{name}\n{name} is a novel about {theme}. It was written by {author} and appeared in {w.year(1890, 1980)}. "
        + w.pick("Critics praised its quiet humour.", "It was reprinted twice.", "A stage version followed later.")
    )


def town_passage(w: World, name: str, river: str) -> str:
    return (
        f"{name}\n{name} is a town on the river {river}. It has about {w.rng.randint(12, 980) * 100} inhabitants. "
        + w.pick(
            "A market is held every Friday.", "Its stone bridge was rebuilt twice.", "The town hall has a tall tower."
        )
    )


def chain(w: World, form: str) -> tuple[list[str], str, str]:
    """(two passages, question, answer) of one question form."""
    person, town, year = w.person(), w.town(), w.year(1840, 1930)
    if form.startswith("founder"):
        company = w.company()
        first = company_passage(w, company, person)
        second = person_passage(w, person, town, year, f", the founder of {company},")
        subject = f"the founder of {company}"
    elif form.startswith("author"):
        title = w.title()
        first = work_passage(w, title, person)
        second = person_passage(w, person, town, year, f", the author of {title},")
        subject = f"the author of {title}"
    else:
        river = w.person().split()[1]
        passages = [person_passage(w, person, town, year), town_passage(w, town, river)]
        return passages, f"On which river lies the town where {person} was born?", river
    if form.endswith("birthyear"):
        return [first, second], f"In which year was {subject} born?", str(year)
    return [first, second], f"In which town was {subject} born?", town


FORMS = ("founder-birthplace", "author-birthyear", "birthplace-river", "author-birthplace", "founder-birthyear")


def distractor(w: World, number: int) -> str:
    """A passage about something else; one in six tells where a person was born."""
    kind = number % 6
    if kind == 5:
        return person_passage(w, w.person(), w.town(), w.year(1840, 1930))
    if kind == 2:
        return town_passage(w, w.town(), w.person().split()[1])
    return company_passage(w, w.company(), w.person()) if kind in (0, 3) else work_passage(w, w.title(), w.person())


def asked(question: str) -> tuple[str, str]:
    """(before the passages, after them); a model that follows instructions answers in few words, which F1 needs."""
    return f"{RULE}\n\n", f"{RULE}\n\nQuestion: {question}\nAnswer:"


def compose(seed: int, index: int, units: int) -> Draft:
    """``units`` distractor passages around the two that answer the question."""
    core = World(random.Random(seed))
    form = FORMS[index % len(FORMS)]
    passages, question, answer = chain(core, form)
    core.rng = random.Random(seed_of(seed, "filler"))  # names stay distinct from those of the question
    filler = [distractor(core, number) for number in range(units)]
    texts = spread(passages, filler, random.Random(seed_of(seed, "place")))
    document = "\n\n".join(texts)
    head, ask = asked(question)
    return Draft(
        prompt=f"{head}{document}\n\n{ask}",
        control=ask,
        document=document,
        answers=[answer],
        form=form,
    )


def read(row: dict[str, Any], budget: int | None, count: Count) -> Draft:
    """One row of LongBench's hotpotqa."""
    head, ask = asked(str(row["input"]))
    return longbench_row(row, head, f"\n\n{ask}", ask, budget, count)


TASK = Task(
    name="multi_hop_qa",
    title="multi-hop QA",
    metric="F1",
    evaluator="opencompass.datasets.longbench.evaluators.LongBenchF1Evaluator",
    compose=compose,
    source=Source(
        collection="longbench",
        files=(("hotpotqa.jsonl", "data/hotpotqa.jsonl"),),
        fields=("input", "context", "answers"),
        lines=200,
        read=read,
    ),
    max_new_tokens=32,
)
