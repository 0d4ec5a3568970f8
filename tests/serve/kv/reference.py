"""The same prompts through a plain torch model (transformers) whose KV cache reads back a scheme's reference.

    python reference.py ASKED OUTPUT

ASKED (JSON): ``model``, ``live`` (output of live.py) and ``cases``: a list of ``name``, ``live`` (the case it is held
against), ``scheme``, ``parameters``, ``scales`` (a calibration file or none). Prompts, generated tokens and steps are
those of the live case. In each step attention gets ``Plane.round_trip`` of the whole request: the definition,
with nothing incremental in it.

Two correct fp32 models differ in the last bits, and a value beside a rounding boundary then falls on either side
of it: a 4-bit code turns one bit into a fifteenth of a range, and 30 layers make percents of the logits of it. So
the cache rounds the keys and values that vLLM computed, and reports how far this model's own are from them.

OUTPUT (torch file): by case ``live``, for each prompt ``logits`` ``[new_tokens, vocabulary]`` from which each token was
drawn, and ``apart``: the largest difference of keys and values over the largest of their layer and step.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from adrbench.kernels.formats import scheme
from transformers import AutoModelForCausalLM
from transformers.cache_utils import DynamicCache


class ReadBackCache(DynamicCache):
    """A cache that returns keys and values as a reader of the quantised cache gets them."""

    def __init__(self, wanted: Any, layers: dict[str, Any] | None) -> None:
        super().__init__()
        self.wanted, self.calibrated = wanted, layers
        self.rows: dict[int, torch.Tensor] = {}
        self.computed: torch.Tensor | None = None
        self.apart = 0.0

    def update(self, key: torch.Tensor, value: torch.Tensor, layer: int, *_: Any, **__: Any) -> tuple:
        own = torch.stack((key[0], value[0])).transpose(1, 2)  # [2, tokens, heads, dim]
        new = self.computed[layer]
        for mine, theirs in zip(own, new, strict=True):
            self.apart = max(self.apart, float((mine - theirs).abs().max() / theirs.abs().max()))
        self.rows[layer] = torch.cat((self.rows[layer], new), 1) if layer in self.rows else new
        values = self.calibrated[str(layer)] if self.calibrated else {}
        read = []
        for plane, x, which in zip(
            (self.wanted.key, self.wanted.value), self.rows[layer], ("key", "value"), strict=True
        ):
            back = plane.round_trip(x, plane.static(values.get(which)))
            read.append(back.transpose(0, 1)[None])
        return tuple(read)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.rows[layer_idx].shape[1] if layer_idx in self.rows else 0


def replay(model: Any, cache: ReadBackCache, ids: list[int], prompt: int, steps: list[Any]) -> torch.Tensor:
    """Logits of each step that ends where the next token is unknown, computed in the steps given.

    A step that starts at 0 again is a preempted request's: all that it had is computed anew.
    """
    logits: list[torch.Tensor] = []
    for (old, new), computed in steps:
        cache.computed = computed
        if old < cache.get_seq_length():
            assert old == 0, f"a request went back to {old} tokens"
            cache.rows.clear()
        positions = torch.arange(old, new)
        hidden = torch.arange(new)[None] > positions[:, None]
        out = model(
            torch.tensor([ids[old:new]]),
            attention_mask=torch.zeros(hidden.shape).masked_fill(hidden, torch.finfo(torch.float32).min)[None, None],
            past_key_values=cache,
            position_ids=positions[None],
            cache_position=positions,
            use_cache=True,
        )
        if new == prompt + len(logits):
            logits.append(out.logits[0, -1].float())
    return torch.stack(logits)


@torch.inference_mode()
def main(asked_path: str, output: str) -> None:
    asked = json.loads(Path(asked_path).read_text())
    live = torch.load(asked["live"])
    model = AutoModelForCausalLM.from_pretrained(asked["model"], dtype=torch.float32, attn_implementation="sdpa").eval()
    found = {}
    for case in asked["cases"]:
        wanted, ran = scheme(case["scheme"]).with_parameters(case.get("parameters") or {}), live[case["live"]]
        layers = None
        if case.get("scales"):
            layers = json.loads(Path(case["scales"]).read_text())["measured"]["schemes"][case["scheme"]]["layers"]
        logits, apart = [], 0.0
        for row, ids in enumerate(ran["prompts"]):
            cache = ReadBackCache(wanted, layers)
            steps = list(zip(ran["schedule"][row], ran["computed"][row], strict=True))
            logits.append(replay(model, cache, ids + ran["tokens"][row], len(ids), steps))
            apart = max(apart, cache.apart)
        found[case["name"]] = {"live": case["live"], "logits": logits, "apart": apart}
    torch.save(found, output)


if __name__ == "__main__":
    main(*sys.argv[1:])
