"""Keys and values of every layer over a small text, by a plain forward pass of the model.

Keys are those after rotary embedding: what a paged cache holds. Runs in the serving interpreter, which has torch and
transformers; the weights are read and nothing is written to them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adrbench.eval.tasks.base import seed_of
from adrbench.eval.world import haystack
from adrbench.job import JobError

if TYPE_CHECKING:
    import torch

SENTENCES = 64


def texts(seed: int, segments: int, tokens: int, encode: Any) -> list[list[int]]:
    """``segments`` lists of exactly ``tokens`` ids: unrelated sentences, in other words than the replayed text."""
    found = []
    for index in range(segments):
        own, count = seed_of("calibrate", seed, index), SENTENCES
        ids: list[int] = []
        while len(ids) < tokens:
            sentences = haystack(own, count)
            numbers = random.Random(own)
            ids = encode(" ".join(f"{s} ({numbers.randint(10, 9999)})" for s in sentences))
            count *= 2
        found.append(ids[:tokens])
    return found


def encoder(model: Path) -> Any:
    """Token ids of plain text by the model's own tokenizer; raises JobError ``no-tokenizer``."""
    from tokenizers import Tokenizer

    path = model / "tokenizer.json"
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises a bare Exception for a missing and for a damaged file
        raise JobError("no-tokenizer", f"{path}: {error}; calibration texts are cut to length by this file") from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return lambda text: list(tokenizer.encode(text, add_special_tokens=False).ids)


def _layers(cache: Any) -> Iterator[tuple[int, torch.Tensor, torch.Tensor]]:
    """(layer, keys, values), ``[tokens, heads, dim]``, of each layer that has them: linear attention has none."""
    for number, layer in enumerate(cache.layers):
        key, value = getattr(layer, "keys", None), getattr(layer, "values", None)
        if key is not None and value is not None and key.ndim == 4:
            yield number, key[0].transpose(0, 1), value[0].transpose(0, 1)


def collect(model: Path, prompts: list[list[int]], dtype: str) -> dict[int, tuple[torch.Tensor, torch.Tensor]]:
    """Keys and values of all prompts by layer, ``[tokens of all prompts, heads, dim]`` each, fp32.

    Raises:
        JobError: ``calibration`` when the model's cache is not one of keys and values by layer.
    """
    import torch
    from transformers import AutoModelForCausalLM

    device = "cuda" if torch.cuda.is_available() else "cpu"
    network = AutoModelForCausalLM.from_pretrained(str(model), dtype=getattr(torch, dtype)).to(device).eval()
    parts: dict[int, list[tuple[torch.Tensor, torch.Tensor]]] = {}
    with torch.inference_mode():
        for ids in prompts:
            cache = network(torch.tensor([ids], device=device), use_cache=True, logits_to_keep=1).past_key_values
            for number, key, value in _layers(cache):
                parts.setdefault(number, []).append((key.float().cpu(), value.float().cpu()))
    if not parts:
        raise JobError("calibration", f"{model}: its cache holds no keys and values by layer; use dynamic schemes only")
    return {n: (torch.cat([k for k, _ in found]), torch.cat([v for _, v in found])) for n, found in parts.items()}


def outliers(keys: dict[int, torch.Tensor], share: float = 0.01) -> dict[str, Any]:
    """How the largest key values spread over the KV heads of all layers.

    The ``share`` largest magnitudes of each layer are its outliers. ``head_share`` is the share of heads that together
    hold half of them, the fullest heads first: one half if they are spread evenly, little if few heads hold them.

    Args:
        keys: ``[tokens, heads, dim]`` by layer.
    """
    import torch

    counts = []
    for key in keys.values():
        size = key.abs().float()
        least = size.flatten().kthvalue(max(1, int(size.numel() * (1 - share)))).values
        counts.append((size > least).sum(dim=(0, 2)))
    held = torch.cat(counts).sort(descending=True).values
    half = int((held.cumsum(0) < held.sum() / 2).sum()) + 1
    return {"share": share, "heads": len(held), "heads_with_half": half, "head_share": half / len(held)}
