"""Long-document summary in gov_report form, scored by ROUGE-L.

A report of an invented audit office on an invented programme: why the review was made, three
findings in three chapters with what was seen at the visited places, recommendations. The reference
summary is written from the same facts as the report and covers purpose, result, findings and
recommendations. The visits carry the length and are not in the summary, so in a long report
the findings lie far apart. The control knows the title of the report and nothing else.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from adrbench.eval.real import longbench_row
from adrbench.eval.tasks.base import Count, Draft, Source, Task, seed_of
from adrbench.eval.world import World

PROGRAMMES = (
    ("Rural Bridge Repair Programme", "the Transport Department", "repairs small road bridges", "bridges"),
    ("School Meal Scheme", "the Education Department", "pays for warm meals in schools", "schools"),
    ("River Water Testing Programme", "the Environment Agency", "tests the water of rivers", "test sites"),
    ("Home Insulation Grant", "the Housing Department", "pays grants for the insulation of old homes", "homes"),
    ("Vaccine Cold Store Programme", "the Health Department", "keeps vaccines cold in local stores", "stores"),
    ("Harbour Safety Programme", "the Maritime Office", "inspects the safety of small harbours", "harbours"),
    ("Village Bus Scheme", "the Transport Department", "runs buses between villages", "bus lines"),
    ("Forest Fire Watch", "the Forestry Agency", "watches forests for fire", "watch posts"),
    ("Library Renewal Fund", "the Culture Department", "renews public libraries", "libraries"),
    ("Apprentice Training Fund", "the Labour Department", "pays for the training of apprentices", "workshops"),
)
PROBLEMS = (
    ("staff", "did not have enough trained staff", "hire and train more staff"),
    ("records", "kept incomplete records", "keep complete records"),
    ("delay", "finished most of its work late", "set clear deadlines and report on them"),
    ("cost", "did not track what the work cost", "track the cost of each project"),
    ("inspection", "inspected fewer sites than its rules require", "inspect every site once a year"),
    ("data", "used data that were several years old", "collect new data every year"),
    ("goals", "had no measurable goals", "define measurable goals"),
    ("contracts", "awarded contracts without comparing offers", "compare at least three offers"),
)


@dataclass(frozen=True)
class Facts:
    """What one report and its summary are both written from."""

    programme: str
    agency: str
    purpose: str
    objects: str
    started: int
    budget: int
    total: int
    done: int
    problems: list[tuple[str, str, str]]


def facts_of(rng: random.Random, index: int) -> Facts:
    programme, agency, purpose, objects = PROGRAMMES[index % len(PROGRAMMES)]
    total = rng.randint(20, 90) * 10
    return Facts(
        programme, agency, purpose, objects, rng.randint(2001, 2019), rng.randint(12, 480), total,
        int(total * rng.uniform(0.3, 0.8)), rng.sample(PROBLEMS, 3),
    )  # fmt: skip


def region(w: World, facts: Facts) -> str:
    """One paragraph of detail that the summary leaves out."""
    town, done = w.town(), w.rng.randint(2, 40)
    return (
        f"{town}. In {town} we visited {w.rng.randint(2, 9)} {facts.objects} and spoke with {w.person()}, "
        f"who leads the local office. {done} {facts.objects} had been completed there, "
        + w.pick(
            f"and {w.rng.randint(1, 12)} were waiting for a decision. ",
            f"which took {w.rng.randint(3, 30)} months on average. ",
            f"at a cost of {w.rng.randint(10, 900)} thousand each. ",
        )
        + w.pick(
            "Local staff told us that spare parts arrive slowly. ",
            "The office shares its building with the fire service. ",
            "Residents were content with the work. ",
            "A storm damaged the archive two years ago. ",
        )
    ).strip()


def report(facts: Facts, regions: list[str]) -> str:
    agency = facts.agency[0].upper() + facts.agency[1:]
    advice = " ".join(f"{agency} should {remedy}." for _, _, remedy in facts.problems)
    chapters = []
    for number, (topic, finding, _) in enumerate(facts.problems):
        opening = f"Finding {number + 1}: {topic}. We found that {facts.agency} {finding}."
        chapters += [opening, *regions[number :: len(facts.problems)]]
    parts = [
        f"REVIEW OF THE {facts.programme.upper()}",
        f"Why this review was made. The {facts.programme} {facts.purpose}. It was started in {facts.started} and is "
        f"run by {facts.agency}, with a yearly budget of {facts.budget} million. Parliament asked the Audit Office to "
        "review how well the programme works.",
        f"What has been done. By the end of last year {facts.done} of {facts.total} planned {facts.objects} had been "
        "completed.",
        *chapters,
        f"What we recommend. {advice}",
    ]
    return "\n\n".join(parts)


def summary(facts: Facts) -> str:
    """The reference: purpose, result, findings, recommendations, in sentences of its own."""
    problems = [finding for _, finding, _ in facts.problems]
    advice = [remedy for _, _, remedy in facts.problems]
    return (
        f"The Audit Office reviewed the {facts.programme}, which {facts.purpose} and is run by {facts.agency} with a "
        f"yearly budget of {facts.budget} million. The programme was started in {facts.started}, and {facts.done} of "
        f"{facts.total} planned {facts.objects} had been completed by the end of last year. The review found that "
        f"{facts.agency} {problems[0]}, {problems[1]} and {problems[2]}. It recommends that {facts.agency} should "
        f"{advice[0]}, {advice[1]} and {advice[2]}."
    )


ASK = "Write a one-paragraph summary of the report."


def compose(seed: int, index: int, units: int) -> Draft:
    """A report with ``units`` region paragraphs."""
    facts = facts_of(random.Random(seed), index)
    world = World(random.Random(seed_of(seed, "filler")))
    document = report(facts, [region(world, facts) for _ in range(units)])
    return Draft(
        prompt=f"Below is a report by an audit office.\n\n{document}\n\n{ASK}\n\nSummary:",
        control=f"An audit office wrote a report with the title: Review of the {facts.programme}.\n\n{ASK}\n\nSummary:",
        document=document,
        answers=[summary(facts)],
        form="audit",
    )


def read(row: dict[str, Any], budget: int | None, count: Count) -> Draft:
    """One row of LongBench's gov_report; it has no title, so its control names no subject."""
    head, tail = "Below is a report by a government agency.\n\n", f"\n\n{ASK}\n\nSummary:"
    return longbench_row(row, head, tail, f"A government agency wrote a report. {ASK}\n\nSummary:", budget, count)


TASK = Task(
    name="summary",
    title="long-document summary",
    metric="ROUGE-L",
    evaluator="opencompass.datasets.longbench.evaluators.LongBenchRougeEvaluator",
    compose=compose,
    source=Source(
        collection="longbench",
        files=(("gov_report.jsonl", "data/gov_report.jsonl"),),
        fields=("context", "answers"),
        lines=200,
        read=read,
    ),
    max_new_tokens=128,
)
