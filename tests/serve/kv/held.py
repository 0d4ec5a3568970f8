"""Does a backend's paged cache hold what a scheme's definition says? Token by token, after every step."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cases
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

    def pairs(self, written: torch.Tensor, held: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Keys, then values: (what the definition says, what differs), each ``[layers, tokens, heads, dim]``."""
        found = []
        for side, planes in enumerate(self.planes):
            rows = zip(written[:, side], planes, strict=True)
            wanted = torch.stack([plane.round_trip(x, static) for x, (plane, static) in rows])
            wanted = wanted.to(held.dtype).float()
            # NaN is never near: a value that is no number differs.
            near = (held[:, side].float() - wanted).abs() <= 1e-5 * wanted.abs() + 1e-6
            found.append((wanted, ~near))
        return found

    def differing(self, written: torch.Tensor, held: torch.Tensor) -> tuple[int, int, float]:
        """(values, values that differ, largest share of one token's) of rows ``[layers, 2, tokens, heads, dim]``."""
        differs = [differs for _, differs in self.pairs(written, held)]
        worst = max(float(one.float().mean((0, 2, 3)).max()) for one in differs)
        return held.numel(), sum(int(one.sum()) for one in differs), worst

    def first_wrong(self, written: torch.Tensor, held: torch.Tensor) -> dict[str, Any]:
        """Where rows differ first, and how: what one needs to find the cause where the device is gone.

        ``as_written`` and ``other`` are shares of the values of the plane's wrong tokens: those that the cache holds as
        the model computed them (nothing was rounded), and those that it holds as neither.
        """
        shares = [differs.float().mean((0, 2, 3)) for _, differs in self.pairs(written, held)]
        side = max((0, 1), key=lambda one: float(shares[one].max()))
        wanted, differs = self.pairs(written, held)[side]
        wrong = (shares[side] > cases.WORST_TOKEN).nonzero().flatten()
        token = int(wrong[0]) if len(wrong) else int(shares[side].argmax())
        raw, shown = written[:, side].float(), held[:, side].float()
        layer = int(differs[:, token].float().mean((1, 2)).gt(cases.WORST_TOKEN).int().argmax())
        head, dim = (int(i) for i in differs[layer, token].nonzero()[0]) if differs[layer, token].any() else (0, 0)
        unchanged = (shown - raw.to(held.dtype).float()).abs() == 0
        several = wrong if len(wrong) else torch.tensor([token], device=held.device)
        values = {"written": raw, "wanted": wanted, "held": shown}
        return {
            "plane": ("key", "value")[side],
            "layer": layer,
            "token": token,
            "head": head,
            "dim": dim,
            "wrong_tokens": len(wrong),
            "last_wrong_token": int(wrong[-1]) if len(wrong) else token,
            "by_layer": [round(float(share), 4) for share in differs[:, several].float().mean((1, 2, 3))],
            "as_written": float(unchanged[:, several].float().mean()),
            "other": float((differs & ~unchanged)[:, several].float().mean()),
            "row": {name: x[layer, token, head, :8].tolist() for name, x in values.items()},
        }


class CacheCheck:
    """Follows requests through their steps; ``found`` holds by definition: steps, values, differing, worst_token.

    Where the right definition does not hold, ``first_wrong`` of the first such step is added.

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
        self.found: dict[str, dict[str, Any]] = {
            name: {"steps": 0, "values": 0, "differing": 0, "worst_token": 0.0} for name in definitions
        }

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
                if label == "right" and not worst <= cases.WORST_TOKEN and "first_wrong" not in found:
                    found["first_wrong"] = self.first_wrong(name, old, definition.first_wrong(written, held))

    def first_wrong(self, name: str, old: int, where: dict[str, Any]) -> dict[str, Any]:
        """With the request's step and the slot of the paged cache."""
        size, token = self.planes[0][0].shape[1], where["token"]
        blocks = self.blocks(name)
        slot = {"block": blocks[token // size], "offset": token % size, "blocks": blocks}
        return {"request": name, "old": old, "new": self.rows[name].shape[2]} | slot | where

    def held(self, name: str, length: int) -> torch.Tensor:
        """What the cache holds of a request: ``[layers, 2, length, heads, dim]``."""
        size, device = self.planes[0][0].shape[1], self.planes[0][0].device
        position = torch.arange(length, device=device)
        block = torch.tensor(self.blocks(name), device=device)[position // size]
        return torch.stack([torch.stack([plane[block, position % size] for plane in pair]) for pair in self.planes])
