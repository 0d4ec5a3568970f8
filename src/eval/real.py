"""Rows of real LongBench and RULER files as drafts."""

from __future__ import annotations

from typing import Any

from adrbench.eval.tasks.base import Count, Draft


def cut_middle(text: str, budget: int, count: Count) -> str:
    """``text`` with its middle left out so that it has at most ``budget`` tokens, as LongBench does it.

    Cuts are made between words; head and tail keep the same number of words.
    """
    if count(text) <= budget:
        return text
    words = text.split(" ")
    low, high = 0, len(words) // 2
    while high - low > 1:
        middle = (low + high) // 2
        shorter = " ".join([*words[:middle], *words[len(words) - middle :]])
        low, high = (middle, high) if count(shorter) <= budget else (low, middle)
    return " ".join([*words[:low], *words[len(words) - low :]])


def longbench_row(row: dict[str, Any], head: str, tail: str, control: str, budget: int | None, count: Count) -> Draft:
    """A LongBench row between ``head`` and ``tail``, its context cut to the token budget."""
    context = str(row["context"])
    if budget is not None:
        context = cut_middle(context, budget - count(head) - count(tail), count)
    return Draft(
        prompt=head + context + tail,
        control=control,
        document=context,
        answers=[str(answer) for answer in row["answers"]],
        form="longbench",
    )


def ruler_row(row: dict[str, Any], budget: int | None, count: Count) -> Draft:
    """A RULER row; the question alone is its control.

    RULER writes text and question as one string, so the last line is taken as the question. Its
    length was chosen when the file was made: a needle must not be cut out, so a row over the
    budget is refused.

    Raises:
        ValueError: when the row is longer than the budget.
    """
    text = str(row["input"]) + str(row.get("answer_prefix", ""))
    tokens = count(text)
    if budget is not None and tokens > budget:
        raise ValueError(
            f"a RULER row has {tokens} tokens, the task allows {budget}: raise length_tokens or make a shorter file"
        )
    document, _, question = text.rstrip("\n").rpartition("\n")
    return Draft(
        prompt=text,
        control=question,
        document=document,
        answers=[str(answer) for answer in row["outputs"]],
        form="ruler",
    )
