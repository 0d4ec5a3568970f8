"""Run prompts through a real vLLM on CPU, in this process, and write what it computed.

    ADRBENCH_PLUGIN='{"kv_simulation": ...}' python live.py CASES OUTPUT

CASES (JSON): ``model``, ``engine`` (arguments of ``vllm.LLM``), ``text`` (a file whose tokens are the prompts),
``cases``: a list of ``name``, ``settings`` (``kv_simulation``), ``prompts`` (first token and number of tokens of
each) and ``new_tokens``. One engine serves all cases; between two of them the simulation is exchanged, which is all
that the plugin's settings decide once it is attached.

OUTPUT (torch file): by case, for each prompt ``prompts`` (token ids), ``tokens`` (generated), ``logits``
``[new_tokens, vocabulary]``, ``schedule`` (length before and after each step that computed it) and ``computed``: for
each of these steps the keys and values that the model computed, before the plugin saw them
``[layers, 2, tokens, heads, dim]`` (none without the plugin).
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"

import torch
import watch
from adrbench import scratch
from adrbench.serve.simulation import attach
from vllm import LLM


def main(cases_path: str, output: str) -> None:
    asked = json.loads(Path(cases_path).read_text())
    engine = asked["engine"]
    rows = watch.Rows(Path(asked["model"]), engine["max_num_batched_tokens"], getattr(torch, engine["dtype"]), "cpu")
    scratch.for_this_process()
    llm = LLM(model=asked["model"], **engine)
    steps = watch.Steps(watch.runner_of(llm), rows)
    text = llm.get_tokenizer().encode(Path(asked["text"]).read_text())
    found = {}
    for case in asked["cases"]:
        if case["settings"] is not None:
            attach.ACTIVE.simulation = None
            attach.activate(case["settings"], None)
        found[case["name"]] = watch.generate(llm, steps, case, text)
    torch.save(found, output)


if __name__ == "__main__":
    main(*sys.argv[1:])
