"""Run in the serving interpreter: can the check of a paged cache fail? JSON by case: did it accept, and where not."""

from __future__ import annotations

import json
from typing import Any

import cases
import held
import torch

LAYERS, HEADS, DIM, BLOCK, BLOCKS, LENGTH = 6, 2, 64, 16, 40, 300
TABLE = [7, 3, 21, 4, 35, 8, 30, 1, 2, 11, 12, 19, 18, 17, 16, 15, 39, 38, 37]


def check(spoil: str) -> dict[str, Any]:
    """A cache as kivi4's definition has it, spoiled, after a prompt of 250 tokens and 50 decoded ones."""
    torch.manual_seed(1)
    written = torch.randn(LAYERS, 2, LENGTH, HEADS, DIM)
    planes = [[torch.zeros(BLOCKS, BLOCK, HEADS, DIM) for _ in range(2)] for _ in range(LAYERS)]
    right = held.Definition({"scheme": "kivi4"}, LAYERS, "cpu")
    judged = {"scheme": "kivi4", "parameters": {"residual": 64} if spoil == "another-window" else {}}
    follow = held.CacheCheck(planes, {"right": held.Definition(judged, LAYERS, "cpu")}, lambda _: TABLE)
    for old, new in [(0, 250), *((length, length + 1) for length in range(250, LENGTH))]:
        position = torch.arange(new)
        block, offset = torch.tensor(TABLE)[position // BLOCK], position % BLOCK
        for layer, pair in enumerate(planes):
            for side, plane in enumerate(pair):
                shown = right.planes[side][layer][0].round_trip(written[layer, side, :new])
                if spoil == "one-token-late" and side == 1 and new > 128:
                    shown[new - 129] = written[layer, side, new - 129]
                if spoil == "a-code-here-and-there":
                    shown.view(-1)[torch.randint(0, shown.numel(), (shown.numel() // 20000 + 1,))] += 0.3
                if spoil == "not-a-number" and new == LENGTH:
                    shown[5] = torch.nan
                if spoil == "another-block" and new == LENGTH:
                    shown[32:48] = shown[48:64]
                if spoil == "not-rounded" and new == LENGTH and side == 1 and layer >= 2:
                    shown[40:60] = written[layer, side, 40:60]
                plane[block, offset] = shown
        follow.step("a", old, new, written[:, :, old:new])
    return {"accepted": cases.holds(follow.found["right"]), "first_wrong": follow.found["right"].get("first_wrong")}


if __name__ == "__main__":
    spoiled = ("nothing", "a-code-here-and-there", "one-token-late", "not-a-number", "another-block", "another-window")
    print(json.dumps({case: check(case) for case in (*spoiled, "not-rounded")}))
