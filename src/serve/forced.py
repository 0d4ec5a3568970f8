"""What a teacher-forced request asks for, without vLLM: see ``forcing.py``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

ARGUMENT = "forced_tokens"


def parse(text: str) -> list[int]:
    """Token ids of the argument's text.

    Raises:
        ValueError: it is not a list of ids.
    """
    try:
        return [int(word) for word in text.split(",")]
    except ValueError:
        raise ValueError(f"{ARGUMENT} must be token ids separated by commas, got {text[:60]!r}") from None


def forcer(forced: list[int]) -> Callable[[list[int], torch.Tensor], torch.Tensor]:
    """A request's processor: after n tokens only ``forced[n]`` is possible; past its end nothing is forced."""

    def force(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
        if len(output_ids) < len(forced):
            token = forced[len(output_ids)]
            logits.fill_(float("-inf"))
            logits[token] = 0.0
        return logits

    return force
