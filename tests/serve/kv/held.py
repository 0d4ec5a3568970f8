"""Does a backend's paged cache hold what a scheme's definition says? Token by token, after every step."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from adrbench.kernels.formats import scheme


class Definition:
    """A scheme with its static values by layer."""

    def __init__(self, settings: dict[str, Any], layers: int, device: str) -> None:
        wanted = scheme(settings["scheme"]).with_parameters(settings.get("parameters") or {})
        found: dict[str, Any] = {}
        if settings.get("scales"):
            document = json.loads(Path(settings["scales"]).read_text())
            found = document["measured"]["schemes"][settings["scheme"]]["layers"]
        self.planes = [
            [
                (plane, plane.static(found.get(str(layer), {}).get(which), device))
                for layer in range(layers)
            ]
            for plane, which in ((wanted.key, "key"), (wanted.value, "value"))
        ]  # fmt: skip

    def differing(self, written: torch.Tensor, held: torch.Tensor) -> tuple[int, int, float]:
        """(values, values that differ, largest share of one token's) of rows ``[layers, 2, tokens, heads, dim]``."""
        worst, total = 0.0, torch.zeros((), dtype=torch.int64, device=held.device)
        for side, planes in enumerate(self.planes):
            pairs = zip(written[:, side], planes, strict=True)
            wanted = torch.stack([plane.round_trip(x, static) for x, (plane, static) in pairs])
            wanted = wanted.to(held.dtype).float()
            shown = held[:, side].float()
            # NaN is never near: a value that is no number differs.
            differs = ~((shown - wanted).abs() <= 1e-5 * wanted.abs() + 1e-6)
            total += differs.sum()
            worst = max(worst, float(differs.float().mean((0, 2, 3)).max()))
        return held.numel(), int(total), worst


class CacheCheck:
    """Follows requests through their steps; ``found`` holds by definition: steps, values, differing, worst_token.

    Args:
        planes: by layer, keys and values of the cache as views ``[blocks, block, heads, dim]``.
        definitions: by label; ``right`` is checked after every step, others when a prompt's chunk was computed and
            every 16 tokens.
        blocks: block numbers of a request.
    """

    def __init__(
        self,
        planes: Sequence[Sequence[torch.Tensor]],
        definitions: dict[str, Definition],
        blocks: Callable[[str], list[int]],
    ) -> None:
        self.planes, self.definitions, self.blocks = planes, definitions, blocks
        self.rows: dict[str, torch.Tensor] = {}
        self.found = {name: {"steps": 0, "values": 0, "differing": 0, "worst_token": 0.0} for name in definitions}

    def step(self, name: str, old: int, new: int, part: torch.Tensor | None) -> None:
        """After a step that brought a request from ``old`` to ``new`` tokens with the rows ``part``."""
        assert part is not None
        before = self.rows[name][:, :, :old] if old else part[:, :, :0]
        assert before.shape[2] == old, f"{name} has {before.shape[2]} of {old} tokens"
        self.rows[name] = written = torch.cat((before, part), 2)
        held = self.held(name, new)
        for label, definition in self.definitions.items():
            if label == "right" or new - old > 1 or new % 16 == 0:
                values, differing, worst = definition.differing(written, held)
                found = self.found[label]
                found["steps"] += 1
                found["values"] += values
                found["differing"] += differing
                found["worst_token"] = max(found["worst_token"], worst)

    def held(self, name: str, length: int) -> torch.Tensor:
        """What the cache holds of a request: ``[layers, 2, length, heads, dim]``."""
        size, device = self.planes[0][0].shape[1], self.planes[0][0].device
        position = torch.arange(length, device=device)
        block = torch.tensor(self.blocks(name), device=device)[position // size]
        return torch.stack([torch.stack([plane[block, position % size] for plane in pair]) for pair in self.planes])
