"""Compare two outputs of live.py or reference.py case by case; JSON on the last line.

    python compare.py LIVE OTHER

By case of OTHER: ``difference``, the largest over steps of ``|a - b| / |b|`` of the logits; ``same_tokens``, whether
the tokens that were generated are those of OTHER's largest logits; ``apart``, how far OTHER's own keys and values were
from LIVE's; ``worst``, prompt and token where logits differ most; ``steps_of_one``, steps of one token of the
request that has fewest; ``restarts``, steps that began at 0 again.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch


def compare(live: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    logits = other["logits"]
    places = other.get("at") or [range(len(row)) for row in logits]
    pairs = [(mine[list(at)], theirs) for mine, theirs, at in zip(live["logits"], logits, places, strict=True)]
    differences = [((a - b).norm(dim=1) / b.norm(dim=1)).nan_to_num(torch.inf) for a, b in pairs]
    largest = [float(d.max()) for d in differences]
    prompt = largest.index(max(largest))
    token = list(places[prompt])[int(differences[prompt].argmax())]
    drawn = [([tokens[i] for i in at], b) for tokens, b, at in zip(live["tokens"], logits, places, strict=True)]
    return {
        "difference": max(largest),
        "worst": [prompt, token],
        "median_difference": float(torch.cat(differences).median()),
        "same_tokens": all(tokens == b.argmax(1).tolist() for tokens, b in drawn),
        "apart": other.get("apart", 0.0),
        "steps_of_one": min(sum(new - old == 1 for old, new in steps) for steps in live["schedule"]),
        "restarts": sum(old == 0 for steps in live["schedule"] for old, _ in steps) - len(live["schedule"]),
    }


if __name__ == "__main__":
    first, second = (torch.load(path) for path in sys.argv[1:])
    found = {name: compare(first[case.get("live", name)], case) for name, case in second.items()}
    print(json.dumps(found))
