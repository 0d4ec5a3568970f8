"""Recording keys and values as they reach the cache: the sample that static scales are calibrated from."""

from __future__ import annotations

from pathlib import Path

import torch


class Recorder:
    """The first ``tokens`` rows of every layer, saved as one torch file when every layer has them.

    The file: ``{layer number: {"key": [tokens, heads, dim], "value": ...}}`` in the model's dtype.
    """

    def __init__(self, file: str, tokens: int) -> None:
        self.file, self.wanted = Path(file), tokens
        self.rows: dict[int, list[tuple[torch.Tensor, torch.Tensor]]] = {}
        self.missing: dict[int, int] = {}
        self.saved = False

    def expect(self, layer: int) -> None:
        """A layer exists: the file is not complete without it."""
        self.missing.setdefault(layer, self.wanted)
        self.rows.setdefault(layer, [])

    def take(self, layer: int, key: torch.Tensor, value: torch.Tensor, slots: torch.Tensor) -> None:
        """Rows ``[tokens, heads, dim]`` on their way to ``slots``; rows without one (padding) are left out."""
        if self.saved or not self.missing.get(layer, self.wanted):
            return
        self.expect(layer)
        kept = slots >= 0
        count = slots.shape[0]
        pair = (key[:count][kept].cpu()[: self.missing[layer]], value[:count][kept].cpu()[: self.missing[layer]])
        self.rows[layer].append(pair)
        self.missing[layer] -= pair[0].shape[0]
        if not any(self.missing.values()):
            self.save()

    def save(self) -> None:
        """Write the file, atomically."""
        document = {
            layer: dict(zip(("key", "value"), (torch.cat(part) for part in zip(*pairs, strict=True)), strict=True))
            for layer, pairs in self.rows.items()
        }
        partial = self.file.with_suffix(".part")
        torch.save(document, partial)
        partial.replace(self.file)
        self.saved = True
