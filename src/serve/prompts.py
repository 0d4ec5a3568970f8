"""Prompts of one tier: exact lengths in tokens, the same for every arm, no shared prefixes.

``vllm bench serve``'s random data set draws other lengths in other versions and shares prefixes
between tiers of one seed; a prompt file of our own does neither.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from adrbench.evidence import digest_text
from adrbench.job import JobError

_ONSETS = (
    "b",
    "c",
    "d",
    "f",
    "g",
    "h",
    "l",
    "m",
    "n",
    "p",
    "r",
    "s",
    "t",
    "v",
    "st",
    "tr",
    "pl",
    "gr",
    "ch",
    "sh",
    "br",
    "cl",
)
_RIMES = (
    "a",
    "e",
    "i",
    "o",
    "an",
    "en",
    "in",
    "on",
    "ar",
    "er",
    "or",
    "al",
    "el",
    "ing",
    "ent",
    "ist",
    "ore",
    "ane",
    "est",
    "um",
)


def _words(rng: random.Random, count: int) -> str:
    """Pronounceable nonsense with punctuation: tokenises like text and repeats nothing."""
    words = []
    for position in range(count):
        word = "".join(rng.choice(_ONSETS) + rng.choice(_RIMES) for _ in range(rng.choice((1, 2, 2, 3))))
        words.append(word + (". " if position % 12 == 11 else " "))
    return "".join(words)


def _exact(tokenizer: Any, rng: random.Random, tokens: int) -> str:
    """Text of exactly ``tokens`` tokens, checked by encoding it again."""
    text = ""
    while len(ids := tokenizer.encode(text).ids) < tokens:
        text += _words(rng, max(8, (tokens - len(ids)) // 3))
    # Cutting inside a merge can change the count when the text is encoded again: try shorter cuts, then pad.
    for cut in range(tokens, max(tokens - 8, 0), -1):
        candidate = tokenizer.decode(ids[:cut])
        for padding in ("", " a", " a b", " a b c", " a b c d"):
            if len(tokenizer.encode(candidate + padding).ids) == tokens:
                return str(candidate + padding)
    raise JobError(
        "prompts", f"no text of exactly {tokens} tokens was found with this tokenizer; choose another length"
    )


def make_prompts(tokenizer: Any, low: int, high: int, count: int, seed: str) -> list[dict[str, Any]]:
    """``count`` prompts with lengths drawn evenly from [low, high] tokens.

    Args:
        tokenizer: of the ``tokenizers`` library.
        seed: text; equal seeds give equal prompts.

    Returns:
        Rows of ``prompt`` and ``tokens``. Lengths are stratified over the range, so that two
        tiers of few prompts do not differ by the luck of the draw.
    """
    rng = random.Random(seed)
    edges = [low + (high - low) * i / count for i in range(count + 1)]
    lengths = [min(high, max(low, round(rng.uniform(edges[i], edges[i + 1])))) for i in range(count)]
    rng.shuffle(lengths)
    return [{"prompt": _exact(tokenizer, rng, length), "tokens": length} for length in lengths]


def write_prompts(model: Path, tier: dict[str, Any], seed: int, path: Path) -> tuple[list[int], str]:
    """Write one tier's prompt file (JSON lines for the custom data set of ``vllm bench serve``).

    Returns:
        The prompts' lengths in tokens, and the digest of the file.

    Raises:
        JobError: ``prompts`` when the model folder has no tokenizer.json.
    """
    from tokenizers import Tokenizer

    source = model / "tokenizer.json"
    if not source.is_file():
        raise JobError("prompts", f"{source} does not exist; the model folder needs a fast tokenizer")
    low, high = tier["input_tokens"]
    rows = make_prompts(Tokenizer.from_file(str(source)), low, high, tier["prompts"], f"{seed}/{tier['name']}")
    text = "".join(json.dumps({"prompt": row["prompt"], "output_tokens": tier["output_tokens"]}) + "\n" for row in rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return [row["tokens"] for row in rows], digest_text(text)
