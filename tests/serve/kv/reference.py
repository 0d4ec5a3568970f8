"""The same prompts through a plain torch model (transformers) whose KV cache reads back a scheme's reference.

    python reference.py ASKED OUTPUT

ASKED (JSON): ``model``, ``live`` (output of live.py) and ``cases``: a list of ``name``, ``live`` (the case it is held
against), ``scheme``, ``parameters``, ``scales`` (a calibration file or none). Prompts, generated tokens and steps are
those of the live case. In each step attention gets ``Plane.round_trip`` of the whole request: the definition,
with nothing incremental in it.

Two correct fp32 models differ in the last bits, and a value beside a rounding boundary then falls on either side
of it: a 4-bit code turns one bit into a fifteenth of a range, and 30 layers make percents of the logits of it. So
the cache rounds the keys and values that vLLM computed, and reports how far this model's own are from them.

OUTPUT (torch file): by case ``live``, for each prompt ``logits`` ``[steps, vocabulary]`` from which tokens were
drawn, ``at`` (which tokens), and ``apart``: the largest difference of keys and values over the largest of their
layer and step.
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
    """A cache that returns keys and values as a reader of the quantised cache gets them.

    ``stored``: the dtype of vLLM's cache, through which they pass.
    """

    def __init__(self, wanted: Any, layers: dict[str, Any] | None, stored: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.wanted, self.calibrated, self.stored = wanted, layers, stored
        self.rows: dict[int, torch.Tensor] = {}
        self.computed: torch.Tensor | None = None
        self.apart = 0.0

    def update(self, key: torch.Tensor, value: torch.Tensor, layer: int, *_: Any, **__: Any) -> tuple:
        own = torch.stack((key[0], value[0])).transpose(1, 2)  # [2, tokens, heads, dim]
        new = self.computed[layer].to(own.device, own.dtype)
        for mine, theirs in zip(own, new, strict=True):
            self.apart = max(self.apart, float((mine - theirs).abs().max() / theirs.abs().max()))
        self.rows[layer] = torch.cat((self.rows[layer], new), 1) if layer in self.rows else new
        values = self.calibrated[str(layer)] if self.calibrated else {}
        read = []
        for plane, x, which in zip(
            (self.wanted.key, self.wanted.value), self.rows[layer], ("key", "value"), strict=True
        ):
            back = plane.round_trip(x, plane.static(values.get(which), x.device)).to(self.stored).to(x.dtype)
            read.append(back.transpose(0, 1)[None])
        return tuple(read)

    def take(self, computed: torch.Tensor, device: torch.device, dtype: torch.dtype) -> None:
        """A step's keys and values without computing its logits: they are vLLM's anyway."""
        for layer, new in enumerate(computed):
            new = new.to(device, dtype)
            self.rows[layer] = torch.cat((self.rows[layer], new), 1) if layer in self.rows else new

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.rows[layer_idx].shape[1] if layer_idx in self.rows else 0


def replay(
    model: Any, cache: ReadBackCache, ids: list[int], prompt: int, steps: list[Any], every: int = 1
) -> tuple[torch.Tensor, list[int]]:
    """Logits of steps that end where the next token is unknown, and which of these steps.

    A step that starts at 0 again is a preempted request's: all that it had is computed anew. ``every``: only each
    so manieth of those steps is computed; the others' keys and values are taken as they are, since what a step
    reads is vLLM's.
    """
    logits, computed_steps, drawn = [], [], 0
    for (old, new), computed in steps:
        if old < cache.get_seq_length():
            assert old == 0, f"a request went back to {old} tokens"
            cache.rows.clear()
        draws = new == prompt + drawn
        drawn += draws
        if every > 1 and not (draws and (drawn - 1) % every == 0):
            cache.take(computed, model.device, model.dtype)
            continue
        cache.computed = computed
        positions = torch.arange(old, new, device=model.device)
        hidden = torch.arange(new, device=model.device)[None] > positions[:, None]
        mask = torch.zeros(hidden.shape, device=model.device).masked_fill(hidden, torch.finfo(torch.float32).min)
        out = model(
            torch.tensor([ids[old:new]], device=model.device),
            attention_mask=mask[None, None],
            past_key_values=cache,
            position_ids=positions[None],
            cache_position=positions,
            use_cache=True,
        )
        if draws:
            logits.append(out.logits[0, -1].float().cpu())
            computed_steps.append(drawn - 1)
    return torch.stack(logits), computed_steps


def load(model: str, device: str = "cpu") -> Any:
    """The plain torch model, fp32."""
    found = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32, attn_implementation="sdpa")
    return found.to(device).eval()


def of_case(
    model: Any, case: dict[str, Any], ran: dict[str, Any], stored: torch.dtype = torch.float32, every: int = 1
) -> dict[str, Any]:
    """What the reference says to one live case: ``logits`` and ``at`` (steps) for each prompt, and ``apart``."""
    wanted, layers = scheme(case["scheme"]).with_parameters(case.get("parameters") or {}), None
    if case.get("scales"):
        layers = json.loads(Path(case["scales"]).read_text())["measured"]["schemes"][case["scheme"]]["layers"]
    found: dict[str, Any] = {"live": case["live"], "logits": [], "at": [], "apart": 0.0}
    for row, ids in enumerate(ran["prompts"]):
        cache = ReadBackCache(wanted, layers, stored)
        steps = list(zip(ran["schedule"][row], ran["computed"][row], strict=True))
        logits, at = replay(model, cache, ids + ran["tokens"][row], len(ids), steps, every)
        found["logits"].append(logits)
        found["at"].append(at)
        found["apart"] = max(found["apart"], cache.apart)
    return found


@torch.inference_mode()
def main(asked_path: str, output: str) -> None:
    asked = json.loads(Path(asked_path).read_text())
    live = torch.load(asked["live"])
    model = load(asked["model"])
    found = {case["name"]: of_case(model, case, live[case["live"]]) for case in asked["cases"]}
    torch.save(found, output)


if __name__ == "__main__":
    main(*sys.argv[1:])
