"""Calibration evidence of all schemes that need it, from the keys and values of a text in a plain torch model.

python calibrate.py MODEL TEXT OUTPUT
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from adrbench.kernels.formats import schemes
from transformers import AutoModelForCausalLM, AutoTokenizer

TOKENS = 768


@torch.inference_mode()
def main(folder: str, text: str, output: str) -> None:
    ids = AutoTokenizer.from_pretrained(folder).encode(Path(text).read_text())[:TOKENS]
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    cache = model(torch.tensor([ids]), use_cache=True).past_key_values
    found = {}
    for name, scheme in schemes().items():
        if scheme.is_static or scheme.needs_calibration:
            rows = [(layer.keys[0].transpose(0, 1), layer.values[0].transpose(0, 1)) for layer in cache.layers]
            found[name] = {"layers": {str(i): scheme.calibrate(*pair) for i, pair in enumerate(rows)}}
    Path(output).write_text(json.dumps({"measured": {"schemes": found}}))


if __name__ == "__main__":
    main(*sys.argv[1:])
